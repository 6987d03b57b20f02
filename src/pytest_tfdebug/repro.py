"""``--tf-repro``: a folder with the inputs of the call, the environment, and a few lines that run the test."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.check_record import slug_of
from pytest_tfdebug.environment import environment
from pytest_tfdebug.errors import second_look
from pytest_tfdebug.options import Options
from pytest_tfdebug.redaction import is_secret, printable, redact, redacted
from pytest_tfdebug.tracing.record.leaves import walk, walk_inputs
from pytest_tfdebug.tracing.record.replacing import PARTIAL

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pytest
    import torch

#: Characters of a value.
_LONGEST_VALUE = 200
#: Options of the run that change what a check does.
_CARRIED = {"golden_dir": "--tf-golden-dir", "golden_variant": "--tf-golden-variant", "device": "--tf-device"}
_SCRIPT = '''\
"""A failed {what} check of {test}. Run it: python repro.py

inputs.safetensors and inputs.json hold the inputs of the call, environment.json what else the answer may depend on.
"""

import os
import sys

import pytest

sys.path.extend({paths!r})  # where the test imported its own modules from
os.chdir({root!r})
sys.exit(pytest.main({arguments!r}))
'''


def write_repro(
    item: pytest.Item, what: str, model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    """Write the repro of a failed check, if repros are asked for."""
    root = Options.of(item.config).repro
    if not root:
        return ""
    if root.partition("::")[0].endswith(".py"):
        return f"No repro: --tf-repro took {root} for its folder. Name the tests first, or the folder: --tf-repro=DIR."
    directory, notes = item.config.invocation_params.dir / root / slug_of(redact(item.nodeid), what), list[str]()
    with second_look(notes, "No repro"):
        return _written(directory, _script(item, what), model, args, kwargs)
    return f"{notes[0]}."


def _written(
    directory: Path, script: str, model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> str:
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".", suffix=PARTIAL, dir=directory.parent) as folder:
            made = Path(folder, "made")
            made.mkdir()
            _write_inputs(made, args, kwargs)
            known = redacted(environment(model, with_git=True))
            (made / "environment.json").write_text(json.dumps(known, indent=1), encoding="utf-8")
            (made / "repro.py").write_text(script, encoding="utf-8")
            if os.path.lexists(directory):  # of an earlier run, or a link to somewhere else, which is not followed
                directory.rename(Path(folder, "earlier"))
            made.rename(directory)
    except OSError as error:
        return (
            f"No repro: {directory} cannot be written: {error.strerror or error}. Name another folder: --tf-repro=DIR."
        )
    return f"Repro: python {directory / 'repro.py'}\n  It holds the inputs, the environment and what runs the test."


def _write_inputs(directory: Path, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    from safetensors.torch import save_file

    tensors = {leaf.path: leaf.tensor for leaf in walk_inputs(args, kwargs)}
    named = {**{f"[{place}]": value for place, value in enumerate(args)}, **kwargs}
    told = {name: _told(name, value) for name, value in named.items()}
    save_file(
        {path: tensor.detach().cpu().contiguous().clone() for path, tensor in tensors.items()},
        directory / "inputs.safetensors",
    )
    (directory / "inputs.json").write_text(json.dumps(told, indent=1), encoding="utf-8")


def _told(name: str, value: object) -> str:
    """Return what an input is, in a line: a tensor's shape and dtype, a short text of anything else."""
    found = [f"{name}{leaf.path}: {tuple(leaf.tensor.shape)} {leaf.tensor.dtype}" for leaf in walk(value)]
    if found:
        return "; ".join(found)
    return redact("***" if isinstance(value, str) and is_secret(name, value) else repr(value)[:_LONGEST_VALUE])


def _script(item: pytest.Item, what: str) -> str:
    config, chosen = item.config, Options.of(item.config)
    folders = [path for path in sys.path if path and Path(path).is_dir()]
    paths = [path for path in folders if not any(map(Path(path).is_relative_to, (sys.prefix, sys.base_prefix)))]
    test = item.nodeid if redact(item.nodeid) == item.nodeid else item.nodeid.partition("[")[0]
    ini = ["-c", str(config.inipath)] if config.inipath else []
    given = {flag: getattr(chosen, name) for name, flag in _CARRIED.items()}
    options = [f"{flag}={value}" for flag, value in given.items() if value and redact(value) == value]
    return _SCRIPT.format(
        what=what,
        test=printable(test).replace("\\", "/").replace('"', "'"),
        paths=[path for path in paths if redact(path) == path],
        root=str(config.rootpath),
        arguments=[test, f"--rootdir={config.rootpath}", *ini, *options],
    )

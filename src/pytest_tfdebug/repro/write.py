"""Write the directory: model, inputs, environment, ``repro.py``, and a README of one command."""

from __future__ import annotations

import json
import re
import shutil
import sys
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from pickle import PicklingError
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.environment import environment, is_of_python
from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.redaction import redact, redacted
from pytest_tfdebug.repro.contents import leave_out, readme, summary
from pytest_tfdebug.repro.inputs import save_inputs
from pytest_tfdebug.repro.model import replaced_functions, save_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_tfdebug.options import Repros

_LONGEST_NAME = 120
_SCRIPT = '''\
"""{title}{lost}

Run it: python repro.py
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
{needs}sys.path.extend({paths!r})  # where the test imported its own modules from

import torch

import pytest_tfdebug
from pytest_tfdebug.repro.inputs import load_inputs

torch.manual_seed({seed})
{model}
args, kwargs = load_inputs(HERE{classes})

{check}
'''
_NEEDS = """\
missing = [name for name in {files!r} if not (HERE / name).exists()]
if missing:
    print("This repro was written without", ", ".join(missing) + ". Put files of these names beside it; see README.md.")
    sys.exit(2)
"""


@dataclass(frozen=True)
class FailedCall:
    """A call whose check failed.

    Args:
        test: Node id of the test.
        what: The check, in a few words.
        model: The module that was called.
        args: Its positional inputs.
        kwargs: Its keyword inputs.
        check: Lines of Python that check ``model``, ``args`` and ``kwargs`` and raise or exit with 1.
        files: Files to copy beside the script, by their name there.
        autocast: Device type and dtype of the autocast in which the call was made.
    """

    test: str
    what: str
    model: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    check: tuple[str, ...]
    files: Mapping[str, Path] = field(default_factory=dict)
    autocast: tuple[str, torch.dtype] | None = None


def write_repro(repros: Repros, failed: FailedCall) -> str:
    """Write a repro and return the lines that say how to run it and what it holds, or why there is none.

    Args:
        repros: Where repros go, and what is left out of them. The test gets a directory of its own, replaced if it
            exists.
        failed: The call.
    """
    directory = repros.root / _directory_name(failed)
    replaced = ", ".join(replaced_functions(failed.model))
    lost = f"It lacks what the test put in place of {replaced}." if replaced else ""
    try:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        classes = save_inputs(directory, failed.args, failed.kwargs)
        for name, source in failed.files.items():
            shutil.copyfile(source, directory / name)
        model = save_model(directory, failed.model)
        left_out = leave_out(directory, repros.without)
        (directory / "repro.py").write_text(_script(failed, model, classes, lost, left_out), encoding="utf-8")
    except (OSError, TFDebugError, TypeError, ValueError, AttributeError, RuntimeError, PicklingError) as error:
        shutil.rmtree(directory, ignore_errors=True)
        return f"No repro: {redact(str(error)).splitlines()[0] if str(error) else type(error).__name__}."
    known = redacted(environment(failed.model, with_git=True).to_dict())
    (directory / "environment.json").write_text(json.dumps(known, indent=1), encoding="utf-8")
    title = f"A failed {failed.what} check of `{redact(failed.test)}`."
    (directory / "README.md").write_text(readme(title, directory, left_out), encoding="utf-8")
    return f"Repro: python {directory / 'repro.py'}{f' ({lost})' if lost else ''}\n  {summary(directory, left_out)}"


def _script(failed: FailedCall, model: list[str], classes: list[str], lost: str, left_out: list[str]) -> str:
    paths = [path for path in sys.path if path and Path(path).is_dir() and not is_of_python(path)]
    return _SCRIPT.format(
        title=f"A failed {failed.what} check of {redact(failed.test)}.".replace("\\", "/").replace('"', "'"),
        lost=f"\n{lost}" if lost else "",
        needs=_NEEDS.format(files=left_out) if left_out else "",
        paths=[path for path in paths if redact(path) == path],
        seed=torch.initial_seed(),
        model="\n".join(model),
        classes=f", {classes!r}" if classes else "",
        check="\n".join(map(redact, _within_autocast(failed))),
    )


def _directory_name(failed: FailedCall) -> str:
    """Return a name that every file system takes, and that no two tests share."""
    label = f"{failed.test}.{failed.what}"
    short = re.sub(r"[^\w.\-]+", "_", redact(label))[-_LONGEST_NAME:].strip("_.")
    return f"{short}-{blake2b(label.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def _within_autocast(failed: FailedCall) -> list[str]:
    if failed.autocast is None:
        return list(failed.check)
    device, dtype = failed.autocast
    return [f"with torch.autocast({device!r}, {dtype}):", *(f"    {line}" for line in failed.check)]

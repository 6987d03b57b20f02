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

from pytest_tfdebug.environment import environment, is_of_python
from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.repro.inputs import save_inputs
from pytest_tfdebug.repro.model import replaced_functions, save_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

_LONGEST_NAME = 120
_SCRIPT = '''\
"""{title}{lost}

Run it: python repro.py
"""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.extend({paths!r})  # where the test imported its own modules from

import torch

import pytest_tfdebug
from pytest_tfdebug.repro.inputs import load_inputs

torch.manual_seed({seed})
{model}
args, kwargs = load_inputs(HERE)

{check}
'''


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


def write_repro(root: Path, failed: FailedCall) -> str:
    """Write a repro and return the line that says how to run it, or why there is none.

    Args:
        root: Directory of all repros; the test gets one of its own in it, replaced if it exists.
        failed: The call.
    """
    import torch

    directory = root / _directory_name(failed)
    replaced = ", ".join(replaced_functions(failed.model))
    lost = f"It lacks what the test put in place of {replaced}." if replaced else ""
    try:
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        save_inputs(directory, failed.args, failed.kwargs)
        for name, source in failed.files.items():
            shutil.copyfile(source, directory / name)
        script = _SCRIPT.format(
            title=f"A failed {failed.what} check of {failed.test}.".replace("\\", "/").replace('"', "'"),
            lost=f"\n{lost}" if lost else "",
            paths=[path for path in sys.path if path and Path(path).is_dir() and not is_of_python(path)],
            seed=torch.initial_seed(),
            model="\n".join(save_model(directory, failed.model)),
            check="\n".join(_within_autocast(failed)),
        )
    except (OSError, TFDebugError, TypeError, AttributeError, RuntimeError, PicklingError) as error:
        shutil.rmtree(directory, ignore_errors=True)
        return f"No repro: {str(error).splitlines()[0] if str(error) else type(error).__name__}."
    (directory / "repro.py").write_text(script, encoding="utf-8")
    known = environment(failed.model, with_git=True).to_dict()
    (directory / "environment.json").write_text(json.dumps(known, indent=1), encoding="utf-8")
    (directory / "README.md").write_text(
        f"A failed {failed.what} check of `{failed.test}`. Run: `python repro.py`\n", encoding="utf-8"
    )
    return f"Repro: python {directory / 'repro.py'}{f' ({lost})' if lost else ''}"


def _directory_name(failed: FailedCall) -> str:
    """Return a name that every file system takes, and of two tests never the same."""
    label = f"{failed.test}.{failed.what}"
    short = re.sub(r"[^\w.\-]+", "_", label)[-_LONGEST_NAME:].strip("_.")
    return f"{short}-{blake2b(label.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def _within_autocast(failed: FailedCall) -> list[str]:
    if failed.autocast is None:
        return list(failed.check)
    device, dtype = failed.autocast
    return [f"with torch.autocast({device!r}, {dtype}):", *(f"    {line}" for line in failed.check)]

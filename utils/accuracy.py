"""How many injected port bugs are placed at the right module: this package and pytest-torch, side by side.

Every bug of ``fixtures/bugs.py`` goes into a copy of its model; each tool sees the right and the wrong model and the
same inputs. ``named``: the answer is the module whose code or parameters are wrong (for this package the kind too).
``named or inside``: it is that module or one within it, which is all that a tool without glue can say of glue.
``in three lines``: named by a range of three lines at most, by one statement, or by the parameter.
``golden of 64 kB``: the right model is a golden that keeps so much beside its table of operators.
``by floors``: what is allowed is a multiple of what float64 says (``tolerance="fp64"``).
``without names``: every module of the wrong model has another name, as in an independent port, and no ``rename=`` says
which is which. With ``--ports``: the table of ``tests/ports`` instead, and its options.
"""

from __future__ import annotations

import copy
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "fixtures"))

import pytest_tfdebug
from bugs import BUGS  # type: ignore[import-not-found]  # the folder is put on the path above
from models import IS_V5, build  # type: ignore[import-not-found]
from mutants import is_narrow
from pytest_tfdebug.tracing.file.samples import sampled

if TYPE_CHECKING:
    from collections.abc import Callable


class Answer(NamedTuple):
    """The module that a tool names, if the kind is right too, and whether by three lines at most or one statement."""

    path: str
    is_narrow: bool


def ours(right: torch.nn.Module, wrong: torch.nn.Module, inputs: dict[str, Any], bug: Any) -> Answer:  # noqa: ANN401
    """Return the module that this package names, if the kind is right too."""
    report = pytest_tfdebug.compare(
        pytest_tfdebug.trace(right, **inputs), pytest_tfdebug.trace(wrong, **inputs), internal="fail"
    )
    return _answer(report.culprit, bug)


def within_64_kb(right: torch.nn.Module, wrong: torch.nn.Module, inputs: dict[str, Any], bug: Any) -> Answer:  # noqa: ANN401
    """Return the module that this package names, if the kind is right too, from a golden of 64 kB."""
    recorded = pytest_tfdebug.trace(right, **inputs)
    held = replace(sampled(recorded), again=recorded.again)
    report = pytest_tfdebug.compare(held, pytest_tfdebug.trace(wrong, **inputs), internal="fail")
    return _answer(report.culprit, bug)


def by_floors(right: torch.nn.Module, wrong: torch.nn.Module, inputs: dict[str, Any], bug: Any) -> Answer:  # noqa: ANN401
    """Return the module that this package names, if the kind is right too, with ``tolerance="fp64"``."""
    expected, actual = pytest_tfdebug.trace(right, **inputs), pytest_tfdebug.trace(wrong, **inputs)
    report = pytest_tfdebug.compare(expected, actual, internal="fail", tolerance="fp64")
    return _answer(report.culprit, bug)


def without_names(right: torch.nn.Module, wrong: torch.nn.Module, inputs: dict[str, Any], bug: Any) -> Answer:  # noqa: ANN401
    """Return the module that this package names if no name is common, if the kind is right too."""
    actual = pytest_tfdebug.trace(wrong, **inputs)
    own = {_disguised(path): path for path in (*actual.modules, *(call.path for call in actual.calls))}
    root = actual.calls[0].path
    renamed = replace(
        actual,
        calls=[call if call.path == root else replace(call, path=_disguised(call.path)) for call in actual.calls],
        modules=tuple(map(_disguised, actual.modules)),
        aliases={_disguised(path): tuple(map(_disguised, others)) for path, others in actual.aliases.items()},
        unrecorded=tuple(map(_disguised, actual.unrecorded)),
    )
    report = pytest_tfdebug.compare(pytest_tfdebug.trace(right, **inputs), renamed, internal="fail")
    found = _answer(report.culprit, bug)
    return found._replace(path=own.get(found.path, found.path))


def _answer(culprit: Any, bug: Any) -> Answer:  # noqa: ANN401 - a row of the catalogue
    if culprit is None or not _is_kind(culprit.kind, bug):
        return Answer("", is_narrow=False)
    return Answer(culprit.path, culprit.kind == "weights" or is_narrow(culprit.source))


def _is_kind(kind: str, bug: Any) -> bool:  # noqa: ANN401 - a row of the catalogue
    """Tell whether a kind is right; without names a wrong parameter may be told as the code that uses it."""
    return kind == bug.kind or (bug.kind == "weights" and kind in ("module", "glue"))


def _disguised(path: str) -> str:
    """Return a module path in which each name is spelt backwards; numbers stay."""
    return ".".join(part if part.isdigit() else f"x{part[::-1]}" for part in path.split("."))


def pytest_torch(leaf_only: bool) -> Callable[..., Answer]:  # noqa: FBT001
    """Return the function that gives pytest-torch's first diverging row."""

    def first(right: torch.nn.Module, wrong: torch.nn.Module, inputs: dict[str, Any], _bug: Any) -> Answer:  # noqa: ANN401
        from pytest_torch import localize_divergence

        row = localize_divergence(right, wrong, inputs, leaf_only=leaf_only).first
        return Answer("" if row is None else str(row.name), is_narrow=False)

    return first


def main() -> None:
    """Print how many bugs each tool places."""
    if "--ports" in sys.argv:
        import ports

        ports.main([argument for argument in sys.argv[1:] if argument != "--ports"])
        return
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    bugs = [bug for bug in BUGS if IS_V5 or not bug.needs_v5]
    tools: dict[str, Callable[..., Answer]] = {
        "pytest-tfdebug": ours,
        "  golden of 64 kB": within_64_kb,
        "  by floors": by_floors,
        "  without names": without_names,
    }
    if find_spec("pytest_torch"):
        tools |= {
            "pytest-torch, leaves": pytest_torch(leaf_only=True),
            "pytest-torch, all": pytest_torch(leaf_only=False),
        }
    else:
        print("pytest-torch is not installed: pip install pytest-torch")
    print(f"{'of ' + str(len(bugs)) + ' bugs':24}  named  in three lines  named or inside", flush=True)
    for name, answer in tools.items():
        named, narrow, inside = 0, 0, 0
        for bug in bugs:
            right, inputs = build(bug.architecture)
            wrong = copy.deepcopy(right)
            bug.inject(wrong)
            path, is_line = answer(right, wrong, inputs, bug)
            named += path == bug.culprit
            narrow += path == bug.culprit and is_line
            inside += path == bug.culprit or path.startswith(f"{bug.culprit}.")
        print(f"{name:24}  {named:5}  {narrow:14}  {inside:15}", flush=True)


if __name__ == "__main__":
    main()

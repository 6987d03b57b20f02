"""How many real bugs are named: fixes from the history of libraries, reverted, and checked as users check.

The file as a commit left it is the reference; the file before is the port, with the same weights. Both run in a test of
pytest: ``tf_golden.check`` with the golden on disk and the reference at hand. CLONES is a folder with a clone of each
repository, ``x-transformers`` and so on; ``make fixes CLONES=...`` installs what they import, and runs this.

line        a line that the fix changed is named, on either side, in at most three lines or one statement
module      a module whose class the fix changed
unsure      another place, said to be uncertain
wrong       another place, with certainty
missed      no culprit
"""

from __future__ import annotations

import argparse
import ast
import collections.abc
import difflib
import importlib
import io
import multiprocessing
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import huggingface_hub
import huggingface_hub.constants
import numpy as np
import torch

import command

# isort: split
from as_checked import checked
from cases import Case
from judging import compared
from stubs import stubbed

import pytest_tfdebug
from disguise import disguised
from edits import head, is_narrow
from fixes import FIXES
from fixes.fix import Fix
from pytest_tfdebug.constructed import noted
from pytest_tfdebug.records import Culprit, SourceRange

_VERDICTS = ("line", "module", "unsure", "wrong", "missed", "error")
#: What older files import, and where it was.
_GONE = (
    (huggingface_hub, "cached_download", huggingface_hub.hf_hub_download),
    (huggingface_hub, "HfFolder", object),
    (huggingface_hub.constants, "hf_cache_home", huggingface_hub.constants.HF_HOME),
    (np, "VisibleDeprecationWarning", np.exceptions.VisibleDeprecationWarning),
    (np, "float", float),
    (np, "int", int),
    (collections, "Iterable", collections.abc.Iterable),
)
_SIX = ModuleType("torch._six")
_SIX.container_abcs = collections.abc  # type: ignore[attr-defined]


def _unpack(fix: Fix, revision: str, clones: Path, folder: Path) -> None:
    """Write the package of a revision into a folder of its own."""
    root, package = _root(fix)
    archive = subprocess.run(  # noqa: S603 - git of the person who runs this
        ["git", f"--git-dir={clones / fix.repository}", "archive", revision, root + package],  # noqa: S607
        check=True,
        capture_output=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as held:
        held.extractall(folder, filter="data")


def _root(fix: Fix) -> tuple[str, str]:
    """Return the folder in which a library's package lies, and its name."""
    root = "src/" if fix.file.startswith("src/") else ""
    return root, fix.file.removeprefix(root).partition("/")[0]


def _loaded(fix: Fix, folder: Path) -> Any:
    """Return the package in a folder, imported anew."""
    root, package = _root(fix)
    for name in [name for name in sys.modules if f"{name}.".startswith(f"{package}.")]:
        del sys.modules[name]
    importlib.invalidate_caches()
    sys.path.insert(0, str(folder / root))
    for module, name, stand_in in _GONE:
        setattr(module, name, stand_in)
    sys.modules["torch._six"] = _SIX
    with stubbed():
        return importlib.import_module(package)


class Pair(NamedTuple):
    """A fix as a pair of models, and the lines that it changed: of the port, and of the reference."""

    case: Case
    own: Path
    lines: set[int]
    reference: Path
    reference_lines: set[int]
    classes: set[str]


def pair_of(fix: Fix, clones: Path, folder: Path, *, is_disguised: bool = False) -> Pair:
    """Return the model before and after a fix, with the same weights; the former in other words, if asked."""
    places = {revision: folder / name for revision, name in ((f"{fix.commit}^", "before"), (fix.commit, "after"))}
    for revision, place in places.items():
        _unpack(fix, revision, clones, place)
    own, other = (place / fix.file for place in places.values())
    lines, reference_lines = changed_lines(own.read_text(), other.read_text())
    if is_disguised:
        told = disguised(own.read_text())
        own.write_text(told.text)
        lines = told.of(lines)
    models = {}
    for revision, place in places.items():
        package = _loaded(fix, place)
        torch.manual_seed(0)  # of the tables that are drawn
        with stubbed():  # what a package imports late
            model, inputs = fix.build(package)
        models[revision] = pytest_tfdebug.fill(model.eval(), seed=0)
    port, reference = models.values()
    own_shapes = {name: weight.shape for name, weight in port.named_parameters()}
    held = {name: weight for name, weight in reference.named_parameters() if weight.shape == own_shapes.get(name)}
    port.load_state_dict(held, strict=False)
    classes = {*_classes(own, lines), *_classes(other, reference_lines)}
    return Pair(Case(reference, port, (), inputs, (), inputs), own, lines, other, reference_lines, classes)


def changed_lines(before: str, after: str) -> tuple[set[int], set[int]]:
    """Return the numbers of the lines that differ on each side; of what one side lacks those around the place.

    Blank lines do not count.
    """
    one, other = before.splitlines(), after.splitlines()
    own, there = set[int](), set[int]()
    for tag, first, last, begin, end in difflib.SequenceMatcher(None, one, other, autojunk=False).get_opcodes():
        if tag != "equal" and "".join([*one[first:last], *other[begin:end]]).strip():
            own.update(range(first + 1, last + 1) if last > first else _around(one, first))
            there.update(range(begin + 1, end + 1) if end > begin else _around(other, begin))
    return own, there


def _around(lines: list[str], place: int) -> tuple[int, int]:
    """Return the numbers of the last line before a place, and of the first behind it, that are not blank."""
    before, after = place, place + 1
    while before > 1 and not lines[before - 1].strip():
        before -= 1
    while after < len(lines) and not lines[after - 1].strip():
        after += 1
    return before, after


def _classes(file: Path, lines: set[int]) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ClassDef) and any(node.lineno <= line <= (node.end_lineno or 0) for line in lines):
            yield node.name


def judged(culprit: Culprit | None, pair: Pair) -> str:
    """Return what a report is worth."""
    if culprit is None:
        return "missed"
    if _is_at(culprit.source, pair.own, pair.lines) or _is_at(culprit.reference, pair.reference, pair.reference_lines):
        return "line"
    named = dict(pair.case.port.named_modules()).get(culprit.path)
    kind = type(pair.case.port if named is None else named).__name__
    parent = dict(pair.case.port.named_modules()).get(culprit.path.rpartition(".")[0])
    if {kind, type(parent).__name__} & pair.classes:
        return "module"
    return "wrong" if culprit.certain else "unsure"


def _is_at(lines: SourceRange | None, file: Path, numbers: set[int]) -> bool:
    if lines is None or not is_narrow(lines) or Path(lines.file).name != file.name:
        return False
    return any(lines.first <= number <= lines.last for number in numbers)


def outcome(given: tuple[int, argparse.Namespace]) -> tuple[str, bool, str]:
    """Return the verdict on a fix, whether it is proved, and the report."""
    place, options = given
    settings = [] if options.seconds is None else ["-o", f"tf_explain_seconds={options.seconds}"]
    command.quiet()
    with tempfile.TemporaryDirectory() as folder:
        try:
            pair = pair_of(FIXES[place], options.clones, Path(folder), is_disguised=options.disguised)
            report = compared(pair.case) if options.traces else checked(pair.case, *settings)
            culprit = report.culprit
            return judged(culprit, pair), culprit is not None and bool(culprit.proved), str(report)
        except Exception as error:  # noqa: BLE001 - whatever is raised is the outcome
            return "error", False, f"{type(error).__name__}: {error}"


def main() -> None:
    """Print the table."""
    parser = command.parser(__doc__, "only", "show", "traces")
    parser.add_argument("clones", type=Path, help="folder with a clone of each repository")
    parser.add_argument("--seconds", help="tf_explain_seconds of the check")
    parser.add_argument(
        "--disguised", action="store_true", help="give the port's local variables other names, and another layout"
    )
    options = parser.parse_args()
    table = command.Table("fix", "bugs", *_VERDICTS, "proved", "s each")
    # two packages of one name each; modules are made as those of a test are
    with noted(), multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as fresh:
        for place, fix in enumerate(FIXES):
            if options.only and fix.commit not in options.only and fix.repository not in options.only:
                continue
            begun = time.monotonic()
            verdict, is_proved, told = fresh.apply(outcome, ((place, options),))
            if options.show and verdict != "line":
                print(f"{fix.repository} {fix.commit}: {verdict.upper()}\n{head(told, 16)}", flush=True)
            counts = {"bugs": 1, verdict: 1, "proved": int(is_proved), "s each": time.monotonic() - begun}
            table.add(f"{fix.repository} {fix.commit}", counts)
    table.total()


if __name__ == "__main__":
    main()

"""Random edits of lines that run, and what the reports on them are worth: one judge.

The edits are those of ``pytest --tf-certify``. Those that raise, or change no output, are passed over.

line        the edited line is named, in at most three lines or one statement
use         a line that uses the number, shape or tensor to which the edited line gives a name
reference   a line of the reference that computes what the edited line computed before
module      a module that runs the edited line, or one that it calls or calls no more
unsure      another place, said to be uncertain
wrong       another place, with certainty
missed      no culprit
proved      of all of these, those with a proof
alarm       the model without an edit is called wrong
"""

from __future__ import annotations

import argparse
import ast
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

import command

# isort: split
from as_checked import checked
from editing import EditedFile
from judging import compared, seeded

from pytest_tfdebug import Trace
from pytest_tfdebug.certify.edits import LineEdit, edits_of
from pytest_tfdebug.records import Culprit, SourceRange
from pytest_tfdebug.tracing.values.slicing import is_statement

#: A range of so many lines, or of one statement, names a line.
_NARROW = 3
VERDICTS = ("line", "use", "reference", "module", "unsure", "wrong", "missed", "error")
#: A file and a line.
Place = tuple[str, int]


class Subject(NamedTuple):
    """A port that is edited, and the lines that it runs: by module, with the paths of the modules that run each."""

    port: Any  # as tests/ports has it: it is built from modules that are imported anew
    case: Any  # the port without an edit beside its reference
    lines: dict[str, dict[int, set[str]]]
    draw: random.Random
    is_changed: Callable[[Any], bool]  # whether an output of a pair of models differs
    places: Callable[[LineEdit, Any], set[Place]]  # the reference's lines for an edit, which a pair of models has


def measure(subjects: Iterable[Subject], options: argparse.Namespace) -> None:
    """Edit each of some ports ``--edits`` times, and print how the reports are judged."""
    hold = compared if options.traces else checked
    table = command.Table("edits of", "bugs", *VERDICTS, "proved", "alarm", "s each")
    for subject in subjects:
        name, begun, counts = subject.port.name, time.monotonic(), Counter[str]()
        clean = hold(subject.case)
        if clean.culprit is not None:
            counts["alarm"] += 1
            print(f"{name}: ALARM without an edit\n{clean}", flush=True)
        for edit, before, edited, case in infected(subject, options.edits):
            culprit: Culprit | None = None
            try:
                report = hold(case)
                culprit, told = report.culprit, str(report)
                verdict = judged(culprit, subject, edit, edited, case)
            except Exception as error:  # noqa: BLE001 - whatever is raised is the outcome
                verdict, told = "error", f"{type(error).__name__}: {error}"
            counts.update(["bugs", verdict])
            counts["proved"] += culprit is not None and bool(culprit.proved)
            if options.show and verdict != "line":
                print(f"{name}: {verdict.upper()}: {edit.file}:{edit.line}: {before}  ->  {edit.text.strip()}")
                print(head(told, 14), flush=True)
        table.add(name, {**counts, "s each": (time.monotonic() - begun) / max(counts["bugs"], 1)})
    table.total()


def infected(subject: Subject, count: int) -> Iterator[tuple[LineEdit, str, Any, Any]]:
    """Yield so many random edits of different lines: what was there, the edited file, and both models."""
    texts = {name: Path(sys.modules[name].__file__ or "").read_text(encoding="utf-8") for name in sorted(subject.lines)}
    edits = [each for name, text in texts.items() for each in edits_of(text, subject.lines[name], name)]
    subject.draw.shuffle(edits)
    used: set[Place] = set()
    for edit in edits:
        if len(used) == count:
            return
        if (edit.file, edit.line) in used:  # another edit of a line that was judged says little more
            continue
        text = texts[edit.file]
        lines = text.splitlines()
        before, lines[edit.line - 1] = lines[edit.line - 1].strip(), edit.text
        try:
            new = "\n".join(lines) + "\n"
            edited = EditedFile(edit.file, text, new, after="", reloaded=subject.port.reloaded)
            with edited.in_place():
                case = seeded(subject.port)
            is_changed = subject.is_changed(case)
        except Exception:  # noqa: BLE001, S112 - most wrong lines do not run at all
            continue
        if is_changed:
            used.add((edit.file, edit.line))
            yield edit, before, edited, case


def judged(culprit: Culprit | None, subject: Subject, edit: LineEdit, edited: Any, case: Any) -> str:
    """Return what a report on a pair of models is worth."""
    if culprit is None:
        return "missed"
    if names(culprit.source, edited.path, {edit.line, *edited.lines}):
        return "line"
    if names(culprit.source, edited.path, uses_of(edited.path, edit.line)):
        return "use"
    if any(names(culprit.reference, file, {number}) for file, number in subject.places(edit, case)):
        return "reference"
    caller = culprit.path.rpartition(".")[0] if culprit.kind in ("not-called", "extra-call") else culprit.path
    if subject.lines[edit.file][edit.line].intersection((culprit.path, caller)):
        return "module"
    return "wrong" if culprit.certain else "unsure"


def uses_of(path: Path, line: int) -> set[int]:
    """Return the lines of a function that read a name to which one of its lines gives a value."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    around = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and _holds(node, line)]
    inner = list(ast.walk(around[-1])) if around else []
    given = {
        name.id
        for node in inner
        if isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign)) and _holds(node, line)
        for name in ast.walk(node)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }
    return {
        node.lineno
        for node in inner
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in given and node.lineno > line
    }


def _holds(node: ast.stmt, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def lines_of(package: str, make: Callable[[], Any]) -> dict[str, dict[int, set[str]]]:
    """Return which lines of a package run while a port is made and called, by module, and the paths that run each.

    A line that makes a module is one of all modules within it.
    """
    files = {
        str(getattr(module, "__file__", "")): name
        for name, module in list(sys.modules.items())
        if f"{name}.".startswith(f"{package}.")
    }
    seen: dict[str, dict[int, set[tuple[int, bool]]]] = {}

    def traced(frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            lines = seen.setdefault(files[frame.f_code.co_filename], {})
            lines.setdefault(frame.f_lineno, set()).add(_owner(frame))
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        case = make()
        case.port_output()
    finally:
        sys.settrace(before)
    model = case.port
    paths = {id(module): path for path, module in model.named_modules()}

    def owned(owners: set[tuple[int, bool]]) -> set[str]:
        own = {(paths[owner], is_made) for owner, is_made in owners if owner in paths}
        inside = {path for path in paths.values() if any(made and path.startswith(f"{at}.") for at, made in own)}
        return {path or type(model).__name__ for path in {*inside, *(path for path, _ in own)}}

    return {name: {line: owned(owners) for line, owners in lines.items()} for name, lines in seen.items()}


def _owner(frame: FrameType | None) -> tuple[int, bool]:
    """Return the module whose method is under way, and whether it is being made."""
    while frame is not None and not isinstance(frame.f_locals.get("self"), torch.nn.Module):
        frame = frame.f_back
    return (0, False) if frame is None else (id(frame.f_locals["self"]), frame.f_code.co_name == "__init__")


def is_narrow(lines: SourceRange | None) -> bool:
    """Tell whether a range names a line: it has three at most, or is one statement."""
    return lines is not None and (lines.last - lines.first < _NARROW or is_statement(lines))


def names(lines: SourceRange | None, file: object, numbers: Collection[int]) -> bool:
    """Tell whether a report names one of these lines of a file."""
    if lines is None or lines.file != str(file) or not is_narrow(lines):
        return False
    return any(lines.first <= number <= lines.last for number in numbers)


def head(text: str, lines: int) -> str:
    """Return the first lines of a report, indented."""
    return "\n".join(f"      {line}" for line in text.splitlines()[:lines])


def without_names(actual: Trace) -> Trace:
    """Return a trace in which all modules but the root have other names."""
    root = actual.calls[0].path
    return replace(
        actual,
        calls=[call if call.path == root else replace(call, path=disguised(call.path)) for call in actual.calls],
        modules=tuple(map(disguised, actual.modules)),
        aliases={disguised(path): tuple(map(disguised, others)) for path, others in actual.aliases.items()},
        unrecorded=tuple(map(disguised, actual.unrecorded)),
    )


def disguised(path: str) -> str:
    """Return a module path in which each name is spelt backwards; numbers stay."""
    return ".".join(part if part.isdigit() else f"x{part[::-1]}" for part in path.split("."))

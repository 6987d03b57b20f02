"""Random edits of lines that run, and what the reports on them are worth: one mutator and one judge.

An edit changes an operator, a sign, a flag or a number, leaves out an operand, an argument, a method or a whole
statement, or swaps two arguments. It stays on its line. Edits that raise, or change no output, are passed over.

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
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch

import command
from pytest_tfdebug import Trace
from pytest_tfdebug.records import Culprit, SourceRange
from pytest_tfdebug.tracing.values.slicing import is_statement

#: Relative L2 difference of an output from which an edit is a bug.
DIFFERS = 1e-4
_OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
_COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
#: A range of so many lines, or of one statement, names a line.
_NARROW = 3
VERDICTS = ("line", "use", "reference", "module", "unsure", "wrong", "missed", "error")
#: A file and a line.
Place = tuple[str, int]
#: File -> line -> the modules that ran it, by identity, and whether they were being made.
Ran = dict[str, dict[int, set[tuple[int, bool]]]]


class Edit(NamedTuple):
    """A line of a file, from 1, and the text that takes its place."""

    line: int
    text: str
    file: str = ""

    def of(self, text: str) -> str:
        """Return the text of the file with this edit."""
        lines = text.splitlines()
        lines[self.line - 1] = self.text
        return "\n".join(lines) + "\n"

    def told(self, text: str) -> str:
        """Return the line before and after the edit."""
        return f"{self.file}:{self.line}: {text.splitlines()[self.line - 1].strip()}  ->  {self.text.strip()}"


def edits_of(text: str, ran: Collection[int], file: str = "") -> Iterator[Edit]:
    """Yield every edit of the lines that ran."""
    lines = text.splitlines()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    for function in (function for function in functions if function.name != "_init_weights"):
        for node in (inner for statement in function.body for inner in ast.walk(statement)):
            where: Any = node
            number = getattr(node, "lineno", 0)
            if number not in ran or number != getattr(node, "end_lineno", None):
                continue
            line = lines[number - 1].encode()
            for new in _changed(node, lambda part: ast.get_source_segment(text, part) or ""):
                edited = (line[: where.col_offset] + new.encode() + line[where.end_col_offset :]).decode()
                if edited.strip() != lines[number - 1].strip():
                    yield Edit(number, edited, file)


def _changed(node: ast.AST, text: Callable[[ast.AST], str]) -> Iterator[str]:
    """Yield what may stand in the place of a node."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        yield f"({text(node.left)} {_OPERATORS[type(node.op)]} {text(node.right)})"
        yield f"({text(node.left)})"
    elif isinstance(node, ast.UnaryOp):
        yield f"({text(node.operand)})"
    elif isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        yield repr(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARISONS:
        yield f"({text(node.left)} {_COMPARISONS[type(node.ops[0])]} {text(node.comparators[0])})"
    elif isinstance(node, ast.Call):
        given = [text(part) for part in (*node.args, *node.keywords)]
        if isinstance(node.func, ast.Attribute) and text(node.func.value) not in ("self", "torch", "nn"):
            yield text(node.func.value)
        if len(node.args) > 1:
            yield f"{text(node.func)}({', '.join([given[1], given[0], *given[2:]])})"
        for place in range(len(node.args), len(given)):
            yield f"{text(node.func)}({', '.join(given[:place] + given[place + 1 :])})"
    elif isinstance(node, (ast.Assign, ast.AugAssign)):
        yield "pass"


class Wrong(NamedTuple):
    """A model with an edit: its file, what is changed there, the report on it, and the reference's lines for it."""

    path: Path
    lines: frozenset[int]
    compare: Callable[[], Any]
    places: Callable[[], set[Place]]


class Subject(NamedTuple):
    """What is edited: the lines that run, by file, with the paths of the modules that run them."""

    name: str
    texts: dict[str, str]
    lines: dict[str, dict[int, set[str]]]
    infect: Callable[[Edit], Wrong | None]  # None where no output changes
    compare: Callable[[], Any]  # the report on the model without an edit
    draw: random.Random


def measure(subjects: Iterable[Subject], options: argparse.Namespace) -> None:
    """Edit each of some models ``--edits`` times, and print how the reports are judged."""
    table = command.Table("edits of", "bugs", *VERDICTS, "proved", "alarm", "s each")
    for subject in subjects:
        begun, counts = time.monotonic(), Counter[str]()
        clean = subject.compare()
        if clean.culprit is not None:
            counts["alarm"] += 1
            print(f"{subject.name}: ALARM without an edit\n{clean}", flush=True)
        found = [each for name, text in subject.texts.items() for each in edits_of(text, subject.lines[name], name)]
        for edit, wrong in infected(found, options.edits, subject.draw, subject.infect):
            culprit: Culprit | None = None
            try:
                report = wrong.compare()
                culprit, told = report.culprit, str(report)
                verdict = judged(culprit, wrong, edit.line, subject.lines[edit.file][edit.line])
            except Exception as error:  # noqa: BLE001 - whatever is raised is the outcome
                verdict, told = "error", f"{type(error).__name__}: {error}"
            counts[verdict] += 1
            counts["proved"] += culprit is not None and bool(culprit.proved)
            if options.show and verdict != "line":
                print(f"{subject.name}: {verdict.upper()}: {edit.told(subject.texts[edit.file])}")
                print(head(told, 14), flush=True)
        bugs = sum(counts[verdict] for verdict in VERDICTS)
        table.add(subject.name, {**counts, "bugs": bugs, "s each": (time.monotonic() - begun) / max(bugs, 1)})
    table.total()


def judged(culprit: Culprit | None, wrong: Wrong, line: int, owners: set[str]) -> str:
    """Return what a report is worth; ``owners`` are the modules that run the edited line."""
    if culprit is None:
        return "missed"
    if names(culprit.source, wrong.path, {line, *wrong.lines}):
        return "line"
    if names(culprit.source, wrong.path, uses_of(wrong.path, line)):
        return "use"
    if any(names(culprit.reference, file, {number}) for file, number in wrong.places()):
        return "reference"
    caller = culprit.path.rpartition(".")[0] if culprit.kind in ("not-called", "extra-call") else culprit.path
    if owners.intersection((culprit.path, caller)):
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


def infected(
    edits: list[Edit], count: int, draw: random.Random, infect: Callable[[Edit], Any]
) -> Iterator[tuple[Edit, Any]]:
    """Yield so many random edits of different lines, each with the model that has it."""
    draw.shuffle(edits)
    used: set[tuple[str, int]] = set()
    for edit in edits:
        if len(used) == count:
            return
        if (edit.file, edit.line) in used:  # another edit of a line that was judged says little more
            continue
        try:
            wrong = infect(edit)
        except Exception:  # noqa: BLE001, S112 - most wrong lines do not run at all
            continue
        if wrong is not None:
            used.add((edit.file, edit.line))
            yield edit, wrong


@contextmanager
def watched(files: Collection[str]) -> Iterator[Ran]:
    """Note which lines of these files run in a block, and the module whose method runs each."""
    seen: Ran = {}

    def traced(frame: FrameType, event: str, _argument: object) -> Any:
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            seen.setdefault(frame.f_code.co_filename, {}).setdefault(frame.f_lineno, set()).add(_owner(frame))
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        yield seen
    finally:
        sys.settrace(before)


def owned(ran: dict[int, set[tuple[int, bool]]], model: torch.nn.Module) -> dict[int, set[str]]:
    """Return of lines that ran the paths of the modules that ran each; all within one that was being made."""
    named = {id(module): path for path, module in model.named_modules()}
    lines = {}
    for line, owners in ran.items():
        paths = {(named[owner], is_made) for owner, is_made in owners if owner in named}
        inside = {path for path in named.values() if any(made and path.startswith(f"{at}.") for at, made in paths)}
        lines[line] = {path or type(model).__name__ for path in {*inside, *(path for path, _ in paths)}}
    return lines


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

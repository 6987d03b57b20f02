"""One mutator for all scripts: random edits of lines that run, and what a report on one is worth.

An edit changes an operator, a sign, a flag or a number, leaves out an operand, an argument, a method or a whole
statement, or swaps two arguments. It stays on its line.
"""

from __future__ import annotations

import ast
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.tracing.values.slicing import is_statement

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Collection, Iterator
    from types import FrameType

    from pytest_tfdebug.records import SourceRange

#: Relative L2 difference of an output from which an edit is a bug.
DIFFERS = 1e-4
_OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
_COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}
#: A range of so many lines, or of one statement, names a line.
_NARROW = 3
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


def edits_of(text: str, ran: Collection[int], file: str = "", within: str = "") -> Iterator[Edit]:
    """Yield every edit of the lines that ran; of functions of one name only, where ``within`` says so."""
    lines = text.splitlines()
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        if function.name == "_init_weights" or (within and function.name != within):
            continue
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

    def traced(frame: FrameType, event: str, _argument: object) -> Any:  # noqa: ANN401 - a trace function
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

"""Changes of single places of a file of code, as mistakes are made: on its line, in the text.

A change is of an operator, a sign, a flag or a number, leaves out an operand, an argument, a method or a whole
statement, or swaps two arguments.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_OPERATORS = {ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*"}
_COMPARISONS = {ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="}


class LineEdit(NamedTuple):
    """A line of a module's file, from 1, and the text that takes its place."""

    file: str
    line: int
    text: str


def edits_of(text: str, ran: Collection[int], file: str) -> Iterator[LineEdit]:
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
                    yield LineEdit(file, number, edited)


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

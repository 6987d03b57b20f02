"""What the source says of a test: whether its body does anything, and whether it always skips."""

from __future__ import annotations

import ast
import tokenize
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import CodeType

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: Functions and errors that skip the test that calls or raises them.
_SKIPPING = frozenset({"skip", "skipTest", "SkipTest"})
#: Statements whose block is entered always, and those that decide whether it is.
_ENTERED = (ast.With, ast.AsyncWith, ast.Try)
_DECIDING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Match)


def definition(code: CodeType) -> Function | None:
    """Return the ``def`` of a function; None where its source cannot be read."""
    found = _definitions(code.co_filename).get((code.co_name, code.co_firstlineno))
    return None if isinstance(found, ast.ClassDef) else found


@cache
def _definitions(file: str) -> dict[tuple[str, int], Function | ast.ClassDef]:
    """Return every function and class of a file by its name and first line, that of its first decorator."""
    nodes = (node for node in ast.walk(_module(file)) if isinstance(node, _DEFINITIONS))
    return {(node.name, (node.decorator_list[0] if node.decorator_list else node).lineno): node for node in nodes}


def lines_of(code: CodeType) -> range:
    """Return the lines of a function, decorators included."""
    function = definition(code)
    return range(0) if function is None else range(code.co_firstlineno, (function.end_lineno or 0) + 1)


def does_nothing(code: CodeType) -> bool:
    """Tell whether a function's body holds no more than a docstring, ``pass`` and skips."""
    function = definition(code)
    return function is not None and all(map(_is_nothing, function.body))


def _is_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Return):
        return statement.value is None or isinstance(statement.value, ast.Constant)
    skip = statement.value if isinstance(statement, ast.Expr) else getattr(statement, "exc", None)
    is_skip = isinstance(skip, (ast.Call, ast.Name, ast.Attribute)) and _last_name(skip) in _SKIPPING
    return is_skip or isinstance(skip, ast.Constant) or isinstance(statement, ast.Pass)


def is_always_reached(code: CodeType, line: int) -> bool:
    """Tell whether a function that gets as far as a line runs it whatever its conditions and loops do."""
    function = definition(code)
    block: list[ast.stmt] = [] if function is None else function.body
    while True:
        found = next((each for each in block if each.lineno <= line <= (each.end_lineno or 0)), None)
        if not isinstance(found, _ENTERED):
            return found is not None and not isinstance(found, _DECIDING)
        block = found.body


def condition_at(file: str, line: int, names: Iterable[str]) -> str:
    """Return the condition of the call of one of these names that begins on a line; empty where there is none."""
    calls = (node for node in ast.walk(_module(file)) if isinstance(node, ast.Call) and node.lineno == line)
    found = (ast.unparse(node.args[0]) for node in calls if node.args and _last_name(node) in names)
    return next(found, "")


def _last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name, called or not."""
    node = node.func if isinstance(node, ast.Call) else node
    return str(getattr(node, "attr", None) or getattr(node, "id", ""))


@cache
def _module(file: str) -> ast.Module:
    """Return the syntax of a file; empty where it cannot be read."""
    try:
        with tokenize.open(file) as stream:
            return ast.parse(stream.read())
    except (OSError, SyntaxError, UnicodeError):
        return ast.Module([], [])

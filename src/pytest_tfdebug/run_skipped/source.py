"""What the source says of a test: whether its body does anything, what a skip depends on."""

from __future__ import annotations

import ast
import tokenize
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from types import CodeType

Function: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef"
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
#: Functions and errors that skip the test that calls or raises them.
_SKIPPING = frozenset({"skip", "skipTest", "SkipTest"})
#: The fields that hold a block of statements, and the blocks that are surely entered.
_BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")
_ALWAYS = frozenset(
    {("With", "body"), ("AsyncWith", "body"), ("Try", "body"), ("Try", "finalbody")}
    | {("ExceptHandler", "body"), ("match_case", "body")}  # whose conditions are those of their ``try`` and ``match``
)


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


def guards(code: CodeType, line: int) -> list[str] | None:
    """Return the conditions under which a line of a function is reached, the outermost first; None if not known."""
    function = definition(code)
    return None if function is None else list(_guards(function.body, line))


def _guards(block: Iterable[ast.AST], line: int) -> Iterator[str]:
    for node in block:
        for name in _BLOCKS:
            inner = getattr(node, name, None)
            if inner and inner[0].lineno <= line <= inner[-1].end_lineno:
                if (type(node).__name__, name) not in _ALWAYS:
                    yield _text(node, inner, line)
                yield from _guards(inner, line)
                return


def _text(node: ast.AST, block: list[ast.AST], line: int) -> str:
    """Return the condition under which a block of a compound statement is entered."""
    if isinstance(node, (ast.If, ast.While)):
        test = ast.unparse(node.test)
        return test if block is node.body else f"not ({test})"
    inside = next(part for part in block if part.lineno <= line <= (part.end_lineno or 0))  # type: ignore[attr-defined]
    return ast.unparse(inside if isinstance(inside, ast.ExceptHandler) else node).partition("\n")[0].rstrip(":")


def condition_at(file: str, line: int, names: Iterable[str]) -> str:
    """Return the condition of the call of one of these names that begins on a line; empty where there is none."""
    calls = (node for node in ast.walk(_module(file)) if isinstance(node, ast.Call) and node.lineno == line)
    found = (ast.unparse(node.args[0]) for node in calls if node.args and _last_name(node) in names)
    return next(found, "")


def decorator_at(file: str, line: int) -> str:
    """Return the decorator that begins on a line, as it stands there."""
    found = (each for node in _definitions(file).values() for each in node.decorator_list if each.lineno == line)
    return next(map(ast.unparse, found), "")


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

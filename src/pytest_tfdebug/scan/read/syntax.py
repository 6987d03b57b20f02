"""Source read by libcst, each different text once, and what can be read off a node alone.

Positions are never asked for: they would triple the time, and the outline knows the lines.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import libcst as cst

from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.read.outline import blank, depths, squeeze

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Names and signs without a comma, brackets in brackets, and characters of a statement that libcst is given. A chain
#: of operators takes it quadratic time, nested brackets cubic time, and longer ones more stack than there is.
_LONGEST_CHAIN, _DEEPEST, _LONGEST = 3000, 100, 200_000
#: Branches of one statement, each of which takes stack.
_BRANCHES = 3000
_CONSTANTS = {"True": True, "False": False, "None": None}
_MODULE = cst.Module([])


class Unknown:
    """The value of an expression that the source does not decide."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        raise TypeError("an unknown value has no truth")


UNKNOWN = Unknown()


class Argument(NamedTuple):
    """An argument of a call: its keyword, ``*``, ``**`` or nothing, and its value."""

    keyword: str
    value: Any


def parse(text: str) -> Any:
    """Return the libcst module of a text whose statements have a checked size; BadSourceError if it is not Python."""
    if text.count("elif") > _BRANCHES:
        raise BadSourceError("more branches than can be read")
    with _told(lambda error: f"line {error.raw_line}: invalid syntax"):
        return cst.parse_module(text)


@contextmanager
def _told(syntax: Callable[[Any], str]) -> Iterator[None]:
    """Turn what libcst raises into a BadSourceError."""
    try:
        yield
    except cst.ParserSyntaxError as error:
        raise BadSourceError(syntax(error)) from error
    except (RecursionError, MemoryError, ValueError) as error:
        raise BadSourceError(f"cannot be read: {error}") from error


@cache
def expression(text: str) -> Any:
    """Return the libcst node of an expression's source, or raise as :func:`parse` does."""
    check_size(text)
    with _told(lambda _: f"invalid syntax: {squeeze(text)[:80]}"):
        if "\n" not in text and "#" not in text:
            with suppress(cst.ParserSyntaxError):  # such as a ``yield``, which only stands in brackets
                return cst.parse_expression(text)
        node = cst.parse_expression(f"({text}\n)")
        return node.with_changes(lpar=node.lpar[1:], rpar=node.rpar[:-1])


@cache
def statement(text: str) -> Any:
    """Return the libcst node of the one statement that a text is, or raise as :func:`parse` does."""
    check_size(text)
    body = parse(text).body
    if len(body) != 1:
        raise BadSourceError(f"invalid syntax: {squeeze(text)[:80]}")
    return body[0]


def definition(lines: list[str]) -> Any:
    """Return the libcst node of a function from its logical lines, indented or not, or raise as :func:`parse` does."""
    for line in lines:
        check_size(line)
    text = "\n".join(lines)
    body = parse(f"if 1:\n{text}\n" if text[:1].isspace() else f"{text}\n").body
    node = body[0].body.body[0] if isinstance(body[0], cst.If) else body[0]
    if not isinstance(node, cst.FunctionDef):
        raise BadSourceError("invalid syntax: no function")
    return node


def check_size(text: str) -> None:
    """Raise BadSourceError for a statement, or the header of one, that would take libcst too much time or stack."""
    if len(text) > _LONGEST:
        raise BadSourceError(f"a statement of {len(text):,} characters")
    if len(text) > _LONGEST_CHAIN:
        # of f-strings the placeholders are read too
        has_f_string = "{" in text and any(prefix + quote in text for prefix in "fFtTrR" for quote in "\"'")
        if any(map(_is_chain, (text if has_f_string else blank(text)).split(","))):
            raise BadSourceError("an expression of more operators than can be read")
    if sum(map(text.count, "([{")) > _DEEPEST and depths(text.encode(errors="replace"))[1] > _DEEPEST:
        raise BadSourceError("too many nested parentheses")


def _is_chain(text: str) -> bool:
    """Tell whether text has more operators, names and brackets than libcst is given."""
    words = "".join(mark if mark.isalnum() or mark == "_" else " " for mark in text)
    signs = sum(not (mark.isspace() or mark.isalnum() or mark == "_") for mark in text)
    return len(text) > _LONGEST_CHAIN and len(words.split()) + signs > _LONGEST_CHAIN


@cache
def code(node: Any) -> str:
    """Return a node's source on one line, with the brackets around it."""
    is_bare = isinstance(node, cst.Name) and not node.lpar
    return str(node.value) if is_bare else squeeze(_MODULE.code_for_node(node))


@cache
def source(node: Any) -> str:
    """Return a node's source on one line, without the brackets around it."""
    if getattr(node, "lpar", ()) and not isinstance(node, (cst.Tuple, cst.GeneratorExp)):
        return code(node.with_changes(lpar=(), rpar=()))
    return code(node)


@cache
def dotted(node: Any) -> str:
    """Return ``a.b.c`` for a name or attributes of one, and nothing for any other node."""
    if type(node) is cst.Name:
        return "" if node.value in _CONSTANTS else str(node.value)
    parts: list[str] = []
    while isinstance(node, cst.Attribute):
        parts.append(node.attr.value)
        node = node.value
    if not isinstance(node, cst.Name) or node.value in _CONSTANTS:
        return ""
    return ".".join([node.value, *reversed(parts)])


@cache
def constant(node: Any) -> Any:
    """Return the value of a literal, or ``UNKNOWN``."""
    if isinstance(node, cst.Name):
        return _CONSTANTS.get(node.value, UNKNOWN)
    if isinstance(node, (cst.SimpleString, cst.Integer, cst.Float)):
        return _evaluated(node)
    if isinstance(node, cst.Ellipsis):
        return ...
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        value = constant(node.expression)
        return -value if isinstance(value, (int, float)) else UNKNOWN
    if isinstance(node, (cst.ConcatenatedString, cst.FormattedString)):
        parts = text_parts(node)
        if len(parts) == 1 and not isinstance(parts[0], cst.FormattedStringExpression):
            return parts[0]
    return UNKNOWN


def _evaluated(node: Any) -> Any:
    try:
        return node.evaluated_value
    except (ValueError, SyntaxError, MemoryError):  # such as a number of more digits than Python reads
        return UNKNOWN


@cache
def text_parts(node: Any) -> list[Any]:
    """Return the parts of a string: constants, neighbours made one, and placeholders of f-strings."""
    parts: list[Any] = []
    for part in _flat_parts(node):
        if parts and type(part) is type(parts[-1]) and isinstance(part, (str, bytes)):
            parts[-1] += part
        elif part != "" or not parts:
            parts.append(part)
    return parts


def _flat_parts(node: Any) -> list[Any]:
    if isinstance(node, cst.ConcatenatedString):
        return [*_flat_parts(node.left), *_flat_parts(node.right)]
    if not isinstance(node, cst.FormattedString):
        return [_evaluated(node)]
    found: list[Any] = [""]
    for part in node.parts:
        if isinstance(part, cst.FormattedStringExpression):
            found.append(part)
            continue
        text = str(part.value).replace("{{", "{").replace("}}", "}")
        if "\\" in text and "r" not in node.prefix.lower():
            quoted = text.replace('"', '\\"') if '\\"' not in text else text
            text = _evaluated(cst.SimpleString(f'"""{quoted}"""'))
        found.append(text)
    return found


@cache
def arguments(node: Any) -> list[Argument]:
    """Return the arguments of a call."""
    return [Argument(arg.keyword.value if arg.keyword else arg.star, arg.value) for arg in node.args]


@cache
def operands(node: Any) -> list[Any]:
    """Return what the ``and`` or ``or`` of a node joins."""
    found, kind = [], type(node.operator)
    while True:
        found.append(node.right)
        left = node.left
        if not isinstance(left, cst.BooleanOperation) or type(left.operator) is not kind or left.lpar:
            return [left, *reversed(found)]
        node = left


def suites(node: Any) -> Iterator[Any]:
    """Yield the suites of a compound statement, in order."""
    if isinstance(node, cst.Match):
        yield from (case.body for case in node.cases)
        return
    yield node.body
    yield from (handler.body for handler in getattr(node, "handlers", ()))
    orelse = getattr(node, "orelse", None)
    while orelse is not None:
        yield orelse.body
        orelse = getattr(orelse, "orelse", None)
    if getattr(node, "finalbody", None) is not None:
        yield node.finalbody.body


def walk(node: Any) -> Iterator[Any]:
    """Yield a node and all that is in it; ``libcst.matchers`` would take longer to import than this ever runs."""
    left = [node]
    while left:
        node = left.pop()
        yield node
        left.extend(node.children)


def mentions(node: Any, *names: str) -> bool:
    """Tell whether one of some names stands anywhere in a node."""
    return any(isinstance(found, cst.Name) and found.value in names for found in walk(node))


#: Expressions whose source says little in a condition, so that it is left out.
_OPAQUE = (
    cst.BinaryOperation, cst.BooleanOperation, cst.Comparison, cst.ConcatenatedString, cst.Dict, cst.FormattedString,
    cst.IfExp, cst.Lambda, cst.List, cst.Set, cst.Subscript, cst.Tuple,
)  # fmt: skip


@cache
def describe(node: Any) -> str:
    """Return the text that stands for an expression whose value is not known."""
    if isinstance(node, cst.Call):
        return f"{describe(node.func)}({', '.join(source(arg.value) for arg in node.args)})"
    if isinstance(node, cst.Attribute):
        return dotted(node) or f"{describe(node.value)}.{node.attr.value}"
    if isinstance(node, cst.Dict) and any(isinstance(item, cst.StarredDictElement) for item in node.elements):
        return source(node)
    is_not = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not)
    if isinstance(node, _OPAQUE) or is_not or constant(node) is not UNKNOWN:
        return "..."
    return source(node)

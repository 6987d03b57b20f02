"""The meaning of expressions, read by Python's own parser.

Loading libcst takes a third of the time that a whole scan may take, so it reads only what this gives up on: syntax
newer than the running Python, and text whose source cannot be told from its tree. It must say exactly what
:func:`~pytest_tfdebug.scan.syntax.parse` says.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from keyword import iskeyword
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.scan.facts import squeeze
from pytest_tfdebug.scan.lexer import DOTTED, PLAIN, SHORT
from pytest_tfdebug.scan.syntax import join

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.scan.syntax import Expr

_OPERATORS: dict[type[ast.AST], str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.MatMult: "@",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.Is: "is", ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in",
}  # fmt: skip


_NOTHING: dict[str, Expr] = {"()": ("tuple", ()), "[]": ("list", ()), "{}": ("dict", ()), "None": ("const", None)}


class _BeyondError(Exception):
    """The expression is left to libcst."""


def _plain(text: str) -> Expr | None:
    """Return the meaning of a name, of a string, or of a call of a name with one string, which most expressions are."""
    if SHORT.fullmatch(text):
        return ("const", text[1:-1])
    found = PLAIN.fullmatch(text)
    if found is None or iskeyword(found.group(1)):
        return None
    name, keyword, quoted = found.groups()
    function = ("ref", name)
    if quoted is None:
        return function
    value = "".join([part[1:-1] for part in SHORT.findall(quoted)])
    return ("call", function, ((keyword or "", ("const", value), squeeze(quoted)),))


@cache  # compiled where it is asked for
def _choices() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Return what most attributes of a test class look like, and what a string for a name in them does."""
    item = rf"{SHORT.pattern}\s*:\s*{DOTTED}"
    names = rf"\(\s*(?P<names>{DOTTED}(?:\s*,\s*{DOTTED})*\s*,?)\s*\)"
    items = rf"\{{\s*(?P<items>{item}(?:\s*,\s*{item})*)\s*,?\s*\}}"
    choice = rf"\s+if\s+(?P<call>{DOTTED})\(\)\s+else\s+(?P<nothing>\(\)|\[\]|\{{\}}|None)"
    return re.compile(rf"(?:{names}|{items}){choice}"), re.compile(rf"({SHORT.pattern})\s*:\s*({DOTTED})")


def _choice(text: str) -> Expr | None:
    """Return the meaning of ``(BertModel, BertForMaskedLM) if is_torch_available() else ()``, or of its like."""
    if "else" not in text:
        return None
    choice, pair = _choices()
    found = choice.fullmatch(text) or choice.fullmatch(text[1:-1].strip() if text[:1] == "(" else "")
    if found is None:
        return None
    pairs = pair.findall(found["items"] or "")
    names = [name.strip() for name in (found["names"] or "").split(",")]
    if any(map(iskeyword, [*names, *(name for _, name in pairs), found["call"]])):
        return None
    refs = tuple([("ref", name) for name in names if name])
    body: Expr = ("dict", tuple([(("const", key[1:-1]), ("ref", name)) for key, name in pairs]))
    if refs:
        body = ("tuple", refs) if len(names) > 1 else refs[0]
    return ("if", ("call", ("ref", found["call"]), ()), body, _NOTHING[found["nothing"]])


def quick(text: str) -> Expr | None:
    """Return the meaning of an expression, or None where it takes libcst to tell."""
    plain = _plain(text) or _choice(text)
    if plain is not None:
        return plain
    bracketed = f"({text}\n)"
    try:
        return _Reader(bracketed).expression(ast.parse(bracketed, mode="eval").body)
    except (_BeyondError, SyntaxError, ValueError, RecursionError, MemoryError):
        return None


class _Reader:
    """Turns the syntax tree of one text into its meaning."""

    def __init__(self, text: str) -> None:
        self._lines = text.encode().splitlines(keepends=True)

    def expression(self, node: Any) -> Expr:  # noqa: ANN401 - each row of the table has its own type
        """Return the meaning of a node."""
        convert = _EXPRESSIONS.get(type(node))
        return ("code", self.source(node)) if convert is None else convert(self, node)

    def source(self, node: Any) -> str:  # noqa: ANN401
        """Return a node's source on one line, without the brackets around it."""
        lines = self._lines[node.lineno - 1 : node.end_lineno]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return squeeze(b"".join(lines).decode())

    def attribute(self, node: ast.Attribute) -> Expr:
        value = self.expression(node.value)
        return ("ref", f"{value[1]}.{node.attr}") if value[0] == "ref" else ("attr", value, node.attr)

    def constant(self, node: ast.Constant) -> Expr:
        return ("code", self.source(node)) if isinstance(node.value, complex) else ("const", node.value)

    def call(self, node: ast.Call) -> Expr:
        given: list[tuple[str, ast.expr]] = [
            ("*", arg.value) if isinstance(arg, ast.Starred) else ("", arg) for arg in node.args
        ]
        given += [(keyword.arg or "**", keyword.value) for keyword in node.keywords]
        given.sort(key=lambda pair: (pair[1].lineno, pair[1].col_offset))
        args = [(word, self.expression(value), self.source(value)) for word, value in given]
        if given and isinstance(given[0][1], ast.GeneratorExp) and _end(given[0][1]) == _end(node):
            code = args[0][2][1:-1].strip()  # the brackets are those of the call
            args = [("", ("code", code), code)]
        return ("call", self.expression(node.func), tuple(args))

    def unary(self, node: ast.UnaryOp) -> Expr:
        value = self.expression(node.operand)
        if isinstance(node.op, ast.Not):
            return ("not", value)
        if isinstance(node.op, ast.USub) and value[0] == "const" and isinstance(value[1], (int, float)):
            return ("const", -value[1])
        return ("code", self.source(node))

    def boolean(self, node: ast.BoolOp) -> Expr:
        return ("and" if isinstance(node.op, ast.And) else "or", tuple(map(self.expression, node.values)))

    def comparison(self, node: ast.Compare) -> Expr:
        operators = (_OPERATORS[type(operator)] for operator in node.ops)
        pairs = tuple(zip(operators, map(self.expression, node.comparators), strict=True))
        return ("compare", self.expression(node.left), pairs)

    def binary(self, node: ast.BinOp) -> Expr:
        return ("binary", _OPERATORS[type(node.op)], self.expression(node.left), self.expression(node.right))

    def ternary(self, node: ast.IfExp) -> Expr:
        return ("if", self.expression(node.test), self.expression(node.body), self.expression(node.orelse))

    def sequence(self, node: ast.List | ast.Set | ast.Tuple) -> Expr:
        return (type(node).__name__.lower(), tuple(map(self.expression, node.elts)))

    def starred(self, node: ast.Starred) -> Expr:
        return ("star", self.expression(node.value))

    def dictionary(self, node: ast.Dict) -> Expr:
        if None in node.keys:
            return ("code", self.source(node))
        return ("dict", tuple(zip(map(self.expression, node.keys), map(self.expression, node.values), strict=True)))

    def subscript(self, node: ast.Subscript) -> Expr:
        if isinstance(node.slice, ast.Tuple):  # the tree does not tell whether it stands in brackets of its own
            raise _BeyondError
        is_slice = isinstance(node.slice, ast.Slice)
        return (
            "item",
            self.expression(node.value),
            ("code", self.source(node)) if is_slice else self.expression(node.slice),
        )

    def function(self, node: ast.Lambda) -> Expr:
        return ("lambda", self.expression(node.body))

    def joined(self, node: ast.JoinedStr) -> Expr:
        parts: list[Expr] = [("const", "")]
        text = squeeze(b"".join(self._lines).decode())
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                # Before Python 3.12 the tree has the wrong places for what stands in an f-string.
                source = ast.unparse(part.value)
                value = quick(source) if source in text else None
                if value is None:
                    raise _BeyondError
                parts.append(("show", value, source))
            else:
                parts.append(self.expression(part))
        return join(tuple(parts))


def _end(node: ast.expr) -> tuple[int | None, int | None]:
    return node.end_lineno, node.end_col_offset


_EXPRESSIONS: dict[type[ast.AST], Callable[[_Reader, Any], Expr]] = {
    ast.Attribute: _Reader.attribute,
    ast.BinOp: _Reader.binary,
    ast.BoolOp: _Reader.boolean,
    ast.Call: _Reader.call,
    ast.Compare: _Reader.comparison,
    ast.Constant: _Reader.constant,
    ast.Dict: _Reader.dictionary,
    ast.IfExp: _Reader.ternary,
    ast.JoinedStr: _Reader.joined,
    ast.Lambda: _Reader.function,
    ast.List: _Reader.sequence,
    ast.Name: lambda _, node: ("ref", node.id),
    ast.Set: _Reader.sequence,
    ast.Starred: _Reader.starred,
    ast.Subscript: _Reader.subscript,
    ast.Tuple: _Reader.sequence,
    ast.UnaryOp: _Reader.unary,
}

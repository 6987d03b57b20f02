"""The meaning of the expressions that test suites are made of, without a parser being loaded.

Loading libcst takes a third of the time that a whole scan may take. Nearly all expressions that decide a skip are
names, calls, literals, comparisons, ``and``/``or``/``not``, ternaries and f-strings; this reads them by precedence and
gives up on all else, which is then parsed. It must say exactly what :func:`~pytest_tfdebug.scan.syntax.parse` says.
"""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.scan.facts import squeeze
from pytest_tfdebug.scan.syntax import join

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.scan.syntax import Expr

_TOKEN = re.compile(
    r"(?:\s|#[^\n]*)*(?:"
    r"([A-Za-z_]\w*(?![\w\"']))"
    r"|([rRuUfF]{0,2}(?:\"\"\"[^\"\\]*(?:(?:\\.|\"(?!\"\"))[^\"\\]*)*\"\"\""
    r"|\"(?!\"\")[^\"\\\n]*(?:\\.[^\"\\\n]*)*\"|'(?!'')[^'\\\n]*(?:\\.[^'\\\n]*)*'))"
    r"|((?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:e-?[0-9]+)?(?![\w.]))"
    r"|(\.\.\.|\*\*|//|[<>=!]=|[-+*/%<>()\[\]{},:.=|&])"
    r"|$)",
    re.DOTALL,
)
_NAME, _STRING, _NUMBER, _MARK = 1, 2, 3, 4
_CONSTANTS = {"True": True, "False": False, "None": None}
_KEYWORDS = frozenset(keyword.kwlist) - _CONSTANTS.keys()
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPES = {"\\": "\\", "'": "'", '"': '"', "n": "\n", "t": "\t", "\n": ""}
_PLACEHOLDER = re.compile(r"([^{}]*)\{\s*([^{}!:=\\]+?)\s*(?:![rsa])?(?::[^{}]*)?\}")
_CLOSES = {"(": ")", "[": "]", "{": "}"}
_COMPARE = frozenset({"==", "!=", "<", "<=", ">", ">=", "is", "in", "not"})
#: Arithmetic, what binds last first.
_LEVELS = (frozenset("|"), frozenset("&"), frozenset("+-"), frozenset({"*", "/", "//", "%"}), frozenset({"**"}))


class _BeyondError(Exception):
    """The expression is left to the parser."""


def quick(text: str) -> Expr | None:
    """Return the meaning of an expression, or None where it takes a parser to tell."""
    try:
        reader = _Reader(text)
        value = reader.listed("")
    except _BeyondError:
        return None
    return value if reader.kind == 0 else None


class _Reader:
    """Reads one expression; ``kind`` and ``token`` are what comes next, ``span`` is where the last value stood."""

    def __init__(self, text: str) -> None:
        self.text, self.kind, self.token = text, 0, ""
        self.end = self.start = self._next = 0
        self.span = (0, 0)
        self._is_tuple = False
        self.advance()

    def advance(self) -> str:
        """Take the next token."""
        taken, self.end = self.token, self._next
        found = _TOKEN.match(self.text, self._next)
        if found is None:
            raise _BeyondError
        self.kind = found.lastindex or 0
        self.token = found.group(self.kind) if self.kind else ""
        self.start, self._next = (found.start(self.kind) if self.kind else found.end()), found.end()
        return taken

    def take(self, mark: str) -> None:
        """Take a token that must come."""
        if self.token != mark or self.kind == _STRING:
            raise _BeyondError
        self.advance()

    def is_next(self, *marks: str) -> bool:
        """Tell whether one of some tokens comes next."""
        return self.kind in {_NAME, _MARK} and self.token in marks

    def listed(self, closing: str) -> Expr:
        """Read what stands in round brackets or alone: a value, or a tuple."""
        values, is_tuple = self.items(closing)
        if not is_tuple and values[0][0] == "star":
            raise _BeyondError
        return ("tuple", tuple(values)) if is_tuple else values[0]

    def items(self, closing: str) -> tuple[list[Expr], bool]:
        """Read values between commas; tell too whether there was a comma."""
        values = [self.item()]
        is_listing = self.is_next(",")
        while self.is_next(","):
            self.advance()
            if self.kind == 0 or self.is_next(closing):
                break
            values.append(self.item())
        return values, is_listing

    def item(self) -> Expr:
        """Read a value that may be unpacked in place."""
        if not self.is_next("*"):
            return self.ternary()
        self.advance()
        return ("star", self.ternary())

    def ternary(self) -> Expr:
        """Read ``a if b else c`` or anything that binds closer."""
        start = self.start
        if self.is_next("lambda"):
            return self.function()
        body = self.either("or", self.both)
        if not self.is_next("if"):
            return body
        self.advance()
        test = self.either("or", self.both)
        self.take("else")
        orelse = self.ternary()
        self.span = (start, self.end)
        return ("if", test, body, orelse)

    def function(self) -> Expr:
        """Read ``lambda a, b: c``."""
        start = self.start
        self.skipped(start, ":")
        self.take(":")
        body = self.ternary()
        self.span = (start, self.end)
        return ("lambda", body)

    def both(self) -> Expr:
        """Read ``a and b`` or anything that binds closer."""
        return self.either("and", self.negation)

    def either(self, word: str, read: Callable[[], Expr]) -> Expr:
        """Read values between a word."""
        start = self.start
        first = read()
        if not self.is_next(word):
            return first
        values = [first]
        while self.is_next(word):
            self.advance()
            values.append(read())
        self.span = (start, self.end)
        return (word, tuple(values))

    def negation(self) -> Expr:
        """Read ``not a`` or a comparison."""
        if not self.is_next("not"):
            return self.comparison()
        start = self.start
        self.advance()
        value = self.negation()
        self.span = (start, self.end)
        return ("not", value)

    def comparison(self) -> Expr:
        """Read ``a == b`` or anything that binds closer."""
        start = self.start
        left = self.binary(0)
        pairs = []
        while self.is_next(*_COMPARE):
            operator = self.advance()
            if operator in {"is", "not"} and self.is_next("not" if operator == "is" else "in"):
                operator = f"{operator} {self.advance()}"
            elif operator == "not":
                raise _BeyondError
            pairs.append((operator, self.binary(0)))
        if not pairs:
            return left
        self.span = (start, self.end)
        return ("compare", left, tuple(pairs))

    def binary(self, level: int) -> Expr:
        """Read arithmetic, from left to right."""
        if level == len(_LEVELS):
            return self.signed()
        start = self.start
        value = self.binary(level + 1)
        while self.kind == _MARK and self.token in _LEVELS[level]:
            operator = self.advance()
            value = ("binary", operator, value, self.binary(level + 1))
            if operator == "**" and self.is_next("**"):  # from right to left
                raise _BeyondError
            self.span = (start, self.end)
        return value

    def signed(self) -> Expr:
        """Read a number with a sign, or a value with what follows it."""
        if not self.is_next("-"):
            return self.trailed()
        start = self.start
        self.advance()
        if self.kind != _NUMBER:
            raise _BeyondError
        value = self.trailed()
        self.span = (start, self.end)
        if value[0] != "const" or self.is_next("**"):
            raise _BeyondError
        return ("const", -value[1])

    def trailed(self) -> Expr:
        """Read a value with its attributes, calls and subscripts."""
        start = self.start
        value = self.atom()
        while self.is_next(".", "(", "["):
            mark = self.advance()
            if mark == ".":
                if self.kind != _NAME or self.token in _KEYWORDS:
                    raise _BeyondError
                name = self.advance()
                value = ("ref", f"{value[1]}.{name}") if value[0] == "ref" else ("attr", value, name)
            elif mark == "(":
                value = ("call", value, self.arguments())
            else:
                value = ("item", value, self.index(start))
            self.span = (start, self.end)
        return value

    def index(self, start: int) -> Expr:
        """Read a subscript, up to and with the closing bracket; a slice is not told apart from its source."""
        value = ("code", "") if self.is_next(":") else self.ternary()
        is_plain = self.is_next("]")
        if not is_plain:
            self.skipped(start, "]")
        self.take("]")
        return value if is_plain else ("code", squeeze(self.text[start : self.end]))

    def arguments(self) -> tuple[Any, ...]:
        """Read the arguments of a call, up to and with the closing bracket."""
        args = []
        while not self.is_next(")"):
            word = self.advance() if self.is_next("*", "**") else ""
            start, value = self.start, self.ternary()
            if self.is_next("="):
                if word or value[0] != "ref" or "." in value[1]:
                    raise _BeyondError
                self.advance()
                word, value = value[1], self.ternary()
            elif self.is_next("for"):
                value = self.skipped(start, ")")
            args.append((word, value, squeeze(self.text[slice(*self.span)])))
            if not self.is_next(")"):
                self.take(",")
        self.advance()
        return tuple(args)

    def skipped(self, start: int, closing: str) -> Expr:
        """Pass over a comprehension, up to the closing bracket: nothing in it is ever decided."""
        depth = 0
        while depth or not self.is_next(closing):
            if self.kind == 0:
                raise _BeyondError
            depth += self.is_next("(", "[", "{") - self.is_next(")", "]", "}")
            self.advance()
        self.span = (start, self.end)
        return ("code", squeeze(self.text[start : self.end]))

    def atom(self) -> Expr:
        """Read a name, literal or bracketed value."""
        start = self.start
        if self.kind == _STRING:
            return self.strings()
        if self.kind == _NUMBER:
            number = self.advance()
            self.span = (start, self.end)
            return ("const", int(number) if number.isdecimal() else float(number))
        if self.kind == _NAME and self.token not in _KEYWORDS:
            name = self.advance()
            self.span = (start, self.end)
            return ("const", _CONSTANTS[name]) if name in _CONSTANTS else ("ref", name)
        if self.is_next("..."):
            self.advance()
            self.span = (start, self.end)
            return ("const", ...)
        if not self.is_next("(", "[", "{"):
            raise _BeyondError
        return self.bracketed()

    def bracketed(self) -> Expr:
        """Read what stands in brackets: a value, a tuple, list, set or dictionary."""
        start, mark = self.start, self.advance()
        closing = _CLOSES[mark]
        if self.is_next(closing):
            self.advance()
            self.span = (start, self.end)
            return {"(": ("tuple", ()), "[": ("list", ()), "{": ("dict", ())}[mark]
        value = self.entries() if mark == "{" else self._listing(mark, closing)
        if self.is_next("for"):
            self.skipped(start, closing)
            self.advance()
            self.span = (start, self.end)
            return ("code", squeeze(self.text[start : self.end]))
        inner = self.span
        is_group = mark == "(" and not self._is_tuple
        self.take(closing)
        self.span = inner if is_group else (start, self.end)
        return value

    def _listing(self, mark: str, closing: str) -> Expr:
        values, is_tuple = self.items(closing)
        self._is_tuple = is_tuple
        if mark == "[":
            return ("list", tuple(values))
        if not is_tuple and values[0][0] == "star":
            raise _BeyondError
        return ("tuple", tuple(values)) if is_tuple else values[0]

    def entries(self) -> Expr:
        """Read the entries of a dictionary or set."""
        first = self.ternary()
        if not self.is_next(":"):
            values = [first]
            while self.is_next(","):
                self.advance()
                if not self.is_next("}"):
                    values.append(self.ternary())
            return ("set", tuple(values))
        pairs: list[tuple[Expr, Expr]] = []
        while True:
            self.take(":")
            pairs.append((first, self.ternary()))
            if not self.is_next(","):
                break
            self.advance()
            if self.is_next("}"):
                break
            first = self.ternary()
        return ("dict", tuple(pairs))

    def strings(self) -> Expr:
        """Read literals that stand side by side."""
        start = self.start
        parts: list[Expr] = []
        while self.kind == _STRING:
            parts += _parts(self.advance())
        self.span = (start, self.end)
        return join(tuple(parts))


def _parts(text: str) -> tuple[Expr, ...]:
    """Return the parts of one literal: itself, or those of an f-string."""
    mark = '"""' if text.lstrip("rRuUfF").startswith('"""') else text[-1]
    prefix, _, rest = text.partition(mark)
    body, is_raw = rest[: -len(mark)], "r" in prefix.lower()
    if "f" not in prefix.lower():
        return (("const", body if is_raw else _unescaped(body)),)
    parts: list[Expr] = [("const", "")]
    position = 0
    for found in _PLACEHOLDER.finditer(body):
        value = quick(found.group(2)) if found.start() == position else None
        if value is None or found.group(2).startswith("("):
            raise _BeyondError
        literal = found.group(1)
        parts.append(("const", literal if is_raw else _unescaped(literal)))
        parts.append(("show", value, squeeze(found.group(2))))
        position = found.end()
    tail = body[position:]
    if "{" in tail or "}" in tail:
        raise _BeyondError
    parts.append(("const", tail if is_raw else _unescaped(tail)))
    value = join(tuple(part for part in parts if part != ("const", "") or part is parts[0]))
    return tuple(value[1]) if value[0] == "join" else (value,)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_escape, text) if "\\" in text else text


def _escape(found: re.Match[str]) -> str:
    value = _ESCAPES.get(found.group(1))
    if value is None:
        raise _BeyondError
    return value

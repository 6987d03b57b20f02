"""Expressions so plain that a pattern decides them: most decorators and attributes of a test suite.

Each form must mean exactly what :func:`~pytest_tfdebug.scan.syntax.parse` says of the same text; text that no form
matches whole is parsed.
"""

from __future__ import annotations

import keyword
import re
from typing import TYPE_CHECKING

from pytest_tfdebug.scan.facts import squeeze

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.scan.syntax import Expr

_DOTTED = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_STRING = r"(?:\"[^\"\\\n]*\"|'[^'\\\n]*')"
_STRINGS = rf"{_STRING}(?:\s+{_STRING})*"
_NUMBER = r"(?:0|[1-9][0-9]*)"
_ARG = rf"(?:\w+\s*=\s*)?(?:{_STRINGS}|{_DOTTED}|{_NUMBER})"
_CALL = rf"{_DOTTED}\(\s*(?:{_ARG}\s*,\s*)*(?:{_ARG})?\s*\)"
_TUPLE = rf"\(\s*(?:{_DOTTED}\s*,\s*)*(?:{_DOTTED})?\s*\)"
_ATOM = rf"(?:{_CALL}|{_TUPLE}|{_STRINGS}|{_DOTTED})"
_KEYWORDS = frozenset(keyword.kwlist)
_CONSTANTS = {"True": True, "False": False, "None": None, "...": ...}
_PIECE = re.compile(_STRING)
_ARGUMENT = re.compile(rf"(?:(\w+)\s*=\s*)?({_STRINGS}|{_DOTTED}|{_NUMBER})")


def plain(text: str) -> Expr | None:
    """Return the meaning of an expression that has a plain form, or None."""
    for pattern, make in _FORMS:
        found = pattern.fullmatch(text)
        if found is not None:
            return make(found)
    return None


def _constant(found: re.Match[str]) -> Expr:
    return ("const", _CONSTANTS[found.group()])


def _number(found: re.Match[str]) -> Expr:
    return ("const", int(found.group()))


def _reference(found: re.Match[str]) -> Expr | None:
    text = found.group()
    return None if _KEYWORDS.intersection(text.split(".")) else ("ref", text)


def _literal(found: re.Match[str]) -> Expr:
    return ("const", "".join(piece[1:-1] for piece in _PIECE.findall(found.group())))


def _call(found: re.Match[str]) -> Expr | None:
    name, given = found.group(1), found.group(2)
    if _KEYWORDS.intersection(name.split(".")):
        return None
    args = []
    for word, text in _ARGUMENT.findall(given):
        value = plain(text)
        if value is None or word in _KEYWORDS:
            return None
        args.append((word, value, squeeze(text)))
    return ("call", ("ref", name), tuple(args))


def _super(found: re.Match[str]) -> Expr | None:
    parent = ("call", ("ref", "super"), ())
    return None if found.group(1) in _KEYWORDS else ("call", ("attr", parent, found.group(1)), ())


def _names(found: re.Match[str]) -> Expr | None:
    text = found.group(1).strip()
    names = [plain(name.strip()) for name in text.split(",") if name.strip()]
    if (names and "," not in text) or None in names:
        return None
    return ("tuple", tuple(names))


def _not(found: re.Match[str]) -> Expr | None:
    value = plain(found.group(1))
    return None if value is None else ("not", value)


def _ternary(found: re.Match[str]) -> Expr | None:
    opened, body, test, orelse, closed = found.groups()
    values = [plain(text) for text in (test, body, orelse)]
    if bool(opened) is not bool(closed) or None in values:
        return None
    return ("if", *values)


#: What a plain expression looks like -> what it means; the first that matches whole decides.
_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Expr | None]], ...] = (
    (re.compile(r"True|False|None|\.\.\."), _constant),
    (re.compile(_DOTTED), _reference),
    (re.compile(rf"({_DOTTED})\(\s*((?:{_ARG}\s*,\s*)*(?:{_ARG})?)\s*\)"), _call),
    (re.compile(_STRINGS), _literal),
    (re.compile(_NUMBER), _number),
    (re.compile(rf"\(({_TUPLE[2:-2]})\)"), _names),
    (re.compile(rf"not\s+({_CALL}|{_DOTTED})"), _not),
    (re.compile(rf"(\(\s*)?({_ATOM})\s+if\s+({_CALL}|{_DOTTED})\s+else\s+({_ATOM})(\s*\))?"), _ternary),
    (re.compile(r"super\(\)\.(\w+)\(\)"), _super),
)

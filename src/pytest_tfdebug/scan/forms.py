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
_KEYWORDS = frozenset(keyword.kwlist)
_CONSTANTS = {"True": True, "False": False, "None": None, "...": ..., "()": None}
_PIECE = re.compile(_STRING)


def plain(text: str) -> Expr | None:
    """Return the meaning of an expression that has a plain form, or None."""
    for pattern, make in _FORMS:
        found = pattern.fullmatch(text)
        if found is not None:
            return make(found)
    return None


def _constant(found: re.Match[str]) -> Expr:
    text = found.group()
    return ("tuple", ()) if text == "()" else ("const", _CONSTANTS[text])


def _number(found: re.Match[str]) -> Expr:
    return ("const", int(found.group()))


def _reference(found: re.Match[str]) -> Expr | None:
    text = found.group()
    return None if _KEYWORDS.intersection(text.split(".")) else ("ref", text)


def _string(text: str) -> Expr:
    return ("const", "".join(piece[1:-1] for piece in _PIECE.findall(text)))


def _literal(found: re.Match[str]) -> Expr:
    return _string(found.group())


def _call(found: re.Match[str]) -> Expr | None:
    name, word, text = found.group(1), found.group(2) or "", found.group(3)
    if _KEYWORDS.intersection(name.split(".")) or word in _KEYWORDS:
        return None
    if text is None:
        return ("call", ("ref", name), ())
    return ("call", ("ref", name), ((word, _string(text), squeeze(text)),))


def _names(found: re.Match[str]) -> Expr | None:
    names = [name.strip() for name in found.group(1).split(",") if name.strip()]
    if any(_KEYWORDS.intersection(name.split(".")) for name in names):
        return None
    return ("tuple", tuple(("ref", name) for name in names))


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Expr | None]], ...] = (
    (re.compile(r"True|False|None|\.\.\.|\(\)"), _constant),
    (re.compile(_DOTTED), _reference),
    (re.compile(rf"({_DOTTED})\(\s*(?:(?:(\w+)\s*=\s*)?({_STRINGS})\s*,?\s*)?\)"), _call),
    (re.compile(_STRINGS), _literal),
    (re.compile(r"0|[1-9][0-9]*"), _number),
    (re.compile(rf"\(\s*({_DOTTED}\s*,(?:\s*{_DOTTED}\s*,)*(?:\s*{_DOTTED})?)\s*\)"), _names),
)

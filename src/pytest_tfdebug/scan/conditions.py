"""How the condition of a skip reads, from what must hold for it to be reached in each of several ways."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from pytest_tfdebug.scan import lexer
from pytest_tfdebug.scan.errors import BadSourceError
from pytest_tfdebug.scan.facts import squeeze

if TYPE_CHECKING:
    from collections.abc import Iterable

#: What must hold for a skip to be reached, the outermost guard first; nothing for one that is always reached.
Guards: TypeAlias = tuple[str, ...]

_PLAIN = re.compile(r"[\w.]+(?:\(\))?")
_NOT_PLAIN = re.compile(r"not ([\w.]+(?:\(\))?)")
#: What is no expression but a guard all the same -> how it reads where it does not hold.
_OPPOSITES = (
    (re.compile(r"(?:for|while) (.*)"), "the loop over {} ends"),
    (re.compile(r"except (.*)"), "no {}"),
    (re.compile(r"(except)"), "no exception"),
    (re.compile(r"(no exception)"), "except"),
    (re.compile(r"no (.*)"), "except {}"),
    (re.compile(r"case (.*)"), "not case {}"),
)
_MEMBERSHIP = re.compile(r"([\w.]+) (not )?in ([\w.]+)")
#: What binds less than ``or``, and than ``and``.
_UNDER_OR = re.compile(r"\b(?:if|lambda)\b|:=")
_UNDER_AND = re.compile(r"\b(?:if|lambda|or)\b|:=")


class Condition(str):
    """The text of a condition, with the guards of each way to the skip."""

    __slots__ = ("ways",)
    ways: tuple[Guards, ...]

    @classmethod
    def of(cls, ways: Iterable[Guards]) -> Condition:
        """Return the condition that one of some ways to a skip is open."""
        kept = tuple(dict.fromkeys(ways))
        found = cls(_any_of(kept))
        found.ways = kept
        return found


@cache
def negated(test: str) -> str:
    """Return the condition that a test is false."""
    text = squeeze(test)
    if found := _NOT_PLAIN.fullmatch(text):
        return found[1]
    for guard, opposite in _OPPOSITES:
        if found := guard.fullmatch(text):
            return opposite.format(found[1])
    if found := _MEMBERSHIP.fullmatch(text):
        return f"{found[1]} in {found[3]}" if found[2] else f"{found[1]} not in {found[3]}"
    return f"not {text}" if _PLAIN.fullmatch(text) else f"not ({text})"


def alternatives(condition: str) -> list[str]:
    """Return the parts of a condition of which any is enough."""
    parts: list[str] = []
    for piece in condition.split(" or "):
        if parts and _open(parts[-1]) > 0:
            parts[-1] += f" or {piece}"
        else:
            parts.append(piece)
    return parts


class _Branch:
    """The ways that have their first guards in common.

    ``following`` is what follows these; ``needless`` are the guards that say no more than that an earlier way is not
    open; ``is_end`` tells whether a way ends here.
    """

    def __init__(self) -> None:
        self.following: dict[str, _Branch] = {}
        self.needless: set[str] = set()
        self.is_end = False


@cache  # classes differ little
def _any_of(ways: tuple[Guards, ...]) -> str:
    """Return ``a and (b or c)`` for the ways ``a, b`` and ``a, c``; what another way makes needless is left out."""
    root = _Branch()
    for way in ways:
        _add(root, way)
    return _text(root)


def _add(branch: _Branch, way: Guards) -> None:
    for at, guard in enumerate(way, 1):
        if branch.is_end:  # the way is open anyhow
            return
        if guard in branch.needless and at < len(way):
            continue
        if at == len(way):
            branch.needless.add(negated(guard))
        branch = branch.following.setdefault(guard, _Branch())
    branch.is_end = True
    branch.following.clear()


def _text(branch: _Branch) -> str:
    if len(branch.following) == 1:
        guard, rest = next(iter(branch.following.items()))
        return guard if rest.is_end else _chain(guard, rest)
    return " or ".join(
        _bracketed(guard, _UNDER_OR) if rest.is_end else _chain(guard, rest) for guard, rest in branch.following.items()
    )


def _chain(guard: str, rest: _Branch) -> str:
    """Return a guard and what must hold besides."""
    text = _text(rest)
    if len(rest.following) > 1:
        text = f"({text})"
    elif next(iter(rest.following.values())).is_end:
        text = _bracketed(text, _UNDER_AND)
    return f"{_bracketed(guard, _UNDER_AND)} and {text}"


def _bracketed(guard: str, loose: re.Pattern[str]) -> str:
    if not loose.search(guard):
        return guard
    try:
        masked = lexer.mask(guard)
    except BadSourceError:
        return f"({guard})"
    is_loose = any(not _open(masked[: found.start()]) for found in loose.finditer(masked))
    return f"({guard})" if is_loose else guard


def _open(text: str) -> int:
    """Return how many brackets are open at the end of a text."""
    return sum(map(text.count, "([{")) - sum(map(text.count, ")]}"))


#: The condition of what hangs on nothing.
UNCONDITIONAL = Condition.of(())

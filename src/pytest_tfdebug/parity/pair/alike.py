"""Which outputs of two models may belong together, where neither names nor values say it: names that are most alike."""

from __future__ import annotations

from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable

    _One = TypeVar("_One", bound=Hashable)


def likeness(one: str, other: str) -> float:
    """Return how much of two names is the same: 1 for one name."""
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def chosen(pairs: Iterable[tuple[_One, _One]], rank: Callable[[_One, _One], Any]) -> list[tuple[_One, _One]]:
    """Return the pairs of the lowest rank in which each side stands once at most."""
    taken: tuple[set[_One], set[_One]] = set(), set()
    found = []
    for one, other in sorted(pairs, key=lambda pair: rank(*pair)):
        if one not in taken[0] and other not in taken[1]:
            taken[0].add(one)
            taken[1].add(other)
            found.append((one, other))
    return found

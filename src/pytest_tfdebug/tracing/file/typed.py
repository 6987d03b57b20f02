"""JSON that anyone may have written: every value is checked to be of its kind before it is used."""

from __future__ import annotations

from typing import Any, TypeVar, cast

_T = TypeVar("_T")


def typed(kind: type[_T], value: object) -> _T:
    """Return a value that is of its kind; a whole number may stand for a float, a truth value for no number."""
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{str(value)[:40]!r} is not of type {kind.__name__}")
    return cast("_T", value)


def optional(kind: type[_T], value: object) -> _T | None:
    """Return a value that is of its kind, or None."""
    return None if value is None else typed(kind, value)


def each(kinds: tuple[type, ...], values: object) -> list[Any]:
    """Return the entries of a list, each of its own kind."""
    return [typed(kind, value) for kind, value in zip(kinds, typed(list, values), strict=True)]


def texts(values: object) -> tuple[str, ...]:
    """Return the entries of a list of texts."""
    return tuple(typed(str, value) for value in typed(list, values))

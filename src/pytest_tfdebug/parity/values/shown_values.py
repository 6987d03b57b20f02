"""Which of a port's open values are shown beside the one that is to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_tfdebug.parity.values.counterparts import Counterparts
    from pytest_tfdebug.values import Value

#: Lines around an open value that may be wrong as well, where nothing tells which.
_AROUND = 3


def values_beside(counterparts: Counterparts, first: Value) -> list[Value]:
    """Return a value, with the first open values of the function that computed it and the views that led to it."""
    taken = counterparts.port.moves(first.index)[::-1] if first.is_moved else []
    return [first, *in_same_function([*taken, *counterparts.port_open.first()], first)]


def in_same_function(values: list[Value], first: Value) -> list[Value]:
    """Return the values that the function of one computed in the same call; that one alone where there are none."""
    return [value for value in values if _is_in_same_function(value, first)] or [first]


def open_values_around(counterparts: Counterparts, first: Value) -> list[Value]:
    """Return the open values of the lines around one: with nothing to hold them to, any of them may be wrong."""
    values = [counterparts.port.values[index] for index in sorted(counterparts.port_open.open)]
    return [
        value
        for value in values
        if _is_in_same_function(value, first) and abs(value.lines[0].line - first.lines[0].line) <= _AROUND
    ] or [first]


def _is_in_same_function(value: Value, first: Value) -> bool:
    if value.call != first.call or not value.lines or not first.lines:
        return False
    one, other = value.lines[0], first.lines[0]
    return (one.file, one.function) == (other.file, other.function)

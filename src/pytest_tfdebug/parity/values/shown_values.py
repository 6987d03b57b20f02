"""Which of a port's open values are shown beside the one that is to blame."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_tfdebug.parity.values.counterparts import Counterparts
    from pytest_tfdebug.values import Value

#: Lines around an open value that may be wrong as well, where nothing tells which.
_AROUND = 3


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

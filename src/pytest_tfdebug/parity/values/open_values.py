"""Where two forwards part: the first value that one computes and the other never does.

A value is *matched* when the other forward has one with the same fingerprint. From an output that differs the search
walks back over the values that are not matched; these are *open*. A matched value ends the walk: however it was
computed, it is right. An open value whose producers are all matched is where the forwards part.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pytest_tfdebug.parity.values.counterparts import Counterparts
    from pytest_tfdebug.parity.values.matching import Matches
    from pytest_tfdebug.parity.values.value_graph import Side
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


#: Distances up to which two values count as one, tried in turn. Float32 against float64 stays below 1.1e-6 in models of
#: two layers; the smallest bugs of the catalogue begin at 4e-5.
TOLERANCES = (4e-6, 2e-5, 1e-4, 5e-4, 2e-3)
#: Below this a distance is the rounding of a float32.
FLOOR = 3e-7


class OpenValues:
    """The open values of one forward."""

    def __init__(
        self,
        side: Side,
        matches: Matches,
        tolerance: float,
        results: Iterable[int],
        *,
        known: frozenset[str],
        right: Collection[int] = (),
    ) -> None:
        self.matches, self.tolerance = matches, tolerance
        self._side, self._values = side, side.values
        self._known, self._right = known, _handed_on(side.values, right)
        self.open: set[int] = set()
        todo = [index for index in results if not self.is_matched(index)]
        while todo:
            index = todo.pop()
            if index not in self.open:
                self.open.add(index)
                todo += [made for made in side.values[index].producers if not self.is_matched(made)]

    def is_matched(self, index: int) -> bool:
        """Tell whether the other forward has a value, or it is empty or a parameter that the other has."""
        value = self._values[index]
        if not value.print.elements or index in self._right or self._side.parameter(index) in self._known:
            return True
        return self.matches.distance(index) <= self.tolerance

    def first(self, among: Collection[int] | None = None) -> list[Value]:
        """Return the open values that were computed from matched ones alone, in order.

        What was there before the forward, or was made of nothing, is never wrong by itself: it is wrong where it is
        used. Constants (masks, positions, tables) are written in many ways: among values that come from parameters,
        they count as given.
        """
        counted = self.open & set(among) if among is not None else {i for i in self.open if self._side.weighted[i]}
        counted = counted or self.open
        return [
            value
            for value in map(self._values.__getitem__, sorted(counted))
            if value.producers and not any(made in counted and self._values[made].producers for made in value.producers)
        ]

    def jump(self, value: Value) -> float:
        """Return by how much the distance grows from the producers of a value to the value; 1 is none."""
        before = [self.matches.distance(made) for made in value.producers if made not in self.open]
        finite = [distance for distance in before if math.isfinite(distance)]
        return min(self.matches.distance(value.index), 1.0) / max([FLOOR, *finite])


def _handed_on(table: Sequence[Value], values: Collection[int]) -> set[int]:
    """Return values with what shows all of their elements in another shape."""
    found = set(values)
    for value in table if found else ():
        if not value.is_moved or len(value.producers) != 1:
            continue
        base = table[value.producers[0]]
        if base.index in found and value.print.elements == base.print.elements:
            found.add(value.index)
    return found

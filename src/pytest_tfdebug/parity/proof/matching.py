"""Which value of one forward is which of another, and which the other never computes.

Values are known by what was computed, whatever it is called and however it lies. A value is *matched* when the other
forward has one with the same fingerprint. From an output that differs the search walks back over the values that are
not matched; these are *open*. A matched value ends the walk: however it was computed, it is right. An open value whose
producers are all matched is where the forwards part.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_tfdebug.module_path import NUMBER
from pytest_tfdebug.parity.closeness import ORDER, REACH, ROUNDING, SAME
from pytest_tfdebug.parity.proof.value_graph import kind_of
from pytest_tfdebug.values import distance, join

if TYPE_CHECKING:
    import numpy.typing as npt

    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.values import Fingerprint

    _Floats = npt.NDArray[np.float64]
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pytest_tfdebug.values import Value


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

        What was there before the forward, a view of a parameter too, or was made of nothing, is never wrong by itself:
        it is wrong where it is used. Constants (masks, positions, tables) are written in many ways: among values that
        come from parameters, they count as given.
        """
        counted = self.open & set(among) if among is not None else {i for i in self.open if self._side.weighted[i]}
        counted = counted or self.open
        made = {index for index in counted if self._values[index].producers and not self._side.parameter(index)}
        return [self._values[index] for index in sorted(made) if made.isdisjoint(self._values[index].producers)]

    def jump(self, value: Value) -> float:
        """Return by how much the distance grows from the producers of a value to the value; 1 is none."""
        before = [self.matches.distance(made) for made in value.producers if made not in self.open]
        finite = [distance for distance in before if math.isfinite(distance)]
        return min(self.matches.distance(value.index), 1.0) / max([ROUNDING, *finite])


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


#: Partners that are kept of one value, the nearest first.
_KEPT = 48


#: Values of which one call, or one line of a loop, makes pieces in turn: query, key and value, say.
_IN_TURN = (2, 3)
#: The last number in a path: of an expert, say.
_LAST_NUMBER = re.compile(rf"{NUMBER.pattern}(?!.*{NUMBER.pattern})")


class Partner(NamedTuple):
    """A value of the other forward that has nearly the same fingerprint."""

    distance: float  # how far apart they are, see :func:`pytest_tfdebug.values.distance`
    place: int  # its index in the other table


class Matches:
    """The partners of the values of one forward in another.

    Two that are one number throughout tell little: what comes from parameters is only such a value of as many elements.
    One without a finite element tells nothing.
    Never match a product to a parameter: where it equals the bias, what was multiplied is all zeros.
    """

    def __init__(self, own: Side, other: Side) -> None:
        mine, theirs = _Columns(own), _Columns(other)
        by_size = np.argsort(theirs.moments[:, 2], kind="stable")
        sizes = theirs.moments[by_size, 2]
        self.partners = [_partners(mine, place, theirs, by_size, sizes) for place in range(len(own.values))]

    def distance(self, index: int) -> float:
        """Return how far a value is from the nearest of the other table; inf where there is none within reach."""
        partners = self.partners[index]
        return partners[0].distance if partners else math.inf

    def within(self, index: int, tolerance: float) -> list[int]:
        """Return the partners of a value that are no further than a tolerance."""
        return [partner.place for partner in self.partners[index] if partner.distance <= tolerance]


def match_pieces(own: Side, matches: Matches, other: Side, back: Matches) -> None:
    """Add what one forward computes in pieces and the other at once: each piece is then a partner of the whole.

    The order of pieces is not known, so what both compute whole is not looked for in pieces.
    """
    whole: dict[int, list[Value]] = {}
    for value in other.values:
        same = (own.values[place].print.elements for place in back.within(value.index, SAME))
        if value.operator and value.print.finite and value.print.elements not in same:
            whole.setdefault(value.print.elements, []).append(value)
    made = (value for value in own.values if value.operator and value.print.finite)
    apart = [value for value in made if matches.distance(value.index) > SAME]
    for pieces in _pieces(own, apart):
        low, high = min(value.print.low for value in pieces), max(value.print.high for value in pieces)
        near = SAME * max(abs(low), abs(high))
        total = sum(value.print.elements for value in pieces)
        alike = [
            value
            for value in whole.get(total, ())
            if abs(value.print.low - low) <= near and abs(value.print.high - high) <= near
        ]
        if not alike:
            continue
        joined = join(value.print for value in pieces)
        for value in alike:
            far = distance(joined, value.print)
            if far <= SAME:
                back.partners[value.index] += [Partner(far, piece.index) for piece in pieces]
                for piece in pieces:
                    matches.partners[piece.index].insert(0, Partner(far, value.index))


def _pieces(side: Side, values: Iterable[Value]) -> Iterator[Sequence[Value]]:
    """Yield values that may be pieces of one: of the rows of a batch, say, by experts, or by parts of a fused weight.

    They are made by one operator: on one line, by one module or by modules that only a number tells apart, in all calls
    or as often as in each; by each turn of a loop, whose line makes pieces of several values; or one after the other in
    one call.
    """
    groups: dict[object, list[Value]] = {}
    in_turn: dict[object, list[Value]] = {}
    seen = Counter[object]()
    for value in values:
        path = side.call_of(value).path
        made = value.operator, tuple((line.file, line.line) for line in value.lines), path
        for place in dict.fromkeys((path, _LAST_NUMBER.sub("*", path))):  # one where the path has no number
            groups.setdefault((*made[:2], place), []).append(value)
        groups.setdefault((made, seen[made, value.call]), []).append(value)
        in_turn.setdefault((value.operator, value.call), []).append(value)
        seen[made, value.call] += 1
    windows = (
        values[first : first + count]
        for values in in_turn.values()
        for count in _IN_TURN
        for first in range(len(values) - count + 1)
    )
    turns = (values[first::count] for values in groups.values() for count in _IN_TURN for first in range(count))
    several = (some for some in (*groups.values(), *turns, *windows) if len(some) > 1)
    yield from {tuple(value.index for value in some): some for some in several}.values()  # each once


class _Columns:
    """The fingerprints of a forward's values, a row for each."""

    def __init__(self, side: Side) -> None:
        prints = [value.print for value in side.values]
        self.weighted = np.array(side.weighted, dtype=bool)
        self.product = np.array([kind_of(side.computed(value)) == "matmul" for value in side.values], dtype=bool)
        self.parameter = np.array([bool(side.parameter(value.index)) for value in side.values], dtype=bool)
        self.moments = np.array(
            [(p.mean, p.size, p.rms, p.third, p.fourth, p.low, p.high) for p in prints], dtype=np.float64
        ).reshape(-1, 7)
        self.counts = np.array([p.elements for p in prints], dtype=np.float64)
        self.finite = np.array([p.finite for p in prints], dtype=np.float64)
        self.constant = np.array([p.is_constant for p in prints], dtype=bool)


def _partners(
    mine: _Columns, place: int, theirs: _Columns, by_size: npt.NDArray[np.intp], sizes: _Floats
) -> list[Partner]:
    size, count = mine.moments[place, 2], mine.counts[place]
    if not mine.finite[place]:  # a value that is nan throughout is no mask of -inf
        return []
    first = np.searchsorted(sizes, size * (1 - REACH), side="left")
    last = np.searchsorted(sizes, size * (1 + REACH), side="right")
    near = by_size[first:last]
    near = near[theirs.counts[near] > 0]
    counts = theirs.counts[near]
    is_multiple = np.maximum(counts, count) % np.minimum(counts, count) == 0
    has_same_holes = theirs.finite[near] * count == mine.finite[place] * counts
    near = near[is_multiple & has_same_holes & (theirs.constant[near] == mine.constant[place])]
    if mine.product[place]:
        near = near[~theirs.parameter[near]]
    if mine.constant[place] and mine.weighted[place] and count > 1:
        near = near[theirs.weighted[near] & (theirs.counts[near] == count)]
    if not len(near):
        return []
    distances = differences_from(mine.moments[place], theirs.moments[near]).max(axis=1)
    # of equals the one with as many elements, then the first
    ranked = np.lexsort((near, theirs.counts[near] != count, distances))[:_KEPT]
    return [Partner(float(distances[k]), int(near[k])) for k in ranked if distances[k] <= REACH]


def differences_from(one: _Floats, others: _Floats) -> _Floats:
    """Return the differences of one row of moments from several, each as a share of the size.

    The greatest of a row is what ``values.distance`` gives.
    """
    scale = _positive(np.maximum(one[2], others[:, 2]))
    fourth = _positive(np.maximum(one[4], others[:, 4]))
    extreme = _positive(np.maximum(np.abs(one[5:7]).max(), np.abs(others[:, 5:7]).max(axis=1)))
    differences: _Floats = np.abs(one - others)
    differences[:, 3] = np.abs(one[3] ** 3 - others[:, 3] ** 3) / fourth**2  # over the fourth below
    differences[:, :3] /= scale[:, None]
    differences[:, 3:5] /= fourth[:, None]
    differences[:, 5:7] /= extreme[:, None]
    return differences


def _positive(values: _Floats) -> _Floats:
    return np.where(values > 0, values, 1.0)


def reordered_axes(one: Fingerprint, other: Fingerprint) -> set[int]:
    """Return the lengths of the axes along which two tensors with the same elements have them in another order.

    Axes are known by their lengths; one that only one side has (flattened, split) tells nothing.
    """
    scale = max(one.rms, other.rms) * ORDER
    mine, theirs = _by_length(one), _by_length(other)
    return {length for length in mine.keys() & theirs.keys() if not _alike(mine[length], theirs[length], scale)}


def axes_of(fingerprint: Fingerprint) -> list[int]:
    """Return the lengths of the axes of a tensor that are longer than one."""
    return [length for length, _ in fingerprint.axes]


def has_same_order(one: Fingerprint, other: Fingerprint, tolerance: float = 0.0) -> bool:
    """Tell whether two tensors of one shape with the same elements have them in the same order, axis by axis."""
    scale = max(one.rms, other.rms) * max(ORDER, tolerance)
    return all(abs(a - b) <= scale for (_, a), (_, b) in zip(one.axes, other.axes, strict=True))


def _alike(mine: list[float], theirs: list[float], scale: float) -> bool:
    """Tell whether the numbers of the axes of one length pair up; of the side that has fewer, each with some other."""
    if len(mine) == len(theirs):
        return all(abs(a - b) <= scale for a, b in zip(sorted(mine), sorted(theirs), strict=True))
    return any(abs(a - b) <= scale for a in mine for b in theirs)


def _by_length(fingerprint: Fingerprint) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for length, number in fingerprint.axes:
        found.setdefault(length, []).append(number)
    return found

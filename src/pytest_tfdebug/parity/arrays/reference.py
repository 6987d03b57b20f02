"""The reference's values as arrays are looked up in them: by moments, and by moments of several laid side by side."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pytest_tfdebug.fingerprints import MOMENTS, Fingerprint, distance
from pytest_tfdebug.parity.values.matching import differences_from
from pytest_tfdebug.parity.values.value_graph import Side

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from pytest_tfdebug.parity.arrays.pairing import Array
    from pytest_tfdebug.values import Value, Values

#: Distance up to which arrays and values of float32 count as one; rounding alone stays below 1.7e-6.
TOLERANCE = 4e-6
#: That of an array in half precision where the golden holds no floors of its dtype.
BY_DTYPE = {"float16": 4e-3, "bfloat16": 3e-2}
#: Roundings of the reference in half precision that a runtime may be from it, and values about one that count with it.
_ROUNDINGS, _ABOUT = 5.0, 8
_NOTHING: tuple[tuple[int, ...], float, float] = ((), math.inf, math.inf)
#: Tensors of fewer elements say too little of where they come from.
FEW = 4
#: Siblings that are tried as one fused tensor, at most.
_SIBLINGS = 12
#: Fingerprints of the same elements differ by less: sums in another order.
_EQUAL = 1e-6
#: Origins of what was there before the forward.
_GIVEN = frozenset({"parameter", "buffer", "input", "constant"})


class ValueGroup(NamedTuple):
    """Values that a runtime may hold as one tensor."""

    members: tuple[int, ...]  # their indices
    print: Fingerprint  # of all of them side by side


class ReferenceValues:
    """The values of a recorded forward."""

    def __init__(self, table: Values) -> None:
        self.side, self.values = Side(table), table.values
        prints = [value.print for value in table.values]
        self._moments = np.array([each.moments for each in prints], dtype=np.float64).reshape(-1, 7)
        self.counts = np.array([each.elements for each in prints], dtype=np.float64)
        self._finite = np.array([each.finite for each in prints], dtype=np.float64)
        self._says = np.array([says(value.print) and value.origin != "parameter" for value in table.values], dtype=bool)
        self._within: dict[str, npt.NDArray[np.float64]] = {}
        self.results = [index for _, index in table.results]
        self.computed = {value.index for value in table.values if value.origin not in _GIVEN}
        #: Values that a call was given or returned: where modules of the reference hand something on.
        self.edges = {
            index for side in (table.inputs, table.outputs) for leaves in side.values() for _, index in leaves
        }

    def at(self, index: int) -> Value:
        """Return a value by its index."""
        return self.values[index]

    def within(self, dtype: str) -> npt.NDArray[np.float64]:
        """Return how far each moment of an array of some dtype may be from that of each value, ``(values, moments)``.

        In half precision that is what rounding makes of it there, or of those computed about that time: the rounding of
        one value may come to nothing by luck.
        """
        if dtype not in self._within:
            floors = np.array(self.side.table.floors.get(dtype, ())[: MOMENTS * len(self.values)]).reshape(-1, MOMENTS)
            if floors.any():
                around = [np.median(floors[max(0, at - _ABOUT) : at + _ABOUT + 1], axis=0) for at in range(len(floors))]
                self._within[dtype] = _ROUNDINGS * np.maximum(np.maximum(floors, np.array(around)), TOLERANCE)
            else:
                self._within[dtype] = np.full((len(self.values), MOMENTS), BY_DTYPE.get(dtype, TOLERANCE))
        return self._within[dtype]

    def partners(self, held: Fingerprint, dtype: str, times: float = 1.0) -> tuple[tuple[int, ...], float, float]:
        """Return the values with an array's moments, how far the nearest is, and what share of the allowed that is.

        ``times`` is how many times as far as is allowed they may be.
        """
        if not says(held):
            return _NOTHING
        within, counts = self.within(dtype), np.maximum(self.counts, 1)
        near = np.flatnonzero(
            self._says
            & (np.abs(self._moments[:, 2] - held.rms) <= 2 * times * within[:, 2] * held.rms)
            & (np.maximum(counts, held.elements) % np.minimum(counts, held.elements) == 0)
            & (self._finite * held.elements == held.finite * self.counts)
        )
        if not len(near):
            return _NOTHING
        differences = differences_from(np.array(held.moments), self._moments[near])
        shares, found = (differences / within[near]).max(axis=1), differences.max(axis=1)
        return tuple(near[shares <= times].tolist()), float(found.min()), float(shares.min())

    def multiples(self, held: Fingerprint, dtype: str) -> dict[int, float]:
        """Return the values of its size that an array of some dtype is a multiple of, and the factor."""
        found: dict[int, float] = {}
        near = np.flatnonzero(self._says & (self.counts == held.elements) & (self._finite == held.finite))
        if len(near) and held.rms:
            theirs = self._moments[near] / self._moments[near, 2:3]
            within = 2 * self.within(dtype)[near]  # a product is rounded once more
            for sign in (1.0, -1.0):
                differences = differences_from(_signed(np.array(held.moments) / held.rms, sign), theirs)
                factors = sign * held.rms / self._moments[near, 2]
                is_one = (differences <= within).all(axis=1) & (np.abs(factors - 1) > within[:, 2])
                found |= {int(near[k]): float(factors[k]) for k in np.flatnonzero(is_one)}
        return found

    @cached_property
    def moved(self) -> dict[int, int]:
        """Values that hand on every element of another one, in another place or number, and that one; in order."""
        found = {}
        for value in self.values:
            bases = [made for made in value.producers if made in self.computed]
            if value.is_moved and len(bases) == 1 and distance(value.print, self.values[bases[0]].print) <= _EQUAL:
                found[value.index] = bases[0]
        return found

    def can_be(self, index: int, array: Array) -> bool:
        """Tell whether a value has as many elements as an array, and whole numbers or fractions as that has."""
        value = self.values[index]
        return value.print.elements == array.print.elements and ("float" in value.dtype) == array.vouches

    def ancestors(self, indices: Iterable[int]) -> set[int]:
        """Return some values with all that they were computed from."""
        return self.side.ancestors(*indices)

    def statement(self, value: Value) -> set[int]:
        """Return the values of a leaf module's call, or of one statement of a forward."""
        if value.call is not None and value.call not in self.side.callers:
            return {other.index for other in self.values if other.call == value.call}
        if not value.lines:
            return {value.index}
        at = value.lines[0][:2]
        return {v.index for v in self.values if v.call == value.call and v.lines and v.lines[0][:2] == at}

    @cached_property
    def groups(self) -> list[ValueGroup]:
        """What a runtime may hold as one tensor: siblings that one operator made of one value, and turns of a loop."""
        siblings: dict[tuple[int, str], list[int]] = defaultdict(list)
        turns: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for value in self.values:
            if value.origin != "operator" or not self._says[value.index]:
                continue
            turns[self.side.call_of(value).path, value.operator, value.lines[:1]].append(value.index)
            for made in {self._shown(made) for made in value.producers}:
                if self.values[made].origin != "parameter":
                    siblings[made, value.operator].append(value.index)
        members = {
            tuple(each[first:last])
            for each in siblings.values()
            if len(each) < _SIBLINGS
            for first in range(len(each))
            for last in range(first + 2, len(each) + 1)
        }
        members |= {tuple(each) for each in turns.values() if len(each) > 1}
        return [ValueGroup(each, joined(self.values[index].print for index in each)) for each in sorted(members)]

    def _shown(self, index: int) -> int:
        """Return the value that a view shows."""
        while self.values[index].origin == "view" and len(self.values[index].producers) == 1:
            index = self.values[index].producers[0]
        return index


def _signed(moments: npt.NDArray[np.float64], sign: float) -> npt.NDArray[np.float64]:
    """Return the moments of a tensor, or of that times -1."""
    mean, size, rms, third, fourth, low, high = moments
    return moments if sign > 0 else np.array([-mean, size, rms, -third, fourth, -high, -low])


def says(held: Fingerprint) -> bool:
    """Tell whether a fingerprint says where a tensor comes from."""
    return not held.is_constant and held.elements >= FEW


def joined(prints: Iterable[Fingerprint]) -> Fingerprint:
    """Return the fingerprint of tensors laid side by side: moments add up, so that no element is needed."""
    parts: Sequence[Fingerprint] = list(prints)
    counts = np.array([each.finite for each in parts], dtype=np.float64)
    powers = np.array([(p.mean, p.size, p.rms**2, p.third**3, p.fourth**4) for p in parts], dtype=np.float64)
    count = max(counts.sum(), 1.0)
    mean, size, second, third, fourth = (powers * counts[:, None]).sum(0) / count
    return Fingerprint(
        sum(each.elements for each in parts),
        int(counts.sum()),
        float(mean),
        float(size),
        math.sqrt(second),
        math.copysign(abs(third) ** (1 / 3), third),
        float(fourth**0.25),
        min(each.low for each in parts),
        max(each.high for each in parts),
    )

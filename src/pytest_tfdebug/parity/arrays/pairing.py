"""Which array is which value of the reference: by moments, whole, fused, split, in turns, or cropped."""

from __future__ import annotations

import math
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from pytest_tfdebug.parity.closeness import SAME
from pytest_tfdebug.parity.proof.matching import differences_from
from pytest_tfdebug.parity.proof.value_graph import Side
from pytest_tfdebug.values import MOMENTS, Fingerprint, distance, join

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from pytest_tfdebug.data.arrays import Array, How
    from pytest_tfdebug.values import Value, Values


#: That of an array in half precision where the golden holds no floors of its dtype.
BY_DTYPE = {"float16": 4e-3, "bfloat16": 3e-2}
#: Roundings of the reference in half precision that a runtime may be from it, and values about one that count with it.
_ROUNDINGS, _ABOUT = 5.0, 8
#: What is farther in root mean square, in times of what is allowed, is not looked at.
_FAR = 12.0
#: Tensors of fewer elements say too little of where they come from.
FEW = 4
#: Of fewer tensors than these any neighbours are tried as one, of more only all of them.
_SIBLINGS = 12
#: Fingerprints of the same elements differ by less: sums in another order.
_EQUAL = 1e-6


class ReferenceValues(Side):
    """A recorded forward, whose values arrays are looked up in, alone and laid side by side."""

    def __init__(self, table: Values) -> None:
        super().__init__(table)
        groups = self._groups()
        prints = [value.print for value in table.values] + [join([self.at(i).print for i in each]) for each in groups]
        #: What an array may be: each value by its index, then those that a runtime may hold as one tensor.
        self._members = [*((value.index,) for value in table.values), *groups]
        self._moments = np.array([each.moments for each in prints], dtype=np.float64).reshape(-1, MOMENTS)
        is_given = [value.origin == "parameter" for value in table.values] + [False] * len(groups)
        #: Numbers of elements; -1 for what no array is looked up in.
        self._elements = np.array(
            [-1 if given or not says(each) else each.elements for each, given in zip(prints, is_given, strict=True)]
        )
        self._finite = np.array([each.finite for each in prints])
        self._within: dict[str, npt.NDArray[np.float64]] = {}
        self.results = [index for _, index in table.results]
        #: Values that were not there before the forward.
        self.made_here = {value.index for value in table.values if value.origin in ("operator", "view")}
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
        one value may come to nothing by luck. Rows beyond the values are of groups of them.
        """
        if dtype not in self._within:
            floors = np.array(self.table.floors.get(dtype, ())[: MOMENTS * len(self.values)]).reshape(-1, MOMENTS)
            if floors.any():
                around = [np.median(floors[max(0, at - _ABOUT) : at + _ABOUT + 1], axis=0) for at in range(len(floors))]
                single = _ROUNDINGS * np.maximum(np.maximum(floors, np.array(around)), SAME)
            else:
                single = np.full((len(self.values), MOMENTS), BY_DTYPE.get(dtype, SAME))
            of_groups = [single[[*members]].max(axis=0) for members in self._members[len(single) :]]
            self._within[dtype] = np.concatenate((single, np.reshape(of_groups, (-1, MOMENTS))))
        return self._within[dtype]

    def partners(self, held: Fingerprint, dtype: str, times: float = 1.0) -> tuple[tuple[int, ...], float, float]:
        """Return the values with an array's moments, how far the nearest is, and what share of the allowed that is.

        They are those that it may be alone, else the group of values that it is; ``times`` as far as is allowed.
        """
        within, near = self.within(dtype), self._of_size(held)
        near = near[np.abs(self._moments[near, 2] - held.rms) <= _FAR * within[near, 2] * held.rms]
        if not len(near):
            return (), math.inf, math.inf
        differences = differences_from(np.array(held.moments), self._moments[near])
        shares = (differences / within[near]).max(axis=1)
        distance, share, best = float(differences.max(axis=1).min()), float(shares.min()), near[shares.argmin()]
        alone = tuple(near[(shares <= times) & (near < len(self.values))].tolist())
        return alone or (self._members[best] if share <= times else ()), distance, share

    def multiples(self, held: Fingerprint, dtype: str) -> dict[int, float]:
        """Return the values of its size that an array of some dtype is a multiple of, and the factor."""
        found: dict[int, float] = {}
        near = self._of_size(held)
        near = near[near < len(self.values)]
        if len(near) and held.rms:
            theirs = self._moments[near] / self._moments[near, 2:3]
            rounding = torch.finfo(getattr(torch, dtype)).eps / 2 if "float" in dtype else 0.0
            within = 2 * self.within(dtype)[near] + rounding  # a product is rounded once more
            mean, size, rms, third, fourth, low, high = np.array(held.moments) / held.rms
            turned = np.array([-mean, size, rms, -third, fourth, -high, -low])  # those of the array times -1
            for sign, ours in ((1.0, np.array(held.moments) / held.rms), (-1.0, turned)):
                differences = differences_from(ours, theirs)
                factors = sign * held.rms / self._moments[near, 2]
                is_one = (differences <= within).all(axis=1) & (np.abs(factors - 1) > within[:, 2])
                found |= {int(near[k]): float(factors[k]) for k in np.flatnonzero(is_one)}
        return found

    def _of_size(self, held: Fingerprint) -> npt.NDArray[np.intp]:
        return np.flatnonzero((self._elements == held.elements) & (self._finite == held.finite))

    @cached_property
    def moves_of(self) -> dict[int, list[int]]:
        """Values that hand on elements of others, in another place or number, and these; in order."""
        moves = ((v.index, [made for made in v.producers if made in self.made_here]) for v in self.values if v.is_moved)
        return {index: bases for index, bases in moves if bases}

    @cached_property
    def moved(self) -> dict[int, int]:
        """Values that are a copy of one other value, mapped to that value."""
        return {
            index: bases[0]
            for index, bases in self.moves_of.items()
            if len(bases) == 1 and distance(self.values[index].print, self.values[bases[0]].print) <= _EQUAL
        }

    def can_be(self, index: int, array: Array) -> bool:
        """Tell whether a value has as many elements as an array, and whole numbers or fractions as that has."""
        value = self.values[index]
        return value.print.elements == array.print.elements and ("float" in value.dtype) == array.vouches

    def statement(self, value: Value) -> set[int]:
        """Return the values of a leaf module's call, or of one statement of a forward."""
        if value.call is not None and value.call not in self.callers:
            return {other.index for other in self.values if other.call == value.call}
        if not value.lines:
            return {value.index}
        at = value.lines[0][:2]
        return {v.index for v in self.values if v.call == value.call and v.lines and v.lines[0][:2] == at}

    def _groups(self) -> list[tuple[int, ...]]:
        """Return what a runtime may hold as one: what one operator made of one value, and the turns of a loop."""
        together = defaultdict[object, list[int]](list)
        for value in self.values:
            if value.origin == "operator" and says(value.print):
                together[self.call_of(value).path, value.operator, value.lines[:1]].append(value.index)
                for made in {self.computed(self.values[made]).index for made in value.producers}:
                    if self.values[made].origin != "parameter":
                        together[made, value.operator].append(value.index)
        members = {
            tuple(each[first:last])
            for each in together.values()
            for first in range(len(each))
            for last in range(first + 2, len(each) + 1)
            if len(each) < _SIBLINGS or last - first == len(each)
        }
        return sorted(members)


def says(held: Fingerprint) -> bool:
    """Tell whether a fingerprint says where a tensor comes from."""
    return not held.is_constant and held.elements >= FEW


#: Neighbours that are tried as the parts of one value.
_PARTS = (2, 3)


def pair(reference: ReferenceValues, arrays: Sequence[Array]) -> None:
    """Give every array its partners; the arrays are in the order in which they were given."""
    for array in arrays:
        if not says(array.print):
            array.how = "says nothing"
            continue
        found, array.distance, array.share = reference.partners(array.print, array.dtype)
        if found:
            is_whole = reference.at(found[0]).print.elements == array.print.elements
            array.become("value" if is_whole else "joined", found, array.distance, array.share)
    _pair_turns(reference, arrays)
    for count in _PARTS:  # what the reference has in one: neighbours in the order in which they were given
        for first in range(len(arrays) - count + 1):
            _pair_together(reference, arrays[first : first + count], "part")


def _pair_turns(reference: ReferenceValues, arrays: Sequence[Array]) -> None:
    """Pair what a loop of the runtime made: arrays of one label, or of that and one shape, are turns of one value."""
    turns: dict[object, list[Array]] = defaultdict(list)
    for array in arrays:
        if array.is_open:
            for turn in (array.label, (array.label, array.shape)):
                turns[turn].append(array)
    for each in turns.values():
        for width in range(len(each), 1, -1):
            for first in range(0, len(each), width) if len(each) % width == 0 else ():
                _pair_together(reference, each[first : first + width], "turn")


def _pair_together(reference: ReferenceValues, some: Sequence[Array], how: How) -> None:
    if all(array.is_open for array in some):
        whole = join([array.print for array in some])
        found, distance, share = reference.partners(whole, some[0].dtype)
        for array in some if found and reference.at(found[0]).print.elements == whole.elements else ():
            array.become(how, found, distance, share)

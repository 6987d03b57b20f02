"""Which array is which value of the reference: by moments, whole, fused, split, in turns, or cropped."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pytest_tfdebug.parity.arrays.reference import joined, says

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.parity.arrays.reference import ReferenceValues
    from pytest_tfdebug.values import Fingerprint

#: How an array has its partners: it is the value, several of them, a part of one, a turn of one, a crop of an output,
#: it says nothing (constant, or of a few elements); or it has none.
How = Literal["value", "joined", "part", "turn", "crop", "says nothing", ""]
#: Neighbours that are tried as the parts of one value.
_PARTS = (2, 3)


@dataclass(slots=True)
class Array:
    """An array under test."""

    label: str  # what its runtime calls it
    print: Fingerprint
    shape: tuple[int, ...]
    dtype: str
    partners: tuple[int, ...] = ()  # the values of the reference that it is, or is a part of
    distance: float = math.inf  # from the nearest
    share: float = math.inf  # of the distance that is allowed
    how: How = ""

    @property
    def is_open(self) -> bool:
        """Whether it says something that no value of the reference says."""
        return not self.how

    @property
    def vouches(self) -> bool:
        """Whether what its partners were computed from must be right: whole numbers hide too much."""
        return "float" in self.dtype

    def become(self, how: How, partners: Sequence[int], distance: float = 0.0, share: float = 0.0) -> None:
        """Give it its partners."""
        self.how, self.partners, self.distance, self.share = how, tuple(partners), distance, share


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
    """Pair arrays that are one value together."""
    if all(array.is_open for array in some):
        whole = joined([array.print for array in some])
        found, distance, share = reference.partners(whole, some[0].dtype)
        for array in some if found and reference.at(found[0]).print.elements == whole.elements else ():
            array.become(how, found, distance, share)

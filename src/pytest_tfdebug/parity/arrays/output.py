"""An output of the reference, and the array or the part of one that it is compared with."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.parity.tensors.tolerance import Tolerance
from pytest_tfdebug.records import LeafComparison, TensorRecord
from pytest_tfdebug.tracing.values.digest import places
from pytest_tfdebug.tracing.values.precision import HALF_PRECISION

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.parity.tensors.tolerance import Tolerances


#: Roundings of the reference in half precision that an output may be from it, by norm; ports come to 1.3 at most.
_ROUNDINGS = 1.75
#: Axes of a tensor of which every order is tried.
_MOST_AXES = 5


@dataclass
class Output:
    """One output of the reference."""

    record: TensorRecord  # what is kept of it
    value: int  # its index among the reference's values
    # name of a dtype -> numbers of which the one at a place is the norm of what rounding makes of it, over its own
    floors: dict[str, list[float]]
    place: int
    #: Arrays that may be it, with their places: those with its fingerprint, and of others the last of a shape.
    candidates: dict[object, tuple[int, torch.Tensor]] = field(default_factory=dict, repr=False)
    array: int | None = None  # place of the array that it was compared with
    comparison: LeafComparison | None = None
    crop: str = ""  # what part was compared, in words; empty for all of it

    @property
    def agrees(self) -> bool:
        """Whether it was compared, and is the same."""
        return self.comparison is not None and not self.comparison.problem

    def offer(self, place: int, tensor: torch.Tensor, *, is_partner: bool) -> None:
        """Keep an array if it may be this output; of those without its fingerprint, the last of each shape."""
        key = place if is_partner else tuple(tensor.shape)
        if next(_parts(self.record, tuple(tensor.shape)), None) is not None:
            self.candidates.pop(key, None)  # they stay in the order of their places
            self.candidates[key] = place, tensor.clone()

    def compare(self, tolerances: Tolerances, last: int) -> None:
        """Compare it with its candidates: the first that agrees, else the last, a whole one before a crop.

        Of those that differ only the last array of all counts as a crop, and only of places.
        """
        for place, tensor in self.candidates.values():
            for part in _parts(self.record, tuple(tensor.shape)):
                if self.agrees:
                    return
                found = part.compare(tensor, self.record, self._allowed(tensor, tolerances))
                is_crop_of_places = place == last and part.axis < len(self.record.shape) - 1 and self.comparison is None
                if found is not None and (not found.problem or not part.crop or is_crop_of_places):
                    self.array, self.comparison, self.crop = place, found, part.crop

    def _allowed(self, tensor: torch.Tensor, tolerances: Tolerances) -> Tolerance:
        """Return what is allowed of an array: in half precision by what rounding makes of the reference there."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        share = _ROUNDINGS * self.floors[dtype][self.place] if dtype in self.floors else 0.0
        if not share:
            return tolerances.of("", dtype if dtype in HALF_PRECISION else self.record.dtype, self.record.floor)
        return Tolerance(share, share, scaled=True, noise=share, least_scale=0.0)

    def differs_from(self, place: int, tolerances: Tolerances) -> bool:
        """Hold it to the array at a place instead; tell whether that has its shape and differs."""
        tensor = dict(self.candidates.values()).get(place)
        part = None if tensor is None else next(_parts(self.record, tuple(tensor.shape)))
        if tensor is None or part is None or part.crop:
            return False
        self.array, self.crop = place, ""
        self.comparison = part.compare(tensor, self.record, self._allowed(tensor, tolerances))
        return not self.agrees


class _Piece(NamedTuple):
    """A part of an output, or all of it."""

    axis: int  # along which it is a part, from a start, with a length
    start: int
    length: int
    order: tuple[int, ...]  # of an array's axes in it
    crop: str = ""  # what it is in words; empty for the whole

    def compare(self, tensor: torch.Tensor, record: TensorRecord, allowed: Tolerance) -> LeafComparison | None:
        """Compare an array with the part of an output; None where nothing is kept of that."""
        shape = [self.length if axis == self.axis else length for axis, length in enumerate(record.shape)]
        actual = tensor.squeeze().permute(self.order).reshape(shape).to(getattr(torch, record.dtype))
        if self.crop:
            at, elements = self._kept(record)
            if not len(at):
                return None
            actual, record = actual.reshape(-1)[at], TensorRecord(record.leaf, tuple(at.shape), record.dtype, elements)
        given = TensorRecord(record.leaf, tuple(actual.shape), record.dtype, actual)
        return compare_leaf("output", given, record, allowed)

    def _kept(self, record: TensorRecord) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the places in the part whose elements are kept of an output, and these."""
        digest, every = record.digest, torch.arange(prod(record.shape))
        if record.tensor is not None:
            at, elements = every, record.tensor.reshape(-1)
        elif digest is not None:
            count = digest.elements.numel()
            at = torch.cat((every if count >= len(every) else places(len(every), count), digest.top_places))
            elements = torch.cat((digest.elements, digest.tops))
        else:
            return every[:0], every[:0]
        part = every.reshape(record.shape).narrow(self.axis, self.start, self.length).reshape(-1).contiguous()
        is_inside = torch.isin(at, part)
        return torch.searchsorted(part, at[is_inside]), elements[is_inside]


def _parts(record: TensorRecord, shape: tuple[int, ...]) -> Iterator[_Piece]:
    """Yield the parts of an output that an array of some shape can be, the likeliest first."""
    given = tuple(length for length in shape if length > 1)
    full = record.shape
    if not prod(full):
        return
    yield from (_Piece(0, 0, full[0] if full else 1, order) for order in _orders(given, full))
    if prod(given) >= prod(full):
        return
    for axis, length in enumerate(full):
        size, rest = divmod(prod(given), prod(full) // length)
        if not rest and 0 < size < length:
            for order in _orders(given, (*full[:axis], size, *full[axis + 1 :])):
                yield _Piece(axis, length - size, size, order, f"the last {size} of {length} along axis {axis}")
                yield _Piece(axis, 0, size, order, f"the first {size} of {length} along axis {axis}")


def _orders(given: tuple[int, ...], wanted: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the orders of an array's axes that give it a shape; the one that it has, where that fits."""
    target = tuple(length for length in wanted if length > 1)
    if given == target:
        yield tuple(range(len(given)))
    elif sorted(given) == sorted(target) and len(given) <= _MOST_AXES:
        orders = permutations(range(len(given)))
        yield from (order for order in orders if tuple(given[axis] for axis in order) == target)

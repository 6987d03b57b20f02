"""Lay a tensor of a padded forward beside the same tensor without padding.

A pad adds one position to every axis along the sequence and none to others, so the axes that grew are those of the
sequence, and they are narrowed to the real positions. Tensors whose sizes no pad explains (the tokens that a router
sends to one expert) are left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isqrt
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.nn.functional import pad

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Aligned(NamedTuple):
    """A tensor in the alignment of the expected one."""

    tensor: torch.Tensor  # the real positions, in the expected shape
    axes: tuple[int, ...]  # the axes along the sequence, in the expected shape; empty for a pooled tensor
    has_others: bool  # whether axes that grew have positions beside the sequence's, which may stand before them


@dataclass(frozen=True)
class Alignment:
    """Where the expected sequence lies in the actual one."""

    real: int  # length of the expected sequence
    start: int  # number of positions before it
    total: int  # length of the actual sequence
    batch: int  # rows of the actual forward
    # rows of the actual forward that the expected one has, in its order; None for the same rows
    rows: tuple[int, ...] | None = None
    mask: torch.Tensor | None = None  # real tokens of the expected sequence, `(rows, real)`, bool; None when all are
    # every pad adds one position; otherwise (frames, pixels) whatever grew is cut to its beginning
    is_exact: bool = True

    @property
    def pads(self) -> int:
        """Number of added positions."""
        return self.total - self.real

    @cached_property
    def has_gaps(self) -> bool:
        """Whether the mask excludes positions of the expected sequence itself."""
        return self.mask is not None and not bool(self.mask.all())

    def candidates(self, actual: torch.Tensor, expected: torch.Tensor) -> Iterator[Aligned]:
        """Yield every way to lay a tensor beside the expected one, the likeliest first."""
        for of_rows in self._of_rows(actual, expected.shape):
            for place in (0, 1):
                aligned = self._narrowed(of_rows, expected, place)
                if aligned is None or (place and not aligned.has_others):
                    break
                yield aligned
            if not self.is_exact:
                yield from self._of_grid(of_rows, expected)

    def unseen(self, actual: torch.Tensor, expected: Sequence[int]) -> Iterator[torch.Tensor]:
        """Yield the parts of a tensor that are not in one of shape ``expected``; all of it if these are unknown."""
        grown = [axis for axis, size in enumerate(actual.shape) if axis >= len(expected) or size != expected[axis]]
        if self.rows is not None or self.has_gaps or len(grown) > 1 or actual.dim() != len(expected):
            yield actual
        elif grown:
            (axis,) = grown
            if not self.is_exact or (expected[axis], actual.shape[axis]) != (self.real, self.total):
                yield actual
            else:
                for start, length in ((0, self.start), (self.start + self.real, self.pads - self.start)):
                    if length:
                        yield actual.narrow(axis, start, length)

    def blank(self, tensor: torch.Tensor, axes: Sequence[int]) -> torch.Tensor:
        """Return a tensor with 0 at the positions that the mask excludes, along every sequence axis."""
        mask = self.mask
        if mask is None or not self.has_gaps:
            return tensor
        for axis in axes:
            rows = tensor.shape[:axis]
            if axis == 0 and tensor.shape[0] == mask.numel():
                shape: tuple[int, ...] = (mask.numel(),)
            elif axis > 1 and (rows.numel(), tensor.shape[axis]) == mask.shape:  # several sequences in a row
                shape = (*rows, mask.shape[1])
            elif axis > 0 and tensor.shape[0] == mask.shape[0] and tensor.shape[axis] == mask.shape[1]:
                shape = (mask.shape[0], *(1,) * (axis - 1), mask.shape[1])
            elif axis > 1 and tensor.shape[axis - 1 : axis + 1] == mask.shape:  # layers in a stack, as in ESMFold
                shape = (*(1,) * (axis - 1), *mask.shape)
            else:
                continue
            keep = mask.to(tensor.device).reshape(*shape, *(1,) * (tensor.dim() - len(shape)))
            tensor = torch.where(keep, tensor, torch.zeros((), dtype=tensor.dtype, device=tensor.device))
        return tensor

    def put_back(self, actual: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
        """Return a tensor with the expected one's values at the real positions; as it is where it has none."""
        places = torch.arange(actual.numel(), device=actual.device).reshape(actual.shape)
        way = next(self.candidates(places, expected), None)
        if way is None:
            return actual
        made = actual.flatten().clone()
        made[way.tensor.flatten()] = expected.flatten().to(made)
        return made.reshape(actual.shape)

    def _of_rows(self, actual: torch.Tensor, expected: Sequence[int]) -> Iterator[torch.Tensor]:
        if self.rows is None or not actual.dim():
            yield actual
            return
        per_row, rest = divmod(actual.shape[0], self.batch)
        rows = slice(self.rows[0], self.rows[0] + 1) if len(self.rows) == 1 else list(self.rows)  # one is not copied
        if not rest and (len(self.rows) == self.batch or actual.shape[0] != expected[0]):
            picked = actual.reshape(self.batch, per_row, *actual.shape[1:])[rows].flatten(0, 1)
            yield picked
            if actual.dim() > 1 and actual.shape[1] == self.batch:  # every row with every row, as in contrastive heads
                yield picked[:, rows]
        if actual.shape[0] == expected[0]:
            yield actual
        if actual.dim() > 1 and actual.shape[1] == self.batch:  # the batch is the second axis, as in XLNet's memories
            yield actual[:, rows]

    def _narrowed(self, actual: torch.Tensor, expected: torch.Tensor, place: int) -> Aligned | None:
        if actual.dim() != expected.dim():
            return None
        axes, has_others = [], False
        grown = sum(one != other for one, other in zip(actual.shape, expected.shape, strict=True))
        is_plain = grown == 1 and self.start in (0, self.pads)
        for axis, size in enumerate(expected.shape):
            if actual.shape[axis] == size:
                if size == self.real and not self.pads and axis:
                    axes.append(axis)
                continue
            others = size - self.real  # an image's patches, say: around the sequence; else on one side of it
            first = self._others_before(actual, expected, axis) if is_plain else (0, others)[place]
            narrowed = self._narrow(actual, axis, size, first)
            if narrowed is None:
                return None
            actual, has_others = narrowed, has_others or (others > 0 and not is_plain)
            axes.append(axis)
        if not self.pads:
            axes = axes[:1]
        return Aligned(actual, tuple(axes), has_others)

    def _of_grid(self, actual: torch.Tensor, expected: torch.Tensor) -> Iterator[Aligned]:
        """Yield a corner of one axis that holds a square of patches, and its middle, as of a table of distances."""
        if actual.dim() != expected.dim():
            return
        grown = [axis for axis, size in enumerate(expected.shape) if actual.shape[axis] != size]
        if len(grown) != 1 or not grown[0] or actual.shape[grown[0]] < expected.shape[grown[0]]:
            return
        (axis,) = grown
        size, total = expected.shape[axis], actual.shape[axis]
        side, whole = isqrt(size), isqrt(total)
        if (side * side, whole * whole) == (size, total):
            grid = actual.reshape(*actual.shape[:axis], whole, whole, *actual.shape[axis + 1 :])
            grid = grid.narrow(axis, 0, side).narrow(axis + 1, 0, side)
            yield Aligned(grid.flatten(axis, axis + 1), (axis,), has_others=True)
        if (total - size) % 2 == 0:
            yield Aligned(actual.narrow(axis, (total - size) // 2, size), (axis,), has_others=True)

    def _others_before(self, actual: torch.Tensor, expected: torch.Tensor, axis: int) -> int:
        """Return how many other positions stand before the sequence, where a tensor is nearest to the expected one."""
        size = expected.shape[axis]
        others = size - self.real
        if not self.is_exact or others <= 0 or actual.shape[axis] != size + self.pads:
            return 0
        wide = torch.complex128 if expected.is_complex() else torch.float64
        e, a = (tensor.to(wide).movedim(axis, 0).reshape(tensor.shape[axis], -1) for tensor in (expected, actual))
        before, behind = (torch.where(e == own, 0.0, (e - own).abs()).sum(1) for own in (a[:size], a[self.pads :]))
        # with pads at place n, the first n positions lie where they did, and the rest further on
        costs = pad(before.cumsum(0), (1, 0)) + pad(behind.flip(0).cumsum(0).flip(0), (0, 1))
        shift = 0 if self.start else self.real
        return int(costs[shift : shift + others + 1].nan_to_num(torch.inf).argmin())

    def _narrow(self, actual: torch.Tensor, axis: int, size: int, first: int) -> torch.Tensor | None:
        grown = actual.shape[axis]
        if not self.is_exact:
            return actual.narrow(axis, 0, size) if grown > size else None
        if grown == size + self.pads and size >= self.real:
            kept = [*range(first), *range(first + self.start, first + self.start + self.real)]
            kept += range(first + self.total, size + self.pads)
            return (
                actual.index_select(axis, torch.tensor(kept, device=actual.device))
                if size > self.real
                else actual.narrow(axis, self.start, self.real)
            )
        if size % self.real == 0 and grown == size // self.real * self.total:  # (batch * sequence) in one axis
            split = actual.reshape(*actual.shape[:axis], -1, self.total, *actual.shape[axis + 1 :])
            return split.narrow(axis + 1, self.start, self.real).flatten(axis, axis + 1)
        return None

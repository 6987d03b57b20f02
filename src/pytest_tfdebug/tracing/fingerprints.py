"""A few numbers that tell a tensor's values, whatever its layout.

Two implementations keep the same numbers under other shapes: ``(seq, batch, dim)``, flattened, with permuted heads, or
repeated. The moments of all elements and their extremes do not see the layout; a second, smaller set of numbers, one
for each axis, sees the order along that axis and tells a permutation from equality.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Larger magnitudes stand for infinity: masks are written with -inf here and with ``finfo.min`` there.
_HUGE = 1e30
#: Elements that are reduced at a time on a CPU: they stay in its cache.
_PIECE = 1 << 16
#: Numbers of one fingerprint.
MOMENTS = 7


class Fingerprint(NamedTuple):
    """What is kept of a tensor's values.

    Args:
        elements: Number of elements.
        finite: Number of elements that are neither inf, nan nor larger than 1e30.
        mean: Mean of the finite elements.
        size: Mean of their absolute values.
        rms: Root of the mean of their squares.
        third: Cube root of the mean of their cubes.
        fourth: Fourth root of the mean of their fourth powers.
        low: Smallest of them.
        high: Largest of them.
        axes: ``(length, number)`` for each axis longer than 1: the mean, weighted by a fixed weight for each place.
    """

    elements: int
    finite: int
    mean: float
    size: float
    rms: float
    third: float
    fourth: float
    low: float
    high: float
    axes: tuple[tuple[int, float], ...] = ()

    @property
    def moments(self) -> tuple[float, ...]:
        """The :data:`MOMENTS` numbers that do not depend on the layout, in the order of the fields."""
        return self.mean, self.size, self.rms, self.third, self.fourth, self.low, self.high

    @property
    def is_constant(self) -> bool:
        """Whether all finite elements are one number, so that it tells nothing of where it came from."""
        return self.low == self.high or not self.finite


class Pending:
    """The fingerprints of a forward, reduced where the tensors are and read back once, at the end."""

    def __init__(self) -> None:
        self._forms: list[tuple[int, tuple[int, ...]]] = []
        self._moments: list[torch.Tensor] = []
        self._axes: list[torch.Tensor | None] = []
        self._weights: dict[tuple[int, torch.device], torch.Tensor] = {}

    def add(self, tensor: torch.Tensor, same_as: int | None = None) -> int:
        """Reduce a tensor and return the number under which its fingerprint can be read.

        Args:
            tensor: The tensor.
            same_as: Number of a tensor that has the same elements, in another shape.
        """
        values = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        values = values.detach()
        axes = [axis for axis, length in enumerate(values.shape) if length > 1] if values.numel() else []
        moments = _moments(values) if same_as is None else self._moments[same_as]
        self._forms.append((values.numel(), tuple(values.shape[axis] for axis in axes)))
        self._moments.append(moments)
        self._axes.append(self._margins(values, moments) if axes else None)
        return len(self._moments) - 1

    def again(self, number: int) -> int:
        """Take the whole fingerprint of another tensor and return the number under which it can be read."""
        self._forms.append(self._forms[number])
        self._moments.append(self._moments[number])
        self._axes.append(self._axes[number])
        return len(self._moments) - 1

    def read(self) -> list[Fingerprint]:
        """Return every fingerprint, in the order in which the tensors were added."""
        by_device: dict[torch.device, list[int]] = {}
        for place, moments in enumerate(self._moments):
            by_device.setdefault(moments.device, []).append(place)
        rows: dict[int, list[float]] = {}
        for places in by_device.values():
            parts = [part for place in places for part in (self._moments[place], self._axes[place]) if part is not None]
            flat = torch.cat(parts).tolist()
            start = 0
            for place in places:
                end = start + MOMENTS + 1 + len(self._forms[place][1])
                rows[place], start = flat[start:end], end
        return [_fingerprint(rows[place], *self._forms[place]) for place in range(len(self._moments))]

    def _margins(self, values: torch.Tensor, moments: torch.Tensor) -> torch.Tensor:
        """Return, for each axis longer than 1, the mean along all others, weighted along that one."""
        wide = values if values.dtype in (torch.float32, torch.float64) else values.float()
        if wide.is_cpu and float(moments[0]) != values.numel():
            wide = torch.where(wide.abs() < _HUGE, wide, 0.0)
        lengths = [length for length in wide.shape if length > 1]
        rest, found = wide.reshape(lengths), []
        while lengths:
            margin = rest.reshape(-1, lengths[-1]).mean(0).double()
            found.append(torch.dot(margin, self._weight(margin.numel(), margin.device)))
            rest = rest.mean(-1)
            lengths.pop()
        return torch.stack(found[::-1])

    def _weight(self, length: int, device: torch.device) -> torch.Tensor:
        key = length, device
        if key not in self._weights:
            places = torch.arange(1, length + 1, dtype=torch.float64, device=device)
            self._weights[key] = torch.cos(places * places * 0.7390851332151607) / math.sqrt(length)
        return self._weights[key]


def _moments(values: torch.Tensor) -> torch.Tensor:
    """Return how many elements are finite, and their moments and extremes; in float64, a piece at a time."""
    flat = values.reshape(-1)
    if flat.dtype == torch.bool:
        flat = flat.to(torch.uint8)
    parts = []
    for piece in torch.split(flat, _PIECE) if flat.is_cpu else (flat,):
        wide = piece.double()
        if not wide.numel():
            return wide.new_zeros(MOMENTS + 1)
        low, high = torch.aminmax(wide)
        if not (float(low) > -_HUGE and float(high) < _HUGE):  # false for nan, too
            wide = wide[wide.abs() < _HUGE]
            if not wide.numel():
                continue
            low, high = torch.aminmax(wide)
        squares = wide * wide
        sums = wide.sum(), wide.abs().sum(), torch.dot(wide, wide)  # abs and sum: half the time of vector_norm
        higher = torch.dot(squares, wide), torch.dot(squares, squares)
        parts.append(torch.stack((wide.new_tensor(float(wide.numel())), *sums, *higher, low, high)))
    if not parts:
        return torch.zeros(MOMENTS + 1, dtype=torch.float64, device=values.device)
    if len(parts) == 1:
        found = parts[0]
    else:
        table = torch.stack(parts)
        found = torch.cat((table[:, :6].sum(0), table[:, 6].amin()[None], table[:, 7].amax()[None]))
    found[1:6] /= found[0].clone()
    return found


def _fingerprint(row: Sequence[float], count: int, lengths: tuple[int, ...]) -> Fingerprint:
    finite, mean, size, second, third, fourth, low, high, *along = row
    return Fingerprint(
        count,
        int(finite),
        mean,
        size,
        math.sqrt(second),
        math.copysign(abs(third) ** (1 / 3), third),
        fourth**0.25,
        low,
        high,
        tuple(zip(lengths, along, strict=True)),
    )


def distance(one: Fingerprint, other: Fingerprint) -> float:
    """Return how far two fingerprints are apart, as a share of the larger tensor's size; inf for what cannot be equal.

    The greatest of the differences of the moments over the root mean square, of the extremes over the extreme. Elements
    may be repeated on one side, so that counts need only be multiples of each other.
    """
    if not one.elements or not other.elements or max(one.elements, other.elements) % min(one.elements, other.elements):
        return math.inf
    if one.finite * other.elements != other.finite * one.elements:
        return math.inf
    scale = max(one.rms, other.rms)
    if not scale:
        return 0.0
    fourth = max(one.fourth, other.fourth) or scale  # 0 where the fourth powers of tiny numbers are
    extreme = max(abs(one.low), abs(one.high), abs(other.low), abs(other.high)) or scale
    return max(
        abs(one.mean - other.mean) / scale,
        abs(one.size - other.size) / scale,
        abs(one.rms - other.rms) / scale,
        abs((one.third / fourth) ** 3 - (other.third / fourth) ** 3),
        abs(one.fourth - other.fourth) / fourth,
        abs(one.low - other.low) / extreme,
        abs(one.high - other.high) / extreme,
    )

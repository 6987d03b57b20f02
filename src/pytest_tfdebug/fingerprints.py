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
    from collections.abc import Collection, Iterable

#: Larger magnitudes stand for infinity: masks are written with -inf here and with ``finfo.min`` there.
_HUGE = 1e30
#: The same for integers: infinity becomes the least of them.
_HUGE_INTEGER = 2.0**62
#: Elements that are reduced at a time on a CPU: they stay in its cache.
_PIECE = 1 << 18
#: Elsewhere, so that what they take beside the tensor is bounded.
_PIECE_OF_DEVICE = 1 << 24
#: An axis times its columns whose weights are kept; those of a longer one take as much memory as the tensor.
_LONGEST = 1 << 21
#: Dtypes whose extremes torch finds without widening them.
_REDUCIBLE = (torch.float32, torch.float64)
#: Numbers of one fingerprint.
MOMENTS = 7


class Fingerprint(NamedTuple):
    """What is kept of a tensor's values."""

    elements: int  # number of elements
    # number of elements that are neither inf, nan nor larger than 1e30; for an int64, than half its largest
    finite: int
    mean: float  # mean of the finite elements
    size: float  # mean of their absolute values
    rms: float  # root of the mean of their squares
    third: float  # cube root of the mean of their cubes
    fourth: float  # fourth root of the mean of their fourth powers
    low: float  # smallest of them
    high: float  # largest of them
    # ``(length, number)`` for each axis longer than 1: the mean, weighted by a fixed weight for each place
    axes: tuple[tuple[int, float], ...] = ()

    @property
    def moments(self) -> tuple[float, ...]:
        """The :data:`MOMENTS` numbers that do not depend on the layout, in the order of the fields."""
        return self.mean, self.size, self.rms, self.third, self.fourth, self.low, self.high

    @property
    def is_constant(self) -> bool:
        """Whether all finite elements are one number, so that it tells nothing of where it came from."""
        return self.low == self.high or not self.finite

    @property
    def is_mask(self) -> bool:
        """Whether all finite elements are one of two numbers: only then the variance is the most that they allow."""
        variance, most = self.rms**2 - self.mean**2, (self.high - self.mean) * (self.mean - self.low)
        return self.is_constant or (self.finite > 2 and abs(variance - most) <= 1e-9 * self.rms**2)  # noqa: PLR2004


class Fingerprinter:
    """Makes the fingerprints of a forward: in float64, a piece at a time, each element read once."""

    def __init__(self) -> None:
        self._buffers: dict[torch.device, torch.Tensor] = {}
        self._rooms: dict[tuple[torch.Size, torch.device], _Room] = {}
        self._weights: dict[tuple[int, int, torch.device, int, int], torch.Tensor] = {}

    def of(self, tensor: torch.Tensor, same_as: Fingerprint | None = None) -> Fingerprint:
        """Return the fingerprint of a tensor."""
        values = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).detach()
        count, sums = values.numel(), _Sums(same_as)
        if not count:
            return Fingerprint(0, *sums.moments(0.0))
        lengths = [length for length in values.shape if length > 1]
        mean, *along = self._means(values.reshape(lengths or 1), sums).tolist()
        return Fingerprint(count, *sums.moments(mean * count), tuple(zip(lengths, along, strict=False)))

    def _means(self, values: torch.Tensor, sums: _Sums) -> torch.Tensor:
        """Return the mean of a tensor, and the weighted one along each axis; a large one is taken apart."""
        most, length, device = _PIECE if values.is_cpu else _PIECE_OF_DEVICE, len(values), values.device
        if values.dim() == 1 or values.numel() <= most:
            return self._of_each(values[None], sums, most)[0]
        found, first = torch.zeros(values.dim() + 1, dtype=torch.float64, device=device), 0
        for piece in torch.split(values, max(1, most * length // values.numel())):
            is_large = piece.numel() > most
            means = self._means(piece[0], sums) if is_large else self._of_each(piece, sums, most).flatten()
            found += self._weighting(length, values.dim(), device, first, len(piece)) @ means
            first += len(piece)
        return found

    def _of_each(self, tensors: torch.Tensor, sums: _Sums, most: int) -> torch.Tensor:
        """Return a row of means for each of some tensors."""
        *lengths, last = tensors.shape[1:]
        means = self._of_rows(tensors.reshape(-1, last), sums, most)
        for columns, length in enumerate(reversed(lengths), 2):
            means = means.reshape(-1, length * columns) @ self._weighting(length, columns, means.device).T
        return means

    def _of_rows(self, rows: torch.Tensor, sums: _Sums, most: int) -> torch.Tensor:
        """Return two columns: the mean of each row, and the weighted one."""
        found, first = None, 0
        for piece in torch.split(rows, most, 1):
            weights = self._weighting(rows.shape[1], 1, rows.device, first, piece.shape[1])
            some = sums.add(piece, self._room(piece), weights)
            found, first = some if found is None else found + some, first + piece.shape[1]
        if found is None:
            raise ValueError("there are no columns")
        return found

    def _room(self, piece: torch.Tensor) -> _Room:
        """Return room for a piece; memory that is taken anew each time would cost more than all else."""
        key = piece.shape, piece.device
        room = self._rooms.get(key)
        if room is None:
            count = piece.numel()
            buffer = self._buffers.get(piece.device)
            if buffer is None or buffer.shape[1] < count:
                buffer = torch.empty(2, count, dtype=torch.float64, device=piece.device)
                self._buffers[piece.device] = buffer
                self._rooms.clear()  # they are in the one before
            flat, spare = buffer[0, :count], buffer[1, :count]
            room = self._rooms[key] = _Room(flat.view(piece.shape), flat, spare)
        return room

    def _weighting(
        self, length: int, columns: int, device: torch.device, first: int = 0, count: int | None = None
    ) -> torch.Tensor:
        """Return the matrix that takes the mean of each column along an axis, and of the first a weighted one, too.

        It has columns for ``count`` places of the axis from ``first`` on.
        """
        count = length if count is None else count
        key = length, columns, device, first, count
        if key in self._weights:
            return self._weights[key]
        places = torch.arange(first + 1, first + count + 1, dtype=torch.float64, device=device)
        matrix = torch.zeros(columns + 1, count, columns, dtype=torch.float64, device=device)
        matrix[0, :, 0] = 1 / length
        matrix[1, :, 0] = torch.cos(places * places * 0.7390851332151607) / math.sqrt(length)
        for column in range(1, columns):
            matrix[column + 1, :, column] = 1 / length
        found = matrix.reshape(columns + 1, -1)
        if length * columns <= _LONGEST:
            self._weights[key] = found
        return found


class _Room(NamedTuple):
    """Room for a piece of a tensor in float64."""

    wide: torch.Tensor
    flat: torch.Tensor
    spare: torch.Tensor


class _Sums:
    """The sums that moments are made of, added up a piece at a time."""

    def __init__(self, known: Fingerprint | None) -> None:
        self._known = known
        self._finite = 0
        self._size = self._second = self._third = self._fourth = 0.0
        self._low, self._high = math.inf, -math.inf

    def add(self, piece: torch.Tensor, room: _Room, weights: torch.Tensor) -> torch.Tensor:
        """Add the elements of a piece, and return the weighted sums of its rows."""
        wide, flat, spare = room
        wide.copy_(piece)
        huge = _HUGE_INTEGER if piece.dtype == torch.int64 else _HUGE
        if self._known is not None:
            if self._known.finite != self._known.elements:
                flat.masked_fill_(~(torch.abs(flat, out=spare) < huge), 0.0)
            return (weights @ wide.T).T
        self._look(piece if piece.dtype in _REDUCIBLE else wide, flat, spare, huge)
        means = (weights @ wide.T).T  # this way around BLAS is faster
        squares = torch.mul(flat, flat, out=spare)
        self._second += float(squares.sum())
        self._third += float(torch.dot(squares, flat))
        self._fourth += float(torch.dot(squares, squares))
        self._size += float(flat.abs_().sum())
        return means

    def _look(self, piece: torch.Tensor, flat: torch.Tensor, spare: torch.Tensor, huge: float) -> None:
        """Note how many elements of a piece are below a bound and their extremes, and put zeros for the others."""
        low, high = map(float, torch.aminmax(piece))
        self._finite += flat.numel()
        if not (low > -huge and high < huge):  # false for nan, too
            hidden = ~(torch.abs(flat, out=spare) < huge)
            self._finite -= int(hidden.sum())
            low = float(flat.masked_fill_(hidden, math.inf).min())
            high = float(flat.masked_fill_(hidden, -math.inf).max())
            flat.masked_fill_(hidden, 0.0)
        self._low, self._high = min(self._low, low), max(self._high, high)

    def moments(self, total: float) -> tuple[int, float, float, float, float, float, float, float]:
        """Return the number of finite elements and their moments, as the fields of a fingerprint."""
        if self._known is not None:
            return self._known[1:9]
        if not self._finite:
            return 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        count = self._finite
        third = self._third / count
        return (
            count,
            total / count,
            self._size / count,
            math.sqrt(self._second / count),
            math.copysign(abs(third) ** (1 / 3), third),
            (self._fourth / count) ** 0.25,
            self._low,
            self._high,
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
    return max(differences(one, other))


def differences(one: Fingerprint, other: Fingerprint) -> tuple[float, ...]:
    """Return the differences of the moments of two fingerprints, each as a share of the larger tensor's size."""
    scale = max(one.rms, other.rms)
    if not scale:
        return (0.0,) * MOMENTS
    fourth = max(one.fourth, other.fourth) or scale  # 0 where the fourth powers of tiny numbers are
    extreme = max(abs(one.low), abs(one.high), abs(other.low), abs(other.high)) or scale
    return (
        abs(one.mean - other.mean) / scale,
        abs(one.size - other.size) / scale,
        abs(one.rms - other.rms) / scale,
        abs((one.third / fourth) ** 3 - (other.third / fourth) ** 3),
        abs(one.fourth - other.fourth) / fourth,
        abs(one.low - other.low) / extreme,
        abs(one.high - other.high) / extreme,
    )


def are_among(some: Iterable[Fingerprint], others: Collection[Fingerprint], bound: float) -> bool:
    """Tell whether each of some tensors is no further than a bound from one of others."""
    return all(any(distance(one, other) <= bound for other in others) for one in some)

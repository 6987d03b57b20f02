"""The values of a forward: what its operators computed, from what, and which lines asked for it. No tensors.

Of a tensor's values a few numbers are kept, its fingerprint. Two implementations keep the same numbers under other
shapes: ``(seq, batch, dim)``, flattened, with permuted heads, or repeated. The moments of all elements and their
extremes do not see the layout; a second, smaller set of numbers, one for each axis, sees the order along that axis and
tells a permutation from equality.

:mod:`pytest_tfdebug.tracing.values.operators` records values, :mod:`pytest_tfdebug.parity.proof` compares two tables.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from pytest_tfdebug.records import Call


#: Larger magnitudes stand for infinity: masks are written with -inf here and with ``finfo.min`` there.
HUGE = 1e30
#: The same for integers: infinity becomes the least of them.
_HUGE_INTEGER = 2.0**62
#: Elements that are reduced at a time on a CPU: they stay in its cache.
_PIECE = 1 << 18
#: Elsewhere, so that what they take beside the tensor is bounded.
_PIECE_OF_DEVICE = 1 << 24
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

    @classmethod
    def of(cls, tensor: torch.Tensor, same_as: Fingerprint | None = None) -> Fingerprint:
        """Return the fingerprint of a tensor; ``same_as`` is that of one with the same elements in another layout.

        It is computed in float64, a piece at a time, and each element is read once.
        """
        values = (torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor).detach()
        count, device, sums = values.numel(), values.device, _Sums()
        if not count:
            return cls(0, *sums.moments())
        lengths = [length for length in values.shape if length > 1]
        shape = [1] * (2 - len(lengths)) + lengths
        most, first = _PIECE if values.is_cpu else _PIECE_OF_DEVICE, 0
        weights = _kept_weighting(shape[-1], 1, device)
        found = torch.zeros(len(shape) + 1, dtype=torch.float64, device=device)
        for block in torch.split(values.reshape(shape), max(1, most * shape[0] // count)):
            pieces = torch.split(block.reshape(-1, shape[-1]), max(1, most // shape[-1]))
            means = torch.cat([sums.add(piece, weights, is_known=same_as is not None) for piece in pieces])
            for columns, length in enumerate(shape[-2:0:-1], 2):
                means = means.reshape(-1, length * columns) @ _kept_weighting(length, columns, device)
            weighting = _kept_weighting if len(block) == shape[0] else _weighting
            found += means.flatten() @ weighting(shape[0], len(shape), device, first, len(block))
            first += len(block)
        moments = sums.moments() if same_as is None else same_as[1:9]
        return cls(count, *moments, tuple(each for each in zip(shape, found[1:].tolist(), strict=True) if each[0] > 1))

    @property
    def moments(self) -> tuple[float, ...]:
        """The :data:`MOMENTS` numbers that do not depend on the layout, in the order of the fields."""
        return self.mean, self.size, self.rms, self.third, self.fourth, self.low, self.high

    @property
    def is_constant(self) -> bool:
        """Whether all finite elements are one number, so that it tells nothing of where it came from."""
        return self.low == self.high or not self.finite

    @property
    def has_two_numbers(self) -> bool:
        """Whether all finite elements are one of two numbers: only then the variance is the most that they allow."""
        variance, most = self.rms**2 - self.mean**2, (self.high - self.mean) * (self.mean - self.low)
        return self.is_constant or (self.finite > 2 and abs(variance - most) <= 1e-9 * self.rms**2)  # noqa: PLR2004


def _weighting(
    length: int, columns: int, device: torch.device, first: int = 0, count: int | None = None
) -> torch.Tensor:
    """Return the matrix that takes the mean of each column along an axis, and of the first a weighted one, too.

    It has rows for ``count`` places of the axis from ``first`` on.
    """
    count = length if count is None else count
    places = torch.arange(first + 1, first + count + 1, dtype=torch.float64, device=device)
    matrix = torch.zeros(columns + 1, count, columns, dtype=torch.float64, device=device)
    matrix[0, :, 0] = 1 / length
    matrix[1, :, 0] = torch.cos(places * places * 0.7390851332151607) / math.sqrt(length)
    for column in range(1, columns):
        matrix[column + 1, :, column] = 1 / length
    return matrix.reshape(columns + 1, -1).T


_kept_weighting = lru_cache(maxsize=32)(_weighting)


class _Sums:
    """The sums that moments are made of, added up a piece at a time."""

    def __init__(self) -> None:
        self._finite = 0
        self._powers = [0.0] * 5  # of the elements, their absolute values, squares, cubes and fourth powers
        self._low, self._high = math.inf, -math.inf

    def add(self, piece: torch.Tensor, weights: torch.Tensor, *, is_known: bool) -> torch.Tensor:
        """Add the elements of a piece, unless their moments are known; return each row's mean and a weighted one."""
        wide = piece.to(torch.float64, copy=True, memory_format=torch.contiguous_format)
        flat = wide.view(-1)
        self._look(flat, _HUGE_INTEGER if piece.dtype == torch.int64 else HUGE)
        means = wide @ weights
        if not is_known:
            squares = flat * flat
            total, cubes = flat.sum(), torch.dot(squares, flat)
            found = (total, flat.abs_().sum(), squares.sum(), cubes, torch.dot(squares, squares))
            self._powers = [known + float(power) for known, power in zip(self._powers, found, strict=True)]
        return means

    def _look(self, flat: torch.Tensor, huge: float) -> None:
        """Note how many elements of a piece are below a bound and their extremes, and put zeros for the others."""
        low, high = map(float, torch.aminmax(flat))
        self._finite += flat.numel()
        if not (low > -huge and high < huge):  # false for nan, too
            hidden = ~(flat.abs() < huge)
            self._finite -= int(hidden.sum())
            low = float(flat.masked_fill_(hidden, math.inf).min())
            high = float(flat.masked_fill_(hidden, -math.inf).max())
            flat.masked_fill_(hidden, 0.0)
        self._low, self._high = min(self._low, low), max(self._high, high)

    def moments(self) -> tuple[int, float, float, float, float, float, float, float]:
        """Return the number of finite elements and their moments, as the fields of a fingerprint."""
        if not self._finite:
            return 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        mean, size, second, third, fourth = (power / self._finite for power in self._powers)
        root = math.copysign(abs(third) ** (1 / 3), third)
        return self._finite, mean, size, math.sqrt(second), root, fourth**0.25, self._low, self._high


def join(parts: Iterable[Fingerprint]) -> Fingerprint:
    """Return the fingerprint of tensors laid side by side, but for its axes: moments add up, no element is needed."""
    held = list(parts)
    elements, finite, mean, size, rms, third, fourth, low, high, _ = zip(*held, strict=True)
    shares = [each.finite / max(sum(finite), 1) for each in held]

    def moment(numbers: Iterable[float], power: float = 1.0) -> float:
        return math.fsum(
            math.copysign(abs(number) ** power, number) * own for number, own in zip(numbers, shares, strict=True)
        )

    cubes = moment(third, 3)
    return Fingerprint(
        sum(elements),
        sum(finite),
        moment(mean),
        moment(size),
        math.sqrt(moment(rms, 2)),
        math.copysign(abs(cubes) ** (1 / 3), cubes),
        moment(fourth, 4) ** 0.25,
        min(low),
        max(high),
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


#: What a value is: computed, another view of what was computed, or there before the forward.
Origin = Literal["operator", "view", "parameter", "buffer", "input", "constant"]
#: Operators that hand their elements on unchanged, in another place, number or dtype.
MOVES = frozenset(
    {
        *("cat", "stack", "repeat", "repeat_interleave", "roll", "flip", "constant_pad_nd", "tril", "triu"),
        *("clone", "contiguous", "_to_copy", "copy_", "lift_fresh_copy", "_unsafe_view"),
        *("index", "index_select", "gather", "select_backward"),
    }
)


class Line(NamedTuple):
    """A line of source under way."""

    file: str  # path of the file
    line: int  # its number, from 1
    function: str  # name of the function
    first: int = 0  # first line of its statement, where that was read from a file; 0 where it can be looked up
    last: int = 0  # last line of its statement, likewise
    text: str = ""  # the statement, likewise


@dataclass(slots=True)
class Value:
    """A tensor that a forward computed, or started from."""

    index: int  # position in the table; producers have smaller ones
    operator: str  # name of the aten operator, ``mul``; empty for what was there before the forward
    origin: Origin  # what it is
    name: str  # of a parameter, a buffer or an input of the root
    call: int | None  # ``index`` of the innermost call that was under way; None outside of every call
    # the source lines that asked for it, innermost first, up to the forward of the nearest module
    lines: tuple[Line, ...]
    producers: tuple[int, ...]  # values that it was computed from
    shape: tuple[int, ...]  # shape, in elements
    dtype: str  # name of the dtype
    print: Fingerprint = field(repr=False)
    is_random: bool = False  # whether the operator draws random numbers

    @property
    def is_moved(self) -> bool:
        """Whether its elements are those of its producers, in another place or number."""
        return self.origin == "view" or self.operator in MOVES

    @property
    def tells(self) -> bool:
        """Whether its numbers tell which value it is: those of a mask, of indices and of a constant do not."""
        return "float" in self.dtype and not self.print.has_two_numbers


class StepBefore(NamedTuple):
    """An operator that ran before a forward, as a model was made."""

    operator: str  # name of the aten operator
    lines: tuple[Line, ...]  # that asked for it, innermost first
    is_moved: bool  # whether it gives the elements that it is given, in another place or number


@dataclass
class Values:
    """The table of a forward's values."""

    values: list[Value] = field(default_factory=list)  # every value, in the order of computation
    # the calls of modules, without tensors, in the order in which they began
    calls: list[Call] = field(default_factory=list)
    # values that each call was given, by its ``index`` and the leaf path
    inputs: dict[int, list[tuple[str, int]]] = field(default_factory=dict)
    outputs: dict[int, list[tuple[str, int]]] = field(default_factory=dict)  # values that it returned, likewise
    # fingerprint and shape of every parameter, by name
    parameters: dict[str, tuple[Fingerprint, tuple[int, ...]]] = field(default_factory=dict)
    is_widened: bool = False  # whether the forward was made in float32, of a model in half precision
    # every module path of the model, called or not, the root left out; empty where a file was read
    modules: tuple[str, ...] = ()
    # name of a dtype -> how far the moments of each value are from the same in a forward of that dtype, then the norm
    # of each result's difference over its own; 0 where unknown
    floors: dict[str, list[float]] = field(default_factory=dict)
    # what each module holds that is no tensor, as text, by module path (empty for the root) and name
    attributes: dict[str, dict[str, str]] = field(default_factory=dict)
    # value that a constructor computed -> path and class of its module
    constructed: dict[int, tuple[str, str]] = field(default_factory=dict)
    # the operators by which each parameter got its numbers, the last first, where that is known
    conversions: Mapping[str, tuple[StepBefore, ...]] = field(default_factory=dict, repr=False)

    @property
    def results(self) -> list[tuple[str, int]]:
        """The root's output values, with their leaf paths."""
        return self.outputs.get(self.calls[0].index, []) if self.calls else []

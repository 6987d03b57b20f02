"""Two tensors side by side: equal first, measured only where they are not.

Most tensors of a passing check are equal bit by bit. One subtraction and the extremes of the difference settle those
and everything within the absolute tolerance; the full measurements follow for the rest. All of it goes piece by piece,
so that nothing as large as the tensors is ever allocated.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import starmap
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.parity.tensors.pieces import DEVICE_PIECE, filled, index_of, pieces
from pytest_tfdebug.parity.tensors.sampled import measure_digest, measure_digests
from pytest_tfdebug.parity.tensors.tolerance import NOISE_REACH
from pytest_tfdebug.records import LeafComparison, Metrics
from pytest_tfdebug.tensors import widen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_tfdebug.parity.tensors.tolerance import Tolerance
    from pytest_tfdebug.records import Direction, Problem, TensorRecord


#: Below this sum the squares of float32 numbers may have vanished.
_TINY = 1e-30
#: Below this sum the squares of float64 numbers may have vanished.
_TINY_WIDE = 1e-200


def compare_leaf(
    direction: Direction,
    actual: TensorRecord,
    expected: TensorRecord,
    tolerance: Tolerance,
) -> LeafComparison:
    """Compare one tensor, on the device of the expected one."""
    problem: Problem = "shape" if actual.shape != expected.shape else "dtype" if actual.dtype != expected.dtype else ""
    metrics, is_measured = None, False
    if problem != "shape" and actual.held is not None and expected.held is not None:
        with torch.no_grad() if torch.is_grad_enabled() else nullcontext():
            found = _found(actual, expected, tolerance)
        if found is not None:
            is_measured = True
            agrees, metrics = found
            problem = problem or ("" if agrees else "values")
    return LeafComparison(direction, actual.leaf, problem, actual.shape, actual.dtype, expected, metrics, is_measured)


def _found(actual: TensorRecord, expected: TensorRecord, tolerance: Tolerance) -> tuple[bool, Metrics | None] | None:
    """Measure two tensors or what is kept of them; None where too little is kept of both."""
    if actual.tensor is None:
        return measure_digests(expected, actual, tolerance)
    if expected.tensor is None:
        return measure_digest(expected, actual.tensor, tolerance)
    return _measure(expected.tensor, actual.tensor, tolerance)


def is_within(expected: torch.Tensor, actual: torch.Tensor, atol: float) -> bool:
    """Tell whether no element differs by more than ``atol``, so that :func:`compare_leaf` need not be asked.

    False too for what takes a closer look: inf and nan, integers, empty tensors, other shapes, dtypes or devices.
    """
    is_plain = (
        (expected.is_floating_point() or expected.is_complex())
        and expected.numel() > 0
        and (expected.shape, expected.dtype, expected.device) == (actual.shape, actual.dtype, actual.device)
    )
    peak = _distance(pieces(expected, actual), is_brief=True)[0] if is_plain else math.inf
    return peak <= atol and math.isfinite(peak)


def _measure(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> tuple[bool, Metrics | None]:
    if expected.device != actual.device and expected.numel() <= DEVICE_PIECE:
        actual = actual.to(expected.device)
    exact = not (expected.is_floating_point() or expected.is_complex()) and expected.dtype == actual.dtype
    if not expected.numel() or (exact and all(starmap(torch.equal, pieces(expected, actual)))):
        return True, None
    if expected.is_complex() != actual.is_complex():
        return False, None
    peak, norm = _distance(pieces(expected, actual))
    if not peak:
        return _measure_wide_integers(expected, actual) if exact else (True, None)
    pair = _Pair(expected, actual)
    if math.isfinite(peak):
        return _measure_finite(pair, (peak, norm), tolerance)
    return _measure_with_holes(pair, tolerance)


@dataclass(frozen=True)
class _Pair:
    """Two tensors of one shape."""

    expected: torch.Tensor  # the one that the other is held to
    actual: torch.Tensor  # the one under test
    has_holes: bool = False  # take what is inf or nan in one of them for 0 in both

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape; complex numbers are pairs."""
        return (*self.expected.shape, 2) if self.expected.is_complex() else tuple(self.expected.shape)

    def pieces(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return (filled if self.has_holes else pieces)(self.expected, self.actual)

    def norm(self) -> float:
        """Return the norm of the expected tensor."""
        both = self.pieces() if self.has_holes else pieces(self.expected, self.expected)
        return math.sqrt(sum(_squares(widen(piece).flatten()) for piece, _ in both))


def _measure_finite(pair: _Pair, distance: tuple[float, float], tolerance: Tolerance) -> tuple[bool, Metrics]:
    (peak, norm), norm_e = distance, pair.norm()
    count = math.prod(pair.shape)
    atol = tolerance.absolute(norm_e / math.sqrt(count))
    relative_l2 = norm / norm_e if norm_e else math.inf
    rmse = norm / math.sqrt(count)
    if peak <= atol:  # within the absolute tolerance alone: nothing further decides
        return True, Metrics(0, count, peak, (), atol, math.nan, (), rmse, relative_l2, math.nan, 0, 0)
    found = _Differences(atol, tolerance.rtol)
    for piece in pair.pieces():
        found.add(*(widen(each).flatten() for each in piece))
    is_noise = 0 < tolerance.noise >= relative_l2 and found.excess <= NOISE_REACH
    metrics = Metrics(
        found.mismatched,
        count,
        peak,
        index_of(found.largest.position, pair.shape),
        found.allowed,
        found.relative.value,
        index_of(found.relative.position, pair.shape),
        rmse,
        relative_l2,
        _cosine(found.products, pair),
        0,
        0,
    )
    return found.mismatched == 0 or is_noise, metrics


@dataclass
class _Greatest:
    """The greatest of many numbers, and the position of the first that is so great."""

    value: float = -math.inf
    position: int = 0

    def add(self, numbers: torch.Tensor, before: int) -> int | None:
        """Take in a piece that begins at a position; return where the greatest stands in it, None where it is older."""
        highest = numbers.max().item()
        if not highest > self.value:
            return None
        place = int(numbers.argmax())
        self.value, self.position = highest, before + place
        return place


class _Differences:
    """What is measured of the pieces of two tensors that differ, all finite."""

    def __init__(self, atol: float, rtol: float) -> None:
        self._tolerance = atol, rtol
        self._seen = 0
        self.mismatched = 0
        self.allowed = self.excess = 0.0
        self.largest, self.relative = _Greatest(), _Greatest()
        self.products: tuple[float, ...] = (0.0, 0.0, 0.0)

    def add(self, expected: torch.Tensor, actual: torch.Tensor) -> None:
        """Measure two pieces, flat and widened."""
        atol, rtol = self._tolerance
        size, magnitude = torch.sub(actual, expected).abs_(), expected.abs()
        place = self.largest.add(size, self._seen)
        if place is not None:
            self.allowed = atol + rtol * float(magnitude[place])
        excess = size / magnitude.mul(rtol).add_(atol)  # nothing over nothing is nan, and no mismatch
        wrong = int((excess > 1).sum())
        if wrong:
            self.mismatched += wrong
            self.excess = max(self.excess, float(excess.nan_to_num_(nan=0.0).max()))
        self.relative.add(size.div_(magnitude).masked_fill_(magnitude == 0, 0.0), self._seen)
        self.products = tuple(map(sum, zip(self.products, _products(expected, actual), strict=True)))
        self._seen += expected.numel()


def _measure_wide_integers(expected: torch.Tensor, actual: torch.Tensor) -> tuple[bool, Metrics]:
    """Measure integers that differ by less than float64 can tell."""
    mismatched = seen = 0
    position: int | None = None
    size = relative = 0.0
    for pair in pieces(expected, actual):
        e, a = (each.flatten() for each in pair)
        differ = e != a
        mismatched += int(differ.sum())
        if position is None and mismatched:
            place = int(differ.int().argmax())
            position, size = seen + place, float(abs(a[place].item() - e[place].item()))
            relative = size / abs(e[place].item())
        seen += e.numel()
    index = index_of(position or 0, tuple(expected.shape))
    rmse = size * math.sqrt(mismatched / seen)
    return False, Metrics(mismatched, seen, size, index, 0.0, relative, index, rmse, relative, 1.0, 0, 0)


def _measure_with_holes(pair: _Pair, tolerance: Tolerance) -> tuple[bool, Metrics]:
    """Measure tensors that hold inf or nan: the same ones in the same places agree, the rest is measured."""
    holes = seen = of_expected = of_actual = 0
    first: int | None = None
    for piece in pair.pieces():
        e, a = (widen(each).flatten() for each in piece)
        in_expected, in_actual = (torch.isfinite(each).logical_not_() for each in (e, a))
        torn = (e != a) & (in_expected | in_actual) & ~(torch.isnan(e) & torch.isnan(a))
        of_expected, of_actual = of_expected + int(in_expected.sum()), of_actual + int(in_actual.sum())
        holes += int(torn.sum())
        if first is None and holes:
            first = seen + int(torn.int().argmax())
        seen += e.numel()
    whole = _Pair(pair.expected, pair.actual, has_holes=True)
    agrees, metrics = _measure_finite(whole, _distance(whole.pieces()), tolerance)
    metrics = metrics._replace(
        mismatched=metrics.mismatched + holes, non_finite_expected=of_expected, non_finite_actual=of_actual
    )
    if first is not None:
        metrics = metrics._replace(max_abs=math.inf, max_abs_index=index_of(first, pair.shape))
    return agrees and not holes, metrics


def _distance(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]], *, is_brief: bool = False) -> tuple[float, float]:
    """Return the greatest absolute difference and the norm of all, 0 for the norm where it is to be brief.

    Both are inf where a difference is not finite.
    """
    peak = squares = 0.0
    room = None
    for pair in pairs:
        e, a = map(widen, pair)
        if room is None:
            room = difference = torch.sub(a, e).flatten()
        else:
            difference = torch.sub(a.flatten(), e.flatten(), out=room[: e.numel()])
        lowest, highest = _read(torch.aminmax(difference))
        if not (math.isfinite(lowest) and math.isfinite(highest)):
            return math.inf, math.inf
        if lowest or highest:
            peak = max(peak, -lowest, highest)
            squares += 0.0 if is_brief else _squares(difference)
    return peak, math.sqrt(squares)


def _read(numbers: Sequence[torch.Tensor]) -> list[float]:
    """Read numbers back: at once from a device, for each reading waits for it."""
    return [number.item() for number in numbers] if numbers[0].is_cpu else torch.stack(tuple(numbers)).tolist()


def _cosine(products: tuple[float, ...], pair: _Pair) -> float:
    """Return the cosine similarity from the products of two tensors; 0 where one is zero."""
    if not _TINY_WIDE < min(products[:2]) <= max(products[:2]) < math.inf:  # the squares left the range of float64
        peaks = [0.0, 0.0]
        for piece in pair.pieces():
            peaks = [max(peak, float(each.abs().amax())) for peak, each in zip(peaks, map(widen, piece), strict=True)]
        if not all(peaks):
            return 0.0
        scaled = (
            _products(*(widen(each).flatten().double() / peak for each, peak in zip(piece, peaks, strict=True)))
            for piece in pair.pieces()
        )
        products = tuple(map(sum, zip(*scaled, strict=True)))
    of_expected, of_actual, of_both = products
    return of_both / (math.sqrt(of_expected) * math.sqrt(of_actual))


def _products(expected: torch.Tensor, actual: torch.Tensor) -> tuple[float, ...]:
    """Return the products of two flat tensors with themselves, and of one with the other."""
    e, a = expected.double(), actual.double()
    return tuple(_read([torch.dot(e, e), torch.dot(a, a), torch.dot(e, a)]))


def _squares(flat: torch.Tensor) -> float:
    squares = float(torch.dot(flat, flat))
    if _TINY < squares < math.inf:
        return squares
    wide = flat.double()  # the squares left the range of float32
    return float(torch.dot(wide, wide))

"""Two tensors side by side: equal first, measured only where they are not.

Most tensors of a passing check are equal bit by bit. One subtraction and the extremes of the difference settle those
and everything within the absolute tolerance; the full measurements follow for the rest. All of it goes piece by piece,
so that the memory it takes does not grow with the tensors.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from itertools import starmap
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.parity.tensors.sampled import index_of, measure_digest, measure_digests
from pytest_tfdebug.parity.tensors.tolerance import NOISE_REACH
from pytest_tfdebug.records import LeafComparison, Metrics
from pytest_tfdebug.tensors import norm_of, widen

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.parity.tensors.tolerance import Tolerance
    from pytest_tfdebug.records import Direction, Problem, TensorRecord

#: Elements of a piece: 1 MiB of float32, which stays in the cache of a processor between two passes.
PIECE = 2**18
#: Elements of a piece on a device, or on its way from one: 16 MiB of float32, since each piece is waited for.
DEVICE_PIECE = 2**22


def pieces(expected: torch.Tensor, actual: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield two tensors of one shape in pieces, on the device of the expected one.

    The pieces come in the order of the elements and the first is as large as any; a small tensor is one piece.
    """
    if expected.numel() <= PIECE and expected.device == actual.device:
        yield expected, actual
        return
    size = PIECE if expected.is_cpu else DEVICE_PIECE
    if expected.device == actual.device:
        yield from _split(expected, actual, size)
    else:
        for e, a in _split(expected, actual, DEVICE_PIECE):
            yield from _split(e, a.to(e.device), size)


def filled(expected: torch.Tensor, actual: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the widened pieces of two tensors, with 0 in both where one of them is inf or nan."""
    for pair in pieces(expected, actual):
        e, a = map(widen, pair)
        holes = torch.isfinite(e).logical_and_(torch.isfinite(a)).logical_not_()
        yield e.masked_fill(holes, 0.0), a.masked_fill(holes, 0.0)


def _split(expected: torch.Tensor, actual: torch.Tensor, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if expected.numel() <= size:
        yield expected, actual
    elif expected.is_contiguous() and actual.is_contiguous():
        yield from zip(torch.split(expected.view(-1), size), torch.split(actual.view(-1), size), strict=True)
    else:
        rows = max(1, size * len(expected) // expected.numel())
        for e, a in zip(torch.split(expected, rows), torch.split(actual, rows), strict=True):
            yield from _split(e, a, size) if rows > 1 else _split(e[0], a[0], size)


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


def relative_l2(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the norm of the difference of two tensors of one shape over that of the expected one, finite elements."""
    peak, norm = _distance(filled(expected, actual))
    norm_e = math.hypot(*(norm_of(e.flatten()) for e, _ in filled(expected, actual)))
    return norm / norm_e if norm_e else math.inf if peak else 0.0


def _found(actual: TensorRecord, expected: TensorRecord, tolerance: Tolerance) -> tuple[bool, Metrics | None] | None:
    """Measure two tensors or what is kept of them; None where too little is kept of both."""
    if actual.tensor is None:
        return measure_digests(expected, actual, tolerance)
    if expected.tensor is None:
        return measure_digest(expected, actual.tensor, tolerance)
    agrees, metrics = _measure(expected.tensor, actual.tensor, tolerance)
    if agrees and metrics is not None and tolerance.scaled and (loud := out_of_scale(expected.tensor)) is not None:
        theirs, mine = (each.to(loud.device).masked_fill(loud, 0) for each in (expected.tensor, actual.tensor))
        return _measure(theirs, mine, tolerance)
    return agrees, metrics


#: How many times as large as the rest a number is that stands for no value, and a row that gives the rest no scale.
_FAR = 100.0
#: Rows from which on it is known what is usual.
_ENOUGH = 4


def out_of_scale(expected: torch.Tensor) -> torch.Tensor | None:
    """Return where a tensor is so much larger than elsewhere that it would hide the rest; None where it is nowhere.

    That is a number that is repeated (a mask's -1e9, the least number of the dtype), and a row.
    """
    if not expected.is_floating_point() or not 0 < expected.numel() <= DEVICE_PIECE:
        return None
    size = widen(expected).nan_to_num(0.0, 0.0, 0.0).abs()
    loud, largest = torch.zeros_like(size, dtype=torch.bool), size.max()
    repeated = size == largest
    if int(repeated.sum()) > 1 and not bool(repeated.all()):
        rest = size[~repeated]
        usual = norm_of(rest) / math.sqrt(rest.numel())
        if float(largest) > _FAR * usual > 0:
            loud |= repeated
    if size.dim() > 1 and size[..., 0].numel() >= _ENOUGH:
        rows = size.masked_fill(loud, 0.0).amax(-1, keepdim=True)
        usual_row = rows.median()
        loud |= (rows > _FAR * usual_row) & (usual_row > 0)
    return loud if bool(loud.any()) and not bool(loud.all()) else None


def _measure(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> tuple[bool, Metrics | None]:
    if expected.device != actual.device and expected.numel() <= DEVICE_PIECE:
        actual = actual.to(expected.device)
    exact = not (expected.is_floating_point() or expected.is_complex()) and expected.dtype == actual.dtype
    if not expected.numel() or (exact and all(starmap(torch.equal, pieces(expected, actual)))):
        return True, None
    if expected.is_complex() != actual.is_complex():
        return False, None
    peak, norm = _distance(pieces(expected, actual))
    if not peak and not exact:
        return True, None
    if not peak:  # 64-bit integers that differ by less than float64 can tell
        apart = actual.to(expected.device).long() - expected.long()
        agrees, metrics = _measure(torch.zeros_like(apart), apart, tolerance)
        return agrees, metrics and metrics._replace(relative_l2=0.0)
    if has_holes := not math.isfinite(peak):
        peak, norm = _distance(filled(expected, actual))
    shape = (*expected.shape, 2) if expected.is_complex() else tuple(expected.shape)
    norm_e, count = math.hypot(*(norm_of(widen(e).flatten()) for e, _ in pieces(expected, expected))), math.prod(shape)
    atol = tolerance.absolute(norm_e / math.sqrt(count))
    relative_l2 = norm / norm_e if norm_e else (math.inf if norm else 0.0)
    rmse = norm / math.sqrt(count)
    if peak <= atol and not has_holes:  # within the absolute tolerance alone: nothing further decides
        return True, Metrics(0, count, peak, (), atol, math.nan, (), rmse, relative_l2, math.nan, 0, 0)
    found = _Differences(atol, tolerance.rtol, norm_e)
    for piece in pieces(expected, actual):
        found.add(*(widen(each).flatten() for each in piece))
    is_noise = 0 < tolerance.noise >= relative_l2 and found.excess <= NOISE_REACH
    metrics = Metrics(
        found.mismatched + found.torn,
        count,
        peak if found.first_torn is None else math.inf,
        index_of(found.largest[1] if found.first_torn is None else found.first_torn, shape),
        found.allowed,
        found.relative[0],
        index_of(found.relative[1], shape),
        rmse,
        relative_l2,
        found.product / found.norm if norm_e and found.norm else 0.0,
        *found.non_finite,
    )
    return not found.torn and (found.mismatched == 0 or is_noise), metrics


class _Differences:
    """What is measured of the pieces of two tensors that differ; the same inf and nan in the same places agree."""

    def __init__(self, atol: float, rtol: float, norm: float) -> None:
        self._tolerance, self._norm = (atol, rtol), norm
        self._seen = self.mismatched = self.torn = 0
        self.non_finite = (0, 0)  # inf and nan of each side
        self.first_torn: int | None = None  # position of the first that the other side does not have
        self.allowed = self.excess = self.product = self.norm = 0.0  # products and norms in norms of the expected one
        self.largest = self.relative = (-math.inf, 0)  # the greatest, and the position of the first that is so great

    def add(self, expected: torch.Tensor, actual: torch.Tensor) -> None:
        """Measure two pieces, flat and widened."""
        atol, rtol = self._tolerance
        if not bool(torch.isfinite(torch.sub(actual, expected).sum())):
            expected, actual = self._without_holes(expected, actual)
        size, magnitude = torch.sub(actual, expected).abs_(), expected.abs()
        largest = _greatest(size, self._seen, self.largest)
        if largest is not self.largest:
            self.largest, self.allowed = largest, atol + rtol * float(magnitude[largest[1] - self._seen])
        excess = size / magnitude.mul(rtol).add_(atol)  # nothing over nothing is nan, and no mismatch
        wrong = int((excess > 1).sum())
        if wrong:
            self.mismatched += wrong
            self.excess = max(self.excess, float(excess.nan_to_num_(nan=0.0).max()))
        share = size.div_(magnitude).masked_fill_(magnitude == 0, 0.0)
        self.relative = _greatest(share, self._seen, self.relative)
        e, a = (each.double().div(self._norm or 1.0) for each in (expected, actual))
        self.product, self.norm = self.product + float(torch.dot(e, a)), math.hypot(self.norm, norm_of(a))
        self._seen += expected.numel()

    def _without_holes(self, expected: torch.Tensor, actual: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return two pieces with 0 in both where one of them is inf or nan, and count these."""
        in_expected, in_actual = (torch.isfinite(each).logical_not_() for each in (expected, actual))
        holes = in_expected | in_actual
        torn = holes & (expected != actual) & ~(torch.isnan(expected) & torch.isnan(actual))
        if self.first_torn is None and bool(torn.any()):
            self.first_torn = self._seen + int(torn.int().argmax())
        self.torn += int(torn.sum())
        self.non_finite = self.non_finite[0] + int(in_expected.sum()), self.non_finite[1] + int(in_actual.sum())
        return expected.masked_fill(holes, 0.0), actual.masked_fill(holes, 0.0)


def _greatest(numbers: torch.Tensor, before: int, known: tuple[float, int]) -> tuple[float, int]:
    """Return the greatest number so far and its position, of a piece that begins at a position and of those before."""
    highest = numbers.max().item()
    return (highest, before + int(numbers.argmax())) if highest > known[0] else known


def _distance(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> tuple[float, float]:
    """Return the greatest absolute difference and the norm of all; both are inf where a difference is not finite."""
    peak = norm = 0.0
    room = None
    for pair in pairs:
        e, a = map(widen, pair)
        if room is None:
            room = difference = torch.sub(a, e).flatten()
        else:
            difference = torch.sub(a.flatten(), e.flatten(), out=room[: e.numel()])
        lowest, highest = torch.stack(torch.aminmax(difference)).tolist()  # at once: each reading waits for a device
        if not (math.isfinite(lowest) and math.isfinite(highest)):
            return math.inf, math.inf
        if lowest or highest:
            peak = max(peak, -lowest, highest)
            norm = math.hypot(norm, norm_of(difference))
    return peak, norm

"""Two tensors side by side: equal first, measured only where they are not.

Most tensors of a passing check are equal bit by bit. One subtraction and the extremes of the difference settle those
and everything within the absolute tolerance, piece by piece, so that no difference as large as the tensors is ever
allocated; the full measurements follow for the rest.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.parity.tolerance import NOISE_REACH
from pytest_tfdebug.records import LeafComparison, Metrics
from pytest_tfdebug.tracing.statistics import widen

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.parity.tolerance import Tolerance
    from pytest_tfdebug.records import Direction, Problem, TensorRecord


#: Below this sum the squares of float32 numbers may have vanished.
_TINY = 1e-30
#: Elements of a piece: 1 MiB of float32, which stays in the cache of a processor between two passes.
_PIECE = 2**18


def compare_leaf(
    direction: Direction,
    actual: TensorRecord,
    expected: TensorRecord,
    tolerance: Tolerance,
) -> LeafComparison:
    """Compare one tensor, on the device of the expected one.

    Args:
        direction: Input or output.
        actual: The tensor under test; its leaf path is the one reported.
        expected: The tensor it is held to.
        tolerance: What is allowed.

    Returns:
        The comparison; ``problem`` is empty when they agree.
    """
    problem: Problem = "shape" if actual.shape != expected.shape else "dtype" if actual.dtype != expected.dtype else ""
    metrics = None
    if problem != "shape" and actual.tensor is not None and expected.tensor is not None:
        with torch.no_grad() if torch.is_grad_enabled() else nullcontext():
            agrees, metrics = _measure(expected.tensor, actual.tensor, tolerance)
        problem = problem or ("" if agrees else "values")
    return LeafComparison(direction, actual.leaf, problem, actual.shape, actual.dtype, expected, metrics)


def is_within(expected: torch.Tensor, actual: torch.Tensor, atol: float) -> bool:
    """Tell whether no element differs by more than ``atol``, so that :func:`compare_leaf` need not be asked.

    False too for what takes a closer look: inf and nan, integers, empty tensors, other shapes, dtypes or devices.
    """
    is_plain = (
        (expected.is_floating_point() or expected.is_complex())
        and expected.numel() > 0
        and (expected.shape, expected.dtype, expected.device) == (actual.shape, actual.dtype, actual.device)
    )
    peak = _distance(expected, actual, is_brief=True)[0] if is_plain else math.inf
    return peak <= atol and math.isfinite(peak)


def _measure(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> tuple[bool, Metrics | None]:
    if expected.device != actual.device:
        actual = actual.to(expected.device)
    exact = not (expected.is_floating_point() or expected.is_complex()) and expected.dtype == actual.dtype
    if not expected.numel() or (exact and torch.equal(expected, actual)):
        return True, None
    if expected.is_complex() != actual.is_complex():
        return False, None
    peak, norm = _distance(expected, actual)
    if not peak:
        return _measure_wide_integers(expected, actual) if exact else (True, None)
    if math.isfinite(peak):
        return _measure_finite(expected, actual, (peak, norm), tolerance)
    return _measure_with_holes(widen(expected), widen(actual), tolerance)


def _measure_finite(
    expected: torch.Tensor, actual: torch.Tensor, distance: tuple[float, float], tolerance: Tolerance
) -> tuple[bool, Metrics]:
    (peak, norm), norm_e = distance, _norm(expected)
    count = expected.numel() * (2 if expected.is_complex() else 1)
    scale = norm_e / math.sqrt(count) if tolerance.scaled else 0.0
    atol = tolerance.atol * (max(1.0, scale) if math.isfinite(scale) else 1.0)
    relative_l2 = norm / norm_e if norm_e else math.inf
    rmse = norm / math.sqrt(count)
    if peak <= atol:  # within the absolute tolerance alone: nothing further decides
        return True, Metrics(0, count, peak, (), atol, math.nan, (), rmse, relative_l2, math.nan, 0, 0)
    e, a = widen(expected), widen(actual)
    size = torch.sub(a, e).abs_()
    magnitude = e.abs()
    excess = size / magnitude.mul(tolerance.rtol).add_(atol)  # nothing over nothing is nan, and no mismatch
    mismatched = int((excess > 1).sum())
    is_noise = 0 < tolerance.noise >= relative_l2 and float(excess.nan_to_num_(nan=0.0).max()) <= NOISE_REACH
    where = int(size.argmax())
    relative = torch.where(magnitude > 0, size / magnitude, torch.zeros_like(size))
    where_relative = int(relative.argmax())
    metrics = Metrics(
        mismatched,
        e.numel(),
        peak,
        _index(where, e.shape),
        atol + tolerance.rtol * float(magnitude.flatten()[where]),
        float(relative.flatten()[where_relative]),
        _index(where_relative, e.shape),
        rmse,
        relative_l2,
        _cosine(e, a),
        0,
        0,
    )
    return mismatched == 0 or is_noise, metrics


def _measure_wide_integers(expected: torch.Tensor, actual: torch.Tensor) -> tuple[bool, Metrics]:
    """Measure integers that differ by less than float64 can tell."""
    differ = expected != actual
    position = int(differ.flatten().int().argmax())
    index = _index(position, expected.shape)
    pair = int(expected.flatten()[position]), int(actual.flatten()[position])
    size = float(abs(pair[1] - pair[0]))
    relative = size / abs(pair[0])
    mismatched, total = int(differ.sum()), expected.numel()
    return False, Metrics(
        mismatched, total, size, index, 0.0, relative, index, size * math.sqrt(mismatched / total), relative, 1.0, 0, 0
    )


def _measure_with_holes(e: torch.Tensor, a: torch.Tensor, tolerance: Tolerance) -> tuple[bool, Metrics]:
    """Measure tensors that hold inf or nan: the same ones in the same places agree, the rest is measured."""
    same = (e == a) | (torch.isnan(e) & torch.isnan(a))
    finite = torch.isfinite(e) & torch.isfinite(a)
    torn = ~finite & ~same
    holes = int(torn.sum())
    zeros = torch.zeros((), dtype=e.dtype, device=e.device)
    fe, fa = torch.where(finite, e, zeros), torch.where(finite, a, zeros)
    agrees, metrics = _measure_finite(fe, fa, _distance(fe, fa), tolerance)
    metrics = metrics._replace(
        mismatched=metrics.mismatched + holes,
        non_finite_expected=int((~torch.isfinite(e)).sum()),
        non_finite_actual=int((~torch.isfinite(a)).sum()),
    )
    if holes:
        metrics = metrics._replace(max_abs=math.inf, max_abs_index=_index(int(torn.flatten().int().argmax()), e.shape))
    return agrees and not holes, metrics


def _distance(expected: torch.Tensor, actual: torch.Tensor, *, is_brief: bool = False) -> tuple[float, float]:
    """Return the greatest absolute difference and the norm of all, 0 for the norm where it is to be brief.

    Both are inf where a difference is not finite.
    """
    peak = squares = 0.0
    room = None
    for pair in _pieces(expected, actual):
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


def _norm(tensor: torch.Tensor) -> float:
    return math.sqrt(sum(_squares(widen(piece).flatten()) for piece, _ in _pieces(tensor, tensor)))


def _cosine(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return the cosine similarity, ten times as fast as torch's own for one long pair; 0 where a tensor is zero."""
    e, a = (each.flatten().double() for each in (expected, actual))
    e, a = (each / peak if (peak := float(each.abs().amax())) else each for each in (e, a))  # no square overflows
    norms = torch.dot(e, e) * torch.dot(a, a)
    return float(torch.dot(e, a) / norms.sqrt()) if norms else 0.0


def _squares(flat: torch.Tensor) -> float:
    squares = float(torch.dot(flat, flat))
    if _TINY < squares < math.inf:
        return squares
    wide = flat.double()  # the squares left the range of float32
    return float(torch.dot(wide, wide))


def _pieces(expected: torch.Tensor, actual: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield two tensors of one shape in pieces, the largest first; whole where they are small or on a device."""
    if expected.numel() <= _PIECE or expected.device.type != "cpu":
        yield expected, actual
    elif expected.is_contiguous() and actual.is_contiguous():
        yield from zip(torch.split(expected.view(-1), _PIECE), torch.split(actual.view(-1), _PIECE), strict=True)
    else:
        rows = max(1, _PIECE * len(expected) // expected.numel())
        for e, a in zip(torch.split(expected, rows), torch.split(actual, rows), strict=True):
            yield from _pieces(e, a) if rows > 1 else _pieces(e[0], a[0])


def _index(position: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.append(rest)
    return tuple(reversed(index))

"""Two tensors side by side: equal first, measured only where they are not.

Most tensors of a passing check are equal bit by bit. One subtraction and the extremes of the difference settle those
and everything within the absolute tolerance; the full measurements follow for the rest.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.parity.tolerance import NOISE_REACH
from pytest_tfdebug.records import LeafComparison, Metrics
from pytest_tfdebug.tracing.statistics import widen

if TYPE_CHECKING:
    from pytest_tfdebug.parity.tolerance import Tolerance
    from pytest_tfdebug.records import Direction, Problem, TensorRecord


#: Below this norm the squares of float32 numbers may have vanished.
_TINY = 1e-15


@torch.no_grad()
def compare_leaf(
    direction: Direction, actual: TensorRecord, expected: TensorRecord, tolerance: Tolerance
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
        agrees, metrics = _measure(expected.tensor, actual.tensor, tolerance)
        problem = problem or ("" if agrees else "values")
    return LeafComparison(direction, actual.leaf, problem, actual.shape, actual.dtype, expected, metrics)


def _measure(expected: torch.Tensor, actual: torch.Tensor, tolerance: Tolerance) -> tuple[bool, Metrics | None]:
    if expected.device != actual.device:
        actual = actual.to(expected.device)
    if not expected.numel():
        return True, None
    exact = not (expected.is_floating_point() or expected.is_complex()) and expected.dtype == actual.dtype
    if exact and torch.equal(expected, actual):
        return True, None
    if expected.is_complex() != actual.is_complex():
        return False, None
    e, a = widen(expected), widen(actual)
    difference = torch.sub(a, e)
    lowest, highest = torch.stack(torch.aminmax(difference)).tolist()
    if lowest == 0 and highest == 0:
        return _measure_wide_integers(expected, actual) if exact else (True, None)
    if math.isfinite(lowest) and math.isfinite(highest):
        return _measure_finite(e, a, difference, tolerance)
    return _measure_with_holes(e, a, tolerance)


def _measure_finite(
    e: torch.Tensor, a: torch.Tensor, difference: torch.Tensor, tolerance: Tolerance
) -> tuple[bool, Metrics]:
    size = difference.abs_()
    atol = _effective_atol(e, tolerance)
    peak, norm, norm_e = torch.stack([size.max(), _norm(size), _norm(e)]).tolist()
    if not (_TINY < norm < math.inf and (_TINY < norm_e < math.inf or not norm_e)):  # squares left the range of float32
        norm, norm_e = float(_norm(size.double())), float(_norm(e.double()))
    relative_l2 = norm / norm_e if norm_e else math.inf
    rmse = norm / math.sqrt(e.numel())
    if peak <= atol:  # within the absolute tolerance alone: nothing further decides
        metrics = Metrics(0, e.numel(), peak, (), atol, math.nan, (), rmse, relative_l2, math.nan, 0, 0)
        return True, metrics
    magnitude = e.abs()
    excess = size / magnitude.mul(tolerance.rtol).add_(atol)  # nothing over nothing is nan, and no mismatch
    mismatched = int((excess > 1).sum())
    is_noise = 0 < tolerance.noise >= relative_l2 and float(excess.nan_to_num_(nan=0.0).max()) <= NOISE_REACH
    where = int(size.argmax())
    relative = torch.where(magnitude > 0, size / magnitude, torch.zeros_like(size))
    where_relative = int(relative.argmax())
    cosine = torch.nn.functional.cosine_similarity(a.flatten().double(), e.flatten().double(), dim=0)
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
        float(cosine),
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
    agrees, metrics = _measure_finite(fe, fa, torch.sub(fa, fe), tolerance)
    metrics = metrics._replace(
        mismatched=metrics.mismatched + holes,
        non_finite_expected=int((~torch.isfinite(e)).sum()),
        non_finite_actual=int((~torch.isfinite(a)).sum()),
    )
    if holes:
        metrics = metrics._replace(max_abs=math.inf, max_abs_index=_index(int(torn.flatten().int().argmax()), e.shape))
    return agrees and not holes, metrics


def _effective_atol(e: torch.Tensor, tolerance: Tolerance) -> float:
    if not tolerance.scaled:
        return tolerance.atol
    norm = float(_norm(e))
    if norm == math.inf:
        norm = float(_norm(e.double()))
    rms = norm / math.sqrt(e.numel())
    return tolerance.atol * max(1.0, rms) if math.isfinite(rms) else tolerance.atol


def _norm(tensor: torch.Tensor) -> torch.Tensor:
    norm: torch.Tensor = torch.linalg.vector_norm(tensor)
    return norm


def _index(position: int, shape: torch.Size) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        position, rest = divmod(position, size)
        index.append(rest)
    return tuple(reversed(index))

"""A tensor beside the digest of the one it is held to: what was kept is measured, the rest is estimated.

The elements that were kept are compared one by one. Every other element goes into a sum: where all differences are
allowed, a sum of them with random signs exceeds ``z`` times the root of the sum of their squares in
``2 exp(-z**2 / 2)`` of the cases (Hoeffding 1963). How much of what is allowed the differences use is taken from the
kept elements.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import torch

from pytest_tfdebug.parity.tensors.tolerance import NOISE_REACH
from pytest_tfdebug.records import Metrics
from pytest_tfdebug.tensors import widen
from pytest_tfdebug.tracing.values.digest import BUCKETS, digest_of, place_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.parity.tensors.tolerance import Tolerance
    from pytest_tfdebug.records import Digest, TensorRecord

#: Standard deviations that a sum of allowed differences stays within.
_DEVIATIONS = 6.0
#: A share of the elements that none of ``n`` showed is below this over ``n``, in 95 % of the cases.
_UNSEEN = 3.0
#: Relative rounding of a sum that is stored as float32.
_STORED = 2.4e-7


#: The most that is allowed of one element of each sum, and the root of the sum of the squares of what is of each.
_Allowed: TypeAlias = "tuple[torch.Tensor, torch.Tensor]"


def measure_digest(
    expected: TensorRecord, actual: torch.Tensor, tolerance: Tolerance
) -> tuple[bool, Metrics | None] | None:
    """Compare a tensor with the digest of another."""
    kept = expected.digest
    if kept is None:
        return None
    if expected.dtype.startswith("complex") != actual.is_complex():
        return False, None
    own, wide = digest_of(actual, kept.elements.numel(), at=kept.top_places), widen(actual)

    def allowed(atol: float) -> _Allowed:
        largest, squares = torch.zeros(BUCKETS, dtype=torch.float64), torch.zeros(BUCKETS, dtype=torch.float64)
        for rows, _ in rows_of(wide.reshape(-1), BUCKETS):
            each = rows.abs().nan_to_num_(nan=0.0, posinf=0.0).mul_(tolerance.rtol).add_(atol)
            largest = torch.maximum(largest, each.amax(0).cpu())
            squares += each.square_().sum(0).cpu()
        return largest, squares.sqrt()

    def holes() -> int:
        is_whole = not actual.is_floating_point() or bool(torch.isfinite(wide.sum()))  # read faster than each element
        return 0 if is_whole else int((~torch.isfinite(wide)).sum())

    return _measured(expected, kept, own, tolerance, holes=holes, allowed=allowed)


def measure_digests(
    expected: TensorRecord, actual: TensorRecord, tolerance: Tolerance
) -> tuple[bool, Metrics | None] | None:
    """Compare a tensor or digest with the digest of another; see :func:`measure_digest`."""
    own, kept, known = actual.digest, expected.digest, actual.statistics
    if own is None:
        return None
    if kept is None and expected.tensor is not None:
        kept = digest_of(expected.tensor, own.elements.numel(), at=own.top_places)
    if kept is None or expected.dtype.startswith("complex") != actual.dtype.startswith("complex"):
        return None
    count = min(kept.elements.numel(), own.elements.numel())
    tops = kept.top_places if torch.equal(kept.top_places, own.top_places) else kept.top_places[:0]
    own, kept = (
        replace(each, elements=each.elements[:count], tops=each.tops[: len(tops)], top_places=tops)
        for each in (own, kept)
    )
    norm, buckets = own.norm, kept.sums.numel()

    def allowed(atol: float) -> _Allowed:
        highest = max(abs(known.min), abs(known.max)) if known is not None else norm
        squares = 2 * (math.prod(actual.shape) / buckets * atol**2 + (tolerance.rtol * norm) ** 2 / buckets)
        each = torch.ones(buckets, dtype=torch.float64)
        return each * (atol + tolerance.rtol * highest), each * math.sqrt(squares)

    def holes() -> int:
        return known.non_finite if known is not None else 0

    return _measured(expected, kept, own, tolerance, holes=holes, allowed=allowed)


def _measured(
    expected: TensorRecord,
    kept: Digest,
    own: Digest,
    tolerance: Tolerance,
    *,
    holes: Callable[[], int],
    allowed: Callable[[float], _Allowed],
) -> tuple[bool, Metrics | None]:
    """Return whether two digests that were made in the same way agree, and the metrics."""
    if _is_equal(kept, own):
        return True, None
    shape = (*expected.shape, 2) if expected.dtype.startswith("complex") else expected.shape
    total, sampled, is_exact = math.prod(shape), kept.elements.numel(), not kept.sums.is_floating_point()
    off, known = _apart(kept.sums, own.sums), expected.statistics
    e, a = (torch.cat((each.elements, each.tops)).double() for each in (kept, own))
    torn = ~(torch.isfinite(e) & torch.isfinite(a)) & (e != a) & ~(torch.isnan(e) & torch.isnan(a))
    size, magnitude = (a - e).abs(), e.abs()
    size = size.masked_fill(~torch.isfinite(size), 0.0)
    atol = tolerance.absolute(kept.norm / math.sqrt(total))
    bound = atol + tolerance.rtol * magnitude.nan_to_num(nan=0.0, posinf=0.0)
    excess = (size / bound).nan_to_num(nan=0.0, posinf=math.inf)
    wrong = (excess > 1) | torn
    beyond = _beyond(off, total, atol, excess[:sampled], None if is_exact else allowed)
    norm = float(torch.linalg.vector_norm(size if is_exact else off))
    relative_l2 = norm / kept.norm if kept.norm else (math.inf if norm else 0.0)
    is_noise = 0 < tolerance.noise >= relative_l2 and beyond.share_of_noise <= 1 and not bool(torn.any())
    is_noise &= float(excess.max()) <= NOISE_REACH

    def index(place: int) -> tuple[int, ...]:
        if place < sampled:
            return place_of(place, shape, sampled)
        return index_of(int(kept.top_places[place - sampled]), shape)

    apart = size.masked_fill(torn, math.inf)
    relative = (size / magnitude).masked_fill((magnitude == 0) | ~torch.isfinite(magnitude), 0.0)
    worst, farthest = int(apart.argmax()), int(relative.argmax())
    largest: tuple[float, tuple[int, ...], float] = float(apart[worst]), index(worst), float(bound[worst])
    if beyond.share > 1 and not bool(wrong.any()):
        largest = beyond.size, (), beyond.allowed
    share = round(float(wrong[:sampled].double().mean()) * total)
    metrics = Metrics(
        max(share, int(wrong.sum()), int(beyond.share > 1)),
        total,
        *largest,
        float(relative[farthest]),
        index(farthest),
        norm / math.sqrt(total),
        relative_l2,
        _cosine(kept.norm, own.norm, norm),
        known.non_finite if known is not None else 0,
        holes(),
        sampled=len(size),
    )
    return (not bool(wrong.any()) and beyond.share <= 1) or is_noise, metrics


def index_of(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of an element by its position in the order of the elements."""
    return tuple(int(place) for place in np.unravel_index(position, shape))


class _Beyond(NamedTuple):
    """The sum that differs most, by what the elements that were not kept may come to."""

    share: float  # its difference over what is allowed
    share_of_noise: float  # likewise where one element may leave its tolerance as far as rounding does
    size: float = 0.0  # its difference: that of an element, where one differs alone
    allowed: float = 0.0  # what is allowed of the element of which most is


def _beyond(
    off: torch.Tensor, total: int, atol: float, excess: torch.Tensor, allowed: Callable[[float], _Allowed] | None
) -> _Beyond:
    """Return the sum that differs most, by what differences that are allowed come to; None of whole numbers."""
    if allowed is None:
        share = math.inf if bool(off.any()) else 0.0
        return _Beyond(share, share, 1.0)  # by a whole number
    used = float(excess.square().mean()) + _UNSEEN / excess.numel()
    fewest = total // off.numel()  # of the elements of a sum, each of which is allowed atol and more
    if not bool((off > atol * (1 + _DEVIATIONS * math.sqrt(used * fewest))).any()):
        return _Beyond(0.0, 0.0)
    largest, norm = allowed(atol)
    of_all = _DEVIATIONS * math.sqrt(used) * norm
    shares, of_noise = off / (largest + of_all), off / (NOISE_REACH * largest + of_all)
    place = int(shares.argmax())
    return _Beyond(float(shares[place]), float(of_noise.max()), float(off[place]), float(largest[place]))


def _cosine(e: float, a: float, apart: float) -> float:
    """Return the cosine of two tensors, from their norms and that of their difference."""
    if not (e and a and math.isfinite(e * a)):
        return 0.0
    return max(-1.0, min(1.0, (e * e + a * a - apart * apart) / (2 * e * a)))


def _is_equal(kept: Digest, own: Digest) -> bool:
    """Tell whether nothing differs in what was kept."""
    return (
        all(
            one.dtype == other.dtype and torch.equal(one, other)
            for one, other in ((kept.elements, own.elements), (kept.tops, own.tops))
        )
        and kept.sums.is_floating_point() == own.sums.is_floating_point()
        and not bool(_apart(kept.sums, own.sums).any())
    )


def _apart(theirs: torch.Tensor, mine: torch.Tensor) -> torch.Tensor:
    """Return how far sums are apart, 0 for what their rounding explains; 1 where they are to be equal and are not."""
    if theirs.is_floating_point() != mine.is_floating_point():
        return torch.zeros(1, dtype=torch.float64)  # of two dtypes: that is told, and the elements are compared
    if not theirs.is_floating_point():
        return (theirs != mine).double()
    stored = theirs.double()
    off = (mine.double() - stored).abs().nan_to_num(nan=0.0)
    return off.masked_fill(off <= _STORED * stored.abs(), 0.0)

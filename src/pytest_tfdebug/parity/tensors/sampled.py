"""A tensor beside the digest of the one it is held to: what was kept is measured, the rest is estimated.

The elements that were kept are compared one by one. Every other element goes into a sum: where all differences are
allowed, a sum of them with random signs exceeds ``z`` times the root of the sum of their squares in
``2 exp(-z**2 / 2)`` of the cases (Hoeffding 1963). How much of what is allowed the differences use is taken from the
kept elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.parity.tensors.pieces import index_of
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


def measure_digest(
    expected: TensorRecord, actual: torch.Tensor, tolerance: Tolerance
) -> tuple[bool, Metrics | None] | None:
    """Compare a tensor with the digest of another."""
    kept = expected.digest
    if kept is None:
        return None
    if expected.dtype.startswith("complex") != actual.is_complex():
        return False, None
    own = digest_of(actual, kept.elements.numel(), at=kept.top_places)
    if _is_equal(kept, own):
        return True, None

    def allowed(atol: float) -> _Allowed:
        largest, squares = torch.zeros(BUCKETS, dtype=torch.float64), torch.zeros(BUCKETS, dtype=torch.float64)
        for rows, _ in rows_of(widen(actual).reshape(-1), BUCKETS):
            each = rows.abs().nan_to_num_(nan=0.0, posinf=0.0).mul_(tolerance.rtol).add_(atol)
            largest = torch.maximum(largest, each.amax(0).cpu())
            squares += each.square_().sum(0).cpu()
        return _Allowed(largest, squares.sqrt())

    return _Looked(expected, kept, own, _holes(actual)).measure(tolerance, allowed)


def _holes(tensor: torch.Tensor) -> int:
    """Return how many elements are inf or nan: one of them shows in the sum of all, which is read faster."""
    wide = widen(tensor)
    return (
        0 if not tensor.is_floating_point() or bool(torch.isfinite(wide.sum())) else int((~torch.isfinite(wide)).sum())
    )


def measure_digests(
    expected: TensorRecord, actual: TensorRecord, tolerance: Tolerance
) -> tuple[bool, Metrics | None] | None:
    """Compare a tensor or digest with the digest of another; see :func:`measure_digest`."""
    own, kept = actual.digest, expected.digest
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
    holes = actual.statistics.non_finite if actual.statistics is not None else 0
    norm, buckets = own.norm, kept.sums.numel()

    def allowed(atol: float) -> _Allowed:
        total = math.prod(actual.shape) / buckets
        known = actual.statistics
        highest = max(abs(known.min), abs(known.max)) if known is not None else norm
        squares = 2 * (total * atol**2 + (tolerance.rtol * norm) ** 2 / buckets)
        each = torch.ones(buckets, dtype=torch.float64)
        return _Allowed(each * (atol + tolerance.rtol * highest), each * math.sqrt(squares))

    return (True, None) if _is_equal(kept, own) else _Looked(expected, kept, own, holes).measure(tolerance, allowed)


class _Allowed(NamedTuple):
    """What is allowed of the elements of each sum."""

    largest: torch.Tensor  # the most that is allowed of one of them
    norm: torch.Tensor  # root of the sum of the squares of what is allowed of each


@dataclass
class _Elements:
    """The kept elements of both sides, float64, the largest of the rows last."""

    expected: torch.Tensor  # the kept ones
    actual: torch.Tensor  # those of the tensor under test in the same places
    sampled: int  # how many of them stand in seeded places

    def torn(self) -> torch.Tensor:
        """Tell where inf or nan differ."""
        e, a = self.expected, self.actual
        holes = ~(torch.isfinite(e) & torch.isfinite(a))
        return holes & (e != a) & ~(torch.isnan(e) & torch.isnan(a))

    def differences(self) -> torch.Tensor:
        """Return the absolute differences, 0 where one side is not finite."""
        size = (self.actual - self.expected).abs()
        return size.masked_fill(~torch.isfinite(size), 0.0)


class _Looked:
    """Two digests that were made in the same way."""

    def __init__(self, expected: TensorRecord, kept: Digest, own: Digest, holes: int) -> None:
        self._kept, self._own, self._expected, self._holes = kept, own, expected, holes
        self._shape = (*expected.shape, 2) if expected.dtype.startswith("complex") else expected.shape
        self._total = math.prod(self._shape)
        theirs, mine = (torch.cat((each.elements, each.tops)) for each in (kept, own))
        self._elements = _Elements(theirs.double(), mine.double(), kept.elements.numel())
        self._is_exact = not kept.sums.is_floating_point()
        self._off = _apart(kept.sums, own.sums)

    def measure(self, tolerance: Tolerance, allowed: Callable[[float], _Allowed]) -> tuple[bool, Metrics]:
        """Return whether the tensor agrees, and the metrics."""
        norm_e = self._kept.norm
        atol = tolerance.absolute(norm_e / math.sqrt(self._total))
        size, torn = self._elements.differences(), self._elements.torn()
        bound = atol + tolerance.rtol * self._elements.expected.abs().nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
        excess = (size / bound).nan_to_num(nan=0.0, posinf=math.inf)
        wrong = (excess > 1) | torn
        beyond = self._beyond(atol, excess[: self._elements.sampled], allowed)
        norm = float(torch.linalg.vector_norm(size if self._is_exact else self._off))
        relative_l2 = norm / norm_e if norm_e else (math.inf if norm else 0.0)
        is_noise = (
            0 < tolerance.noise >= relative_l2
            and float(excess.max()) <= NOISE_REACH
            and beyond.share_of_noise <= 1
            and not bool(torn.any())
        )
        agrees = (not bool(wrong.any()) and beyond.share <= 1) or is_noise
        largest = self._largest(size, torn, bound)
        if beyond.share > 1 and not bool(wrong.any()):
            largest = beyond.size, (), beyond.allowed
        known = self._expected.statistics
        return agrees, Metrics(
            self._mismatched(wrong, beyond),
            self._total,
            *largest,
            *self._relative(size),
            norm / math.sqrt(self._total),
            relative_l2,
            self._cosine(norm),
            known.non_finite if known is not None else 0,
            self._holes,
            sampled=len(size),
        )

    def _mismatched(self, wrong: torch.Tensor, beyond: _Beyond) -> int:
        sampled = self._elements.sampled
        share = float(wrong[:sampled].double().mean()) if sampled else 0.0
        return max(round(share * self._total), int(wrong.sum()), int(beyond.share > 1))

    def _beyond(self, atol: float, excess: torch.Tensor, allowed: Callable[[float], _Allowed]) -> _Beyond:
        """Return the sum that differs most, by what differences that are allowed come to."""
        if self._is_exact:
            share = math.inf if bool(self._off.any()) else 0.0
            return _Beyond(share, share, 1.0, 0.0)  # by a whole number
        used = float(excess.square().mean()) + _UNSEEN / excess.numel() if excess.numel() else 1.0
        fewest = self._total // self._off.numel()  # of the elements of a sum, each of which is allowed atol and more
        if not bool((self._off > atol * (1 + _DEVIATIONS * math.sqrt(used * fewest))).any()):
            return _Beyond(0.0, 0.0, 0.0, 0.0)
        largest, norm = allowed(atol)
        of_all = _DEVIATIONS * math.sqrt(used) * norm
        shares, of_noise = self._off / (largest + of_all), self._off / (NOISE_REACH * largest + of_all)
        place = int(shares.argmax())
        return _Beyond(float(shares[place]), float(of_noise.max()), float(self._off[place]), float(largest[place]))

    def _index(self, place: int) -> tuple[int, ...]:
        sampled = self._elements.sampled
        if place >= sampled:
            return index_of(int(self._kept.top_places[place - sampled]), self._shape)
        return place_of(place, self._shape, sampled)

    def _largest(
        self, size: torch.Tensor, torn: torch.Tensor, bound: torch.Tensor
    ) -> tuple[float, tuple[int, ...], float]:
        size = size.masked_fill(torn, math.inf)
        place = int(size.argmax())
        return float(size[place]), self._index(place), float(bound[place])

    def _relative(self, size: torch.Tensor) -> tuple[float, tuple[int, ...]]:
        magnitude = self._elements.expected.abs()
        share = (size / magnitude).masked_fill((magnitude == 0) | ~torch.isfinite(magnitude), 0.0)
        place = int(share.argmax())
        return float(share[place]), self._index(place)

    def _cosine(self, norm: float) -> float:
        """Return the cosine of both, from their norms and that of their difference."""
        e, a = self._kept.norm, self._own.norm
        if not (e and a and math.isfinite(e * a)):
            return 0.0
        return max(-1.0, min(1.0, (e * e + a * a - norm * norm) / (2 * e * a)))


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


class _Beyond(NamedTuple):
    """The sum that differs most, by what the elements that were not kept may come to."""

    share: float  # its difference over what is allowed
    share_of_noise: float  # likewise where one element may leave its tolerance as far as rounding does
    size: float  # its difference: that of an element, where one differs alone
    allowed: float  # what is allowed of the element of which most is

"""What is said of a tensor that is not kept whole: its range and mean, some elements, and sums of all of them.

Places and signs follow from the number of elements alone, so that nothing but the numbers is stored, and a port's
tensor is looked at in the same places.
The sums are an AMS sketch (Alon, Matias, Szegedy 1996, "The space complexity of approximating the frequency moments"):
with random signs the squares of the differences of the sums add up, on average, to the squares of the differences of
all elements.
"""

from __future__ import annotations

import math
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch

from pytest_tfdebug.records import Digest, Part, Statistics, TensorRecord
from pytest_tfdebug.tensors import norm_of, widen
from pytest_tfdebug.tracing.record.ranks import within

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


_NAN = float("nan")
_EMPTY = Statistics(_NAN, _NAN, _NAN, _NAN, 0)


def summarize(records: Iterable[TensorRecord]) -> None:
    """Fill in the statistics of the records that have none; a tensor that several records share is read once."""
    known: dict[int, Statistics] = {}
    for record in records:
        if record.statistics is None and record.tensor is not None:
            key = id(record.tensor)
            if key not in known:
                known[key] = statistics(record.tensor)
            record.statistics = known[key]


@torch.no_grad()
def statistics(tensor: torch.Tensor) -> Statistics:
    """Return the summary of a tensor, which is computed in float64, a piece at a time."""
    if not tensor.numel():
        return _EMPTY
    pieces = torch.split(tensor.reshape(-1), _PIECE if tensor.is_cpu else _PIECE_OF_DEVICE)
    count = tensor.numel() * (2 if tensor.is_complex() else 1)
    read = [torch.stack([*torch.aminmax(it), it.sum(), it.isfinite().sum()]) for it in map(_wide, pieces)]
    lows, highs, sums, finite = torch.stack(read).unbind(1)
    mean = sums.sum() / count
    squares = torch.stack([(_wide(piece) - mean).square().sum() for piece in pieces]).sum()
    lowest, highest, middle, spread = torch.stack([lows.min(), highs.max(), mean, squares]).tolist()
    std = math.sqrt(spread / (count - 1)) if count > 1 and math.isfinite(spread) else _NAN
    return Statistics(lowest, highest, middle, std, count - int(finite.sum()))


def _wide(piece: torch.Tensor) -> torch.Tensor:
    return widen(piece).double().flatten()


#: Sums of a tensor of floating point, and of one whose elements are equal or not.
BUCKETS, EXACT_BUCKETS = 32, 4
#: Elements of a piece that is widened at once: what a processor's cache holds, and what keeps an accelerator busy.
_PIECE, _PIECE_OF_DEVICE = 2**19, 2**23
#: Numbers that stand in a sum for nan, inf and -inf: one that moves changes two sums.
_HOLES = {"nan": 1.0, "posinf": 2.0, "neginf": -2.0}
#: Bytes of an element -> a dtype of whole numbers that every operator takes.
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_FLOAT32_MAX = 3e38
_NOWHERE = torch.empty(0, dtype=torch.int64)


def digest_of(tensor: torch.Tensor, kept: int, *, at: torch.Tensor = _NOWHERE) -> Digest:
    """Return the digest of a tensor, on the CPU; ``at`` are the places of further elements, see :func:`top_places`."""
    sums, norm = sums_and_norm(tensor)
    is_narrow = sums.is_floating_point() and tensor.dtype not in (torch.float64, torch.complex128)
    if is_narrow and bool((sums.abs() < _FLOAT32_MAX).all()):
        sums = sums.float()
    tops = _picked(_flat(tensor), at)
    return Digest(elements_of(tensor, kept).cpu(), sums, norm, tops.cpu(), at.cpu())


def elements_of(tensor: torch.Tensor, kept: int) -> torch.Tensor:
    """Return the elements of a tensor at its first seeded places; all of them, in order, where there are no more."""
    flat = _flat(tensor)
    return flat if kept >= flat.numel() else _picked(flat, _places_on(flat.device, flat.numel(), kept))


def place_of(position: int, shape: tuple[int, ...], kept: int) -> tuple[int, ...]:
    """Return the index in a tensor of one of the elements of its digest."""
    total = math.prod(shape)
    place = position if kept >= total else int(places(total, kept)[position])
    return tuple(int(each) for each in np.unravel_index(place, shape))


@lru_cache(maxsize=256)
def places(total: int, kept: int) -> torch.Tensor:
    """Return the first seeded places among a number of elements, int64: SplitMix64 seeded with that number."""
    return torch.from_numpy((_scrambled(total, kept) % np.uint64(total)).astype(np.int64))


@lru_cache(maxsize=256)
def _places_on(device: torch.device, total: int, kept: int) -> torch.Tensor:
    return places(total, kept).to(device)


def top_places(tensor: torch.Tensor, rows: int, each: int) -> torch.Tensor:
    """Return where the largest elements of some rows of a tensor stand, in the order of the elements, int64."""
    width = tensor.shape[-1] if tensor.dim() else 1
    if not rows or not each or not tensor.is_floating_point():
        return _NOWHERE
    table = tensor.detach().reshape(-1, width)
    chosen = torch.arange(rows, device=tensor.device) * len(table) // rows
    columns = table[chosen].float().topk(min(each, width), dim=1).indices
    return (chosen[:, None] * width + columns).flatten().cpu()


def sums_and_norm(tensor: torch.Tensor) -> tuple[torch.Tensor, float]:
    """Return the sums of a tensor's elements with seeded signs, and the root of the sum of the squares of the finite.

    The sums are on the CPU.

    Element ``i`` goes into bucket ``i % 32`` with the sign of row ``i // 32``, as float64. Whole numbers and truth
    values, which are equal or not, go into four buckets, each row times a seeded odd number, modulo 2**64: int64. Their
    norm is 0.
    """
    flat = _flat(tensor)
    if not tensor.is_floating_point() and not tensor.is_complex():
        return _exact_sums(flat).cpu(), 0.0
    sums, norm = torch.zeros(BUCKETS, dtype=torch.float64, device=flat.device), 0.0
    for rows, signs in rows_of(flat, BUCKETS):
        sums += signs @ rows
        norm = math.hypot(norm, norm_of(rows.view(-1)))
    found = sums.cpu()
    if not bool(torch.isfinite(found).all()):
        sums = torch.zeros_like(sums)
        for rows, signs in rows_of(flat, BUCKETS):
            sums += signs @ rows.nan_to_num(**_HOLES)
        found = sums.cpu()
    return found, min(norm, sys.float_info.max)


def _exact_sums(flat: torch.Tensor) -> torch.Tensor:
    sums = torch.zeros(EXACT_BUCKETS, dtype=torch.int64, device=flat.device)
    for start, piece in _pieces(flat, EXACT_BUCKETS):
        odd = _scrambled(0, len(piece), start // EXACT_BUCKETS) | np.uint64(1)
        sums += (piece.to(torch.int64) * torch.from_numpy(odd.astype(np.int64)).to(flat.device)[:, None]).sum(0)
    return sums


def rows_of(flat: torch.Tensor, buckets: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield a flat tensor of floating point in rows of buckets, as float64, and the seeded sign of each row."""
    for start, piece in _pieces(flat, buckets):
        yield piece.double(), _signs(start // buckets, len(piece), flat.device)


def _pieces(flat: torch.Tensor, buckets: int) -> Iterator[tuple[int, torch.Tensor]]:
    most = _PIECE if flat.is_cpu else _PIECE_OF_DEVICE
    for start in range(0, flat.numel(), most):
        piece = flat[start : start + most]
        rest = -piece.numel() % buckets
        if rest:
            piece = torch.cat((piece, piece.new_zeros(rest)))
        yield start, piece.view(-1, buckets)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    dense = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor.resolve_neg()
    return dense.detach().reshape(-1)


def _picked(flat: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Return elements by their places, as bits: torch 2.6 takes no index of float8 and of wide unsigned numbers."""
    return flat.view(_BITS[flat.element_size()])[at.to(flat.device)].view(flat.dtype)


@lru_cache(maxsize=64)
def _signs(first: int, count: int, device: torch.device) -> torch.Tensor:
    made = torch.from_numpy(1.0 - 2.0 * (_scrambled(0, count, first) >> np.uint64(63)).astype(np.float64))
    return made.to(device)


def _scrambled(seed: int, count: int, first: int = 0) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Return numbers of SplitMix64 (Steele, Lea, Flood 2014), which no version of a library changes."""
    with np.errstate(over="ignore"):
        steps = np.arange(first + 1, first + count + 1, dtype=np.uint64)
        state = np.uint64(seed) + steps * np.uint64(0x9E3779B97F4A7C15)
        state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        scrambled: np.ndarray[tuple[int], np.dtype[np.uint64]] = state ^ (state >> np.uint64(31))
    return scrambled


def digest_of_part(
    held: torch.Tensor, part: Part, kept: int, at: torch.Tensor = _NOWHERE
) -> tuple[Digest, torch.Tensor]:
    """Return the digest of a whole tensor with zeros for what is not held, and which of its elements and tops are."""
    whole, owner = held, torch.ones(part.shape, dtype=torch.bool)
    if part.shape != tuple(held.shape):
        whole, owner = held.new_zeros(part.shape), torch.zeros(part.shape, dtype=torch.bool)
        within(whole, part, held.shape).copy_(held)
        within(owner, part, held.shape).fill_(True)  # noqa: FBT003 - torch's own
    if held.is_complex():
        owner = torch.stack((owner, owner), -1)
    digest = digest_of(whole, kept, at=at)
    return digest, torch.cat((elements_of(owner, kept), owner.reshape(-1)[at]))

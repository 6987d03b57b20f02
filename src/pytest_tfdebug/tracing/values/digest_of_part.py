"""The digest of a whole tensor of which only a part is here: zeros stand for the rest.

Digests of all parts put together are the digest of the whole: each element stands in one of them, and sums add up.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch

from pytest_tfdebug.records import Digest, Part
from pytest_tfdebug.tracing.record.ranks import within
from pytest_tfdebug.tracing.values.digest import (
    BUCKETS,
    digest_of,
    elements_of,
    float_sums,
    places,
    row_signs,
    stored,
)


class _AxisRun(NamedTuple):
    """The elements of a part that is cut along one axis: runs in the order of the whole, one begins every period."""

    times: int
    period: int
    start: int
    length: int


def digest_of_part(held: torch.Tensor, part: Part, kept: int, at: torch.Tensor | None) -> tuple[Digest, torch.Tensor]:
    """Return the digest of a whole tensor with zeros for what is not held, and which of its elements and tops are."""
    at = torch.empty(0, dtype=torch.int64) if at is None else at
    run = _run(tuple(held.shape), part, 2 if held.is_complex() else 1)
    is_inexact = held.is_floating_point() or held.is_complex()
    if run is None or not is_inexact or any(size % BUCKETS for size in run[1:]):
        return _padded(held, part, kept, at)
    flat = (torch.view_as_real(held.resolve_conj()) if held.is_complex() else held).detach().reshape(-1)
    total = run.times * run.period
    signs = row_signs(total // BUCKETS).view(run.times, -1)
    first = run.start // BUCKETS
    sums = float_sums(flat, signs[:, first : first + run.length // BUCKETS].reshape(-1))
    elements, owned = _taken(flat, *_places_in(run, min(kept, total)))
    tops, owned_tops = _taken(flat, *_inside(run, at))
    digest = Digest(elements, stored(sums, held.dtype).cpu(), math.nan, tops, at)
    return digest, torch.cat((owned, owned_tops))


def _run(shape: tuple[int, ...], part: Part, pair: int) -> _AxisRun | None:
    """Return a part as runs of elements; None where it is cut along several axes."""
    axes = [axis for axis, size in enumerate(part.shape) if size != shape[axis]]
    if len(axes) > 1:
        return None
    axis = axes[0] if axes else 0
    below = math.prod(part.shape[axis + 1 :]) * pair
    start, size, full = part.start[axis], shape[axis], part.shape[axis]
    return _AxisRun(math.prod(part.shape[:axis]), full * below, start * below, size * below)


@lru_cache(maxsize=256)
def _places_in(run: _AxisRun, kept: int) -> tuple[torch.Tensor, torch.Tensor]:
    total = run.times * run.period
    return _inside(run, torch.arange(total) if kept == total else places(total, kept))


def _inside(run: _AxisRun, at: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return where places of the whole lie in a part, and which of them do."""
    time, rest = at // run.period, at % run.period - run.start
    inside = (rest >= 0) & (rest < run.length)
    return (time * run.length + rest)[inside], inside


def _taken(flat: torch.Tensor, here: torch.Tensor, inside: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return elements of a part in their places among those of the whole, zeros for the rest, on the CPU."""
    taken = torch.zeros(len(inside), dtype=flat.dtype)
    taken[inside] = flat[here.to(flat.device)].cpu()
    return taken, inside


def _padded(held: torch.Tensor, part: Part, kept: int, at: torch.Tensor) -> tuple[Digest, torch.Tensor]:
    whole, owner = held, torch.ones(part.shape, dtype=torch.bool)
    if part.shape != tuple(held.shape):
        whole, owner = held.new_zeros(part.shape), torch.zeros(part.shape, dtype=torch.bool)
        within(whole, part, held.shape).copy_(held)
        within(owner, part, held.shape).fill_(True)  # noqa: FBT003 - torch's own
    if held.is_complex():
        owner = torch.stack((owner, owner), -1)
    digest = digest_of(whole, kept, at=at, with_norm=False)
    return digest, torch.cat((elements_of(owner, kept), owner.reshape(-1)[at]))

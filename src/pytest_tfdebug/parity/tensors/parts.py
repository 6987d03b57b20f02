"""What one rank holds of a tensor, beside the whole that it is held to.

Where the golden keeps the whole tensor, a rank compares its part of it at once. Where it keeps a digest, each rank
makes the digest of its part, and all of them together are the digest of the whole: each element stands in one rank's
part, and sums add up. Nothing is gathered while the forward runs.
"""

from __future__ import annotations

import math
from dataclasses import replace
from operator import add
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.records import Digest, LeafComparison, Part, PartDigest, Statistics, TensorRecord
from pytest_tfdebug.tracing.record.ranks import STACKED, Group, part_by_shape, within
from pytest_tfdebug.tracing.values.digest import digest_of_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.parity.tensors.tolerance import Tolerance
    from pytest_tfdebug.records import Direction

#: Elements of a tensor that the golden keeps whole, where its sum over the ranks is what counts.
_ELEMENTS = 1024


def compare_on_rank(
    direction: Direction, actual: TensorRecord, expected: TensorRecord, tolerance: Tolerance, group: Group
) -> LeafComparison:
    """Compare what this rank holds of a tensor; where others must be heard, note what this one has to tell them."""
    part = actual.part or part_by_shape(actual.shape, expected.shape, group)
    if part is None or (part.shape == actual.shape and not part.is_summand):
        found = compare_leaf(direction, actual, expected, tolerance)
        if found.problem != "values" or actual.tensor is None:
            return found
        as_summand = Part(actual.shape, (0,) * len(actual.shape), is_summand=True)
        return replace(found, part=_digest(actual.tensor, as_summand, expected))
    bare = LeafComparison(direction, actual.leaf, "", part.shape, actual.dtype, expected)
    if part.shape != expected.shape:
        return replace(bare, problem="shape")
    if actual.tensor is None or expected.held is None:
        return bare
    if expected.tensor is not None and not part.is_summand:
        piece = replace(expected, tensor=within(expected.tensor, part, actual.shape), shape=actual.shape)
        return _in_whole(compare_leaf(direction, actual, piece, tolerance), part, bare)
    found = replace(bare, is_measured=True, part=_digest(actual.tensor, part, expected))
    return found if actual.dtype == expected.dtype else replace(found, problem="dtype")


def _in_whole(found: LeafComparison, part: Part, whole: LeafComparison) -> LeafComparison:
    """Return the comparison of a part as one of the whole."""
    metrics, start = found.metrics, (*part.start, 0)  # an index of a complex tensor has one axis more
    if metrics is not None:
        metrics = metrics._replace(
            max_abs_index=tuple(map(add, metrics.max_abs_index, start)),
            max_rel_index=tuple(map(add, metrics.max_rel_index, start)),
        )
    return replace(whole, problem=found.problem, metrics=metrics, is_measured=found.is_measured)


def _digest(held: torch.Tensor, part: Part, expected: TensorRecord) -> PartDigest:
    """Return what a rank has of the digest of a whole tensor."""
    kept = expected.digest
    if kept is None:
        return PartDigest(part, *digest_of_part(held, part, min(_ELEMENTS, max(1, held.numel()))))
    return PartDigest(part, *digest_of_part(held, part, kept.elements.numel(), kept.top_places))


def put_together(parts: Sequence[PartDigest], form: LeafComparison, expected: TensorRecord) -> TensorRecord:
    """Return a whole tensor from what the ranks have of its digest."""
    distinct = parts if parts[0].part.is_summand else list({each.part: each for each in parts}.values())
    first = distinct[0].digest
    elements, tops = (torch.zeros_like(each) for each in (first.elements, first.tops))
    for each in distinct:
        count = elements.numel()
        for whole, own, owned in (
            (elements, each.digest.elements, each.owned[:count]),
            (tops, each.digest.tops, each.owned[count:]),
        ):
            whole[owned] += own[owned]
    sums = torch.stack([each.digest.sums for each in distinct]).sum(0)
    norm = float(torch.linalg.vector_norm(sums.double()))  # on average that of all elements
    digest = Digest(elements, sums.to(first.sums.dtype), norm, tops, first.top_places)
    holes = int((~torch.isfinite(elements)).sum()) if elements.is_floating_point() else 0
    known = expected.statistics or Statistics(-norm, norm, math.nan, math.nan, 0)
    return TensorRecord(form.leaf, form.shape, form.dtype, None, known._replace(non_finite=holes), digest)


def excess(own: PartDigest, expected: TensorRecord, tolerance: Tolerance) -> float:
    """Return by how much an element that a rank holds differs from the expected one, of what is allowed there."""
    kept = expected.digest
    if kept is None:
        return 0.0
    mine, theirs = (torch.cat((each.elements, each.tops))[own.owned].double() for each in (own.digest, kept))
    apart = (mine - theirs).abs() / (tolerance.atol + tolerance.rtol * theirs.abs())
    return float(apart.nan_to_num(nan=0.0).max()) if apart.numel() else 0.0


def in_recorded_layout(
    actual: TensorRecord, expected: TensorRecord, group: Group | None
) -> tuple[TensorRecord, TensorRecord]:
    """Return both sides in one layout, where the expected one was recorded as the stacked parts of several ranks."""
    count, *local = expected.shape
    if actual.tensor is None or expected.placement != STACKED:
        return actual, expected
    tensor = actual.tensor
    if list(tensor.shape) == local:
        if group is not None and group.world_size == count:
            part = Part(expected.shape, (group.rank, *(0 for _ in local)))
            return replace(actual, tensor=tensor[None], shape=(1, *local), part=part), expected
        total = None if expected.tensor is None else expected.tensor.sum(0)
        return actual, replace(expected, shape=actual.shape, tensor=total, digest=None)
    part_of_whole = part_by_shape(local, tensor.shape, Group(0, count))
    if part_of_whole is None:
        return actual, expected
    axis = next(axis for axis, size in enumerate(local) if size != tensor.shape[axis])
    return replace(actual, tensor=torch.stack(tensor.chunk(count, axis)), shape=expected.shape), expected

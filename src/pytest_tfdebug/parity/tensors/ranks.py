"""What several ranks found in their parts of one forward, as one comparison; nothing is gathered while it runs.

Where the golden keeps the whole tensor, a rank compares its part of it at once. Where it keeps a digest, each rank
makes the digest of its part, and all of them together are the digest of the whole: each element stands in one rank's
part, and sums add up. Every rank hears what all found and comes to the same verdict by itself.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from operator import add
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.records import Digest, LeafComparison, Part, PartDigest, Statistics, TensorRecord
from pytest_tfdebug.tracing.record.ranks import STACKED, Group, part_by_shape, within
from pytest_tfdebug.tracing.values.digest import digest_of_part

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.parity.tensors.tolerance import Tolerance, Tolerances
    from pytest_tfdebug.records import (
        Call,
        CallComparison,
        Direction,
    )

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


#: Gives what each rank gives, in their order; of what every rank has under a name, only the name is sent.
Exchange: TypeAlias = "Callable[[Any, Mapping[Any, object]], list[Any]]"
#: What tells which call of the forward one is: path, call index and index of the expected call.
_Key: TypeAlias = "tuple[str, int, int | None]"
_ByRank: TypeAlias = "dict[int, LeafComparison]"
#: A rank is not to blame whose elements differ by less than this share of what they differ by on another.
_MINOR = 0.01


def merge_ranks(own: Compared, tolerances: Tolerances, exchange: Exchange) -> Compared:
    """Return what all ranks found; every rank must ask."""
    told: list[tuple[list[CallComparison], dict[str, str]]] = exchange(
        (own.calls, own.own_paths), dict(_on_every_rank(own.expected))
    )
    tables = [{_key(item): item for item in calls} for calls, _ in told]
    merged = replace(own, calls=[], own_paths={})
    known: dict[_Key, int] = {}
    for calls, paths in told:
        merged.own_paths |= paths
        fresh = [item for item in calls if _key(item) not in known]
        known |= {_key(item): index for index, item in enumerate(fresh, start=len(known))}
        index_of = {item.call.index: known[_key(item)] for item in calls}
        for item in fresh:
            was = item.call
            parent = None if was.parent is None else index_of[was.parent]
            placed = replace(was, index=index_of[was.index], parent=parent)
            found = {rank: table[_key(item)] for rank, table in enumerate(tables) if _key(item) in table}
            merged.calls.append(_merged(placed, found, tolerances, index_of))
    return merged


def _on_every_rank(expected: Iterable[Call]) -> Iterator[tuple[tuple[int, int], object]]:
    """Yield the expected calls and their tensors, each with a name: every rank has read the same golden."""
    for call in expected:
        records = (*call.inputs, *(write.record for write in call.writes), *(call.outputs or ()))
        yield from (((call.index, place), each) for place, each in enumerate((call, *records)))


def _key(item: CallComparison) -> _Key:
    return item.call.path, item.call.call, None if item.expected is None else item.expected.index


def _merged(
    call: Call, found: dict[int, CallComparison], tolerances: Tolerances, index_of: dict[int, int]
) -> CallComparison:
    """Return a call as all ranks that make it found it."""

    def merge(leaves: dict[int, tuple[LeafComparison, ...]]) -> tuple[LeafComparison, ...]:
        return tuple(_one(by_rank, call.path, tolerances) for by_rank in _side_by_side(leaves))

    first = next(iter(found.values()))
    writes = merge({rank: tuple(leaf for leaf, _ in item.writes) for rank, item in found.items()})
    befores = (None if before is None else index_of[before] for _, before in first.writes)
    return replace(
        first,
        call=call,
        inputs=merge({rank: item.inputs for rank, item in found.items()}),
        outputs=merge({rank: item.outputs for rank, item in found.items()}),
        writes=tuple((leaf, next(befores, None)) for leaf in writes),
    )


def _side_by_side(leaves: dict[int, tuple[LeafComparison, ...]]) -> Iterable[_ByRank]:
    """Return what the ranks found of each tensor, by rank."""
    found: dict[tuple[str, str, int], _ByRank] = {}
    for rank, own in leaves.items():
        seen = Counter[tuple[str, str]]()
        for leaf in own:
            place = leaf.direction, leaf.leaf
            found.setdefault((*place, seen[place]), {})[rank] = leaf
            seen[place] += 1
    return found.values()


def _one(by_rank: _ByRank, path: str, tolerances: Tolerances) -> LeafComparison:
    """Return one comparison of a tensor from those of the ranks."""
    first = next(iter(by_rank.values()))
    expected = first.expected
    parts = {rank: leaf.part for rank, leaf in by_rank.items() if leaf.part is not None}
    failing = tuple(rank for rank, leaf in by_rank.items() if leaf.problem)
    if not parts and not failing:
        return first
    shown = replace(by_rank[failing[0]] if failing else first, part=None, ranks=failing)
    if expected is None or not parts or any(leaf.problem not in ("", "values") for leaf in by_rank.values()):
        return shown
    tolerance = tolerances.of(path, expected.dtype)
    if failing:
        is_sum = len(parts) == len(by_rank) == len(failing) and not _together(parts, shown, expected, tolerance).problem
        return replace(shown, is_summand=is_sum)
    together = _together(parts, shown, expected, tolerance)
    return replace(together, ranks=_to_blame(parts, expected, tolerance) if together.problem else ())


def _together(
    parts: dict[int, PartDigest], form: LeafComparison, expected: TensorRecord, tolerance: Tolerance
) -> LeafComparison:
    return compare_leaf(form.direction, put_together([*parts.values()], form, expected), expected, tolerance)


def _to_blame(parts: dict[int, PartDigest], expected: TensorRecord, tolerance: Tolerance) -> tuple[int, ...]:
    """Return the ranks whose part is wrong; all where that shows in the sums alone."""
    excesses = {rank: excess(part, expected, tolerance) for rank, part in parts.items()}
    worst = max(excesses.values())
    wrong = tuple(rank for rank, size in excesses.items() if size > 1 and size >= _MINOR * worst)
    return wrong or tuple(parts)


def on_ranks(claim: Claim, count: int) -> Claim:
    """Return a claim with the ranks on which it shows."""
    leaf = None if claim.divergence is None else claim.divergence.comparison
    if leaf is None or not leaf.ranks:
        return claim
    if leaf.is_summand:
        told = "Each rank holds a part of the sum: added up, they agree. An all-reduce is missing, or comes too late."
        return replace(claim, ranks="on every rank", why=f"{claim.why} {told}")
    if len(leaf.ranks) == 1:
        return replace(claim, ranks=f"on rank {leaf.ranks[0]} alone")
    numbers = ", ".join(map(str, leaf.ranks))
    return replace(claim, ranks="on every rank" if len(leaf.ranks) == count else f"on ranks {numbers}")

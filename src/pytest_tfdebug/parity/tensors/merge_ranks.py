"""What several ranks found in their parts of one forward, as one comparison.

Every rank hears what all found and comes to the same verdict by itself: none waits for another's.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_tfdebug.parity.tensors.comparator import Compared
from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.parity.tensors.parts import excess, put_together

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pytest_tfdebug.parity.tensors.tolerance import Tolerance, Tolerances
    from pytest_tfdebug.records import Call, CallComparison, Culprit, LeafComparison, PartDigest, TensorRecord

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
    merged = Compared(expected=own.expected)
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


def on_ranks(culprit: Culprit, count: int) -> Culprit:
    """Return a culprit with the ranks on which it shows."""
    leaf = None if culprit.divergence is None else culprit.divergence.comparison
    if leaf is None or not leaf.ranks:
        return culprit
    if leaf.is_summand:
        told = "Each rank holds a part of the sum: added up, they agree. An all-reduce is missing, or comes too late."
        return replace(culprit, ranks="on every rank", why=f"{culprit.why} {told}")
    if len(leaf.ranks) == 1:
        return replace(culprit, ranks=f"on rank {leaf.ranks[0]} alone")
    numbers = ", ".join(map(str, leaf.ranks))
    return replace(culprit, ranks="on every rank" if len(leaf.ranks) == count else f"on ranks {numbers}")

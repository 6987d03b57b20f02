"""What several ranks found in their parts of one forward, as one comparison.

Every rank hears what all found and comes to the same verdict by itself: none waits for another's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pytest_tfdebug.parity.comparator import Compared
from pytest_tfdebug.parity.metrics import compare_leaf
from pytest_tfdebug.parity.parts import excess, put_together
from pytest_tfdebug.records import Call, CallComparison, Culprit, LeafComparison, PartDigest, TensorRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_tfdebug.parity.tolerance import Tolerance, Tolerances

#: Gives what each rank gives, in their order.
Exchange: TypeAlias = "Callable[[Any], list[Any]]"
_ByRank: TypeAlias = "dict[int, LeafComparison]"
#: A rank is not to blame whose elements differ by less than this share of what they differ by on another.
_MINOR = 0.01


@dataclass
class _Told:
    """One call as a rank tells of it.

    Args:
        item: The call and its comparisons, without the tensors that they were held to.
        expected: ``index`` of its expected call; None where there is none.
    """

    item: CallComparison
    expected: int | None

    @property
    def key(self) -> tuple[str, int, int | None]:
        """What tells which call of the forward it is."""
        return self.item.call.path, self.item.call.call, self.expected


def merge_ranks(own: Compared, tolerances: Tolerances, exchange: Exchange) -> Compared:
    """Return what all ranks found; every rank must ask.

    Args:
        own: What this rank found.
        tolerances: What is allowed.
        exchange: Gives what each rank gives, in their order.
    """
    told: list[tuple[list[_Told], dict[str, str]]] = exchange(([_bare(item) for item in own.calls], own.own_paths))
    tables = [{call.key: call for call in calls} for calls, _ in told]
    expected = {call.index: call for call in own.expected}
    merged = Compared(expected=own.expected)
    known: dict[tuple[str, int, int | None], int] = {}
    for calls, paths in told:
        merged.own_paths |= paths
        fresh = [call for call in calls if call.key not in known]
        known |= {call.key: index for index, call in enumerate(fresh, start=len(known))}
        index_of = {call.item.call.index: known[call.key] for call in calls}
        for call in fresh:
            was = call.item.call
            parent = None if was.parent is None else index_of[was.parent]
            placed = replace(was, index=index_of[was.index], parent=parent)
            found = {rank: table[call.key].item for rank, table in enumerate(tables) if call.key in table}
            partner = None if call.expected is None else expected[call.expected]
            merged.calls.append(_merged(placed, partner, found, tolerances, index_of))
    return merged


def _bare(item: CallComparison) -> _Told:
    """Return a call as it can be sent: what it is held to is on every rank."""
    return _Told(
        replace(
            item,
            expected=None,
            inputs=tuple(map(_without_values, item.inputs)),
            outputs=tuple(map(_without_values, item.outputs)),
            writes=tuple((_without_values(leaf), before) for leaf, before in item.writes),
        ),
        None if item.expected is None else item.expected.index,
    )


def _without_values(leaf: LeafComparison) -> LeafComparison:
    expected = leaf.expected
    return leaf if expected is None else replace(leaf, expected=TensorRecord(expected.leaf, (), "", None))


def _merged(
    call: Call,
    expected: Call | None,
    found: dict[int, CallComparison],
    tolerances: Tolerances,
    index_of: dict[int, int],
) -> CallComparison:
    """Return a call as all ranks that make it found it."""
    held: dict[str, tuple[TensorRecord, ...]] = {}
    if expected is not None:
        held["input"], held["output"] = expected.inputs, expected.outputs or ()
        held["write"] = tuple(write.record for write in expected.writes)

    def merge(leaves: dict[int, tuple[LeafComparison, ...]]) -> tuple[LeafComparison, ...]:
        return tuple(_one(by_rank, held, call.path, tolerances) for by_rank in _side_by_side(leaves))

    first = next(iter(found.values()))
    writes = merge({rank: tuple(leaf for leaf, _ in item.writes) for rank, item in found.items()})
    befores = [None if before is None else index_of[before] for _, before in first.writes]
    return CallComparison(
        call,
        expected,
        merge({rank: item.inputs for rank, item in found.items()}),
        merge({rank: item.outputs for rank, item in found.items()}),
        tuple(zip(writes, [*befores, *[None] * (len(writes) - len(befores))], strict=True)),
        first.is_handed_on,
    )


def _side_by_side(leaves: dict[int, tuple[LeafComparison, ...]]) -> Iterable[_ByRank]:
    """Return what the ranks found of each tensor, by rank."""
    found: dict[tuple[str, str, int], _ByRank] = {}
    for rank, own in leaves.items():
        seen: dict[tuple[str, str], int] = {}
        for leaf in own:
            place = leaf.direction, leaf.leaf
            seen[place] = seen.get(place, -1) + 1
            found.setdefault((*place, seen[place]), {})[rank] = leaf
    return found.values()


def _one(
    by_rank: _ByRank, held: dict[str, tuple[TensorRecord, ...]], path: str, tolerances: Tolerances
) -> LeafComparison:
    """Return one comparison of a tensor from those of the ranks."""
    first = next(iter(by_rank.values()))
    name = None if first.expected is None else first.expected.leaf
    expected = next((record for record in held.get(first.direction, ()) if record.leaf == name), None)
    parts = {rank: leaf.part for rank, leaf in by_rank.items() if leaf.part is not None}
    failing = tuple(rank for rank, leaf in by_rank.items() if leaf.problem)
    shown = replace(by_rank[failing[0]] if failing else first, expected=expected, part=None, ranks=failing)
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
    """Return a culprit with the ranks on which it shows.

    Args:
        culprit: The culprit.
        count: Number of ranks.
    """
    leaf = None if culprit.divergence is None else culprit.divergence.comparison
    if leaf is None or not leaf.ranks:
        return culprit
    if leaf.is_summand:
        told = (
            "Each rank holds a part of the sum: added up they are what is expected. An all-reduce is missing, or comes "
            "too late."
        )
        return replace(culprit, ranks="on every rank", explanation=f"{culprit.explanation} {told}")
    if len(leaf.ranks) == 1:
        return replace(culprit, ranks=f"on rank {leaf.ranks[0]} alone")
    numbers = ", ".join(map(str, leaf.ranks))
    return replace(culprit, ranks="on every rank" if len(leaf.ranks) == count else f"on ranks {numbers}")

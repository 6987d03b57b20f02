"""Both forwards of a comparison as a page shows them.

These are their calls, the pairs of these, both sources, and the values around the culprit.
"""

from __future__ import annotations

import linecache
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.check_record import CallPair, CallRecord, ForwardRecord, ValueRecord
from pytest_tfdebug.parity.closeness import AGREE, LADDER
from pytest_tfdebug.parity.proof.matching import OpenValues
from pytest_tfdebug.parity.text.text_differences import source_text
from pytest_tfdebug.records import FAILING, SourceRange, as_they_ended

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.check_record import CallState, ElementGrid, PairedBy, SourceText, ValueState
    from pytest_tfdebug.data.comparison import ComparisonResult
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.proof.matching import Matches
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.records import Call, CallComparison, Culprit, LeafComparison
    from pytest_tfdebug.values import Value

#: Steps back from the culprit's values, and values that are shown of each side.
_STEPS = 3
_SHOWN = 40


def forward_record(
    report: ComparisonResult, explained: Explained | None, elements: ElementGrid | None = None
) -> ForwardRecord:
    """Return both forwards of a comparison."""
    near = _near_values(report, explained)
    paired = [
        CallPair(item.call.index, item.expected.index, _paired_by(item, report.suggested))
        for item in report.calls
        if item.expected is not None
    ]
    taken = {pair.reference for pair in paired}
    more = [CallPair(own, reference, "values") for own, (reference, _) in near.paired.items() if reference not in taken]
    is_by_values = len(more) > len(paired)
    pairs = (*paired, *more)
    own = _own_calls(report, near.shares, is_by_values=is_by_values)
    culprit = _call_of_culprit(report)
    return ForwardRecord(
        own,
        _reference_calls(report, {pair.reference: pair.own for pair in pairs}, own),
        pairs,
        "fingerprints" if is_by_values else "tolerance",
        None if culprit is None else culprit.call.index,
        _sources(report.culprit, culprit),
        near.own,
        near.reference,
        elements,
    )


def _paired_by(item: CallComparison, suggested: dict[str, str]) -> PairedBy:
    is_renamed = item.call.parent is not None and item.expected is not None and item.call.path != item.expected.path
    return "suggested" if suggested and is_renamed else "name"


def _own_calls(
    report: ComparisonResult, shares: dict[int, float | None], *, is_by_values: bool
) -> tuple[CallRecord, ...]:
    """Return the calls of the forward under test."""
    found = []
    for ended, item in enumerate(as_they_ended(report.calls)):
        call, leaf = item.call, decisive(item.made)
        state: CallState
        if call.index in shares:
            share = shares[call.index]
            state = "agrees" if share is not None and share <= 1 else "differs"
            found.append(_row(call, ended, state, share if is_by_values else None))
        elif leaf is None or item.expected is None:
            found.append(_row(call, ended, "unpaired" if item.expected is None else "not compared"))
        else:
            state = "differs" if leaf.problem in FAILING else "agrees" if leaf.is_measured else "not compared"
            found.append(_row(call, ended, state, *_figures(leaf), leaf.shape, leaf.dtype))
    return tuple(sorted(found, key=lambda row: row.index))


def _row(call: Call, ended: int, state: CallState, *told: Any) -> CallRecord:  # noqa: ANN401 - the figures of a record
    place = (call.index, call.path, call.class_name, call.call, call.parent, ended, state)
    return replace(CallRecord(*place, *told), source=call.source)


def decisive(leaves: Iterable[LeafComparison]) -> LeafComparison | None:
    """Return the tensor that a call is told by: the first that fails, or the one that uses most of its tolerance."""
    found = list(leaves)
    failing = next((leaf for leaf in found if leaf.problem in FAILING), None)
    measured = [leaf for leaf in found if leaf.is_measured]
    return failing or max(measured, key=lambda leaf: _figures(leaf)[0] or 0.0, default=found[0] if found else None)


def _figures(leaf: LeafComparison) -> tuple[float | None, float | None, float | None, float | None]:
    """Return share, greatest difference, what is allowed, and relative L2."""
    metrics = leaf.metrics
    if metrics is None:  # bit by bit equal, or of another form
        return (0.0, 0.0, None, 0.0) if leaf.is_measured and not leaf.problem else (None, None, None, None)
    return metrics.share, metrics.max_abs, metrics.allowed, metrics.relative_l2


def _reference_calls(
    report: ComparisonResult, beside: dict[int, int], own: tuple[CallRecord, ...]
) -> tuple[CallRecord, ...]:
    calls: list[Call] = sorted(
        [item.expected for item in report.calls if item.expected is not None] + report.unpaired,
        key=lambda call: call.index,
    )
    by_index = {call.index: call for call in own}
    return tuple(
        _row(call, place, by_index[beside[call.index]].state if call.index in beside else "unpaired")
        for place, call in enumerate(calls)
    )


def _call_of_culprit(report: ComparisonResult) -> CallComparison | None:
    culprit = report.culprit
    if culprit is None:
        return None
    number = culprit.divergence.call if culprit.divergence is not None else None
    mine = [item for item in report.calls if item.call.path == culprit.path]
    return next((item for item in mine if item.call.call == number), mine[0] if mine else None)


def _sources(culprit: Culprit | None, item: CallComparison | None) -> tuple[SourceText | None, SourceText | None]:
    if culprit is None:
        return None, None
    around = item.call.source if item is not None else None
    there = item.expected.source if item is not None and item.expected is not None else None
    own, other = source_text(culprit.source, around), source_text(culprit.reference, there)
    is_one_text = own is not None and other is not None and other.marked is None and other.text == own.text
    return own, None if is_one_text else other


class _NearValues(NamedTuple):
    """What the values of two forwards say near the one that is wrong."""

    #: Call of the port -> the one of the reference that gives its output, and how far that is, of what is allowed.
    paired: dict[int, tuple[int, float]]
    #: Call that no name pairs -> how far its output is from the reference's; None where that has none.
    shares: dict[int, float | None]
    own: tuple[ValueRecord, ...]  # the port's values around those that the verdict names
    reference: tuple[ValueRecord, ...]  # the reference's, around the first that the port never computes


def _near_values(report: ComparisonResult, explained: Explained | None) -> _NearValues:
    if explained is None or explained.pair is None:
        return _NearValues({}, {}, (), ())
    pair, finding = explained.pair, explained.finding
    named = {value.index for value in finding.values} if finding is not None else set()
    missing = {finding.reference.index} if finding is not None and finding.reference is not None else set()
    apart = pair.pair_results(AGREE).apart
    mine, theirs = [own for own, _ in apart], [other for _, other in apart]
    for tolerance in (AGREE, *LADDER):  # the verdict was reached at the first at which what it names has no partner
        own = OpenValues(pair.port, pair.matches, tolerance, mine, known=pair.weights.known)
        there = OpenValues(pair.reference, pair.back_matches, tolerance, theirs, known=pair.back.known)
        if named <= own.open and missing <= there.open:
            break
    expected = [*(item.expected for item in report.calls if item.expected is not None), *report.unpaired]
    known = {(call.path, call.call): call.index for call in expected}
    makers: dict[int, list[int]] = {}
    for call, value in _first_outputs(pair.reference):
        if (call.path, call.call) in known:
            makers.setdefault(value, []).append(known[call.path, call.call])
    found = _NearValues(
        {},
        {},
        _around(pair.port, pair.matches, own, named),
        _around(pair.reference, pair.back_matches, there, missing),
    )
    items = {(item.call.path, item.call.call): item for item in report.calls}
    for call, value in _first_outputs(pair.port):
        item = items.get((call.path, call.call))
        if item is None:
            continue
        partner = next((each for each in pair.matches.partners[value] if makers.get(each.place)), None)
        share = None if partner is None else partner.distance / tolerance
        if partner is not None and share is not None:
            found.paired[item.call.index] = makers[partner.place].pop(0), share
        if item.expected is None and (partner is not None or value in own.open):
            found.shares[item.call.index] = share
    return found


def _first_outputs(side: Side) -> Iterator[tuple[Call, int]]:
    """Yield the calls of a side that returned a tensor, each with the first one."""
    for call in side.table.calls:
        yield from ((call, value) for _, value in side.table.outputs.get(call.index, ())[:1])


def _around(side: Side, matches: Matches, opened: OpenValues, meant: set[int]) -> tuple[ValueRecord, ...]:
    """Return some values, what they were computed from in some steps, and what was computed from them at once."""
    chosen, edge = set(meant), set(meant)
    for _ in range(_STEPS):
        edge = {made for index in edge for made in side.values[index].producers} - chosen
        if len(chosen) + len(edge) > _SHOWN:
            break
        chosen |= edge
    users = [user for index in sorted(meant) for user in side.users.get(index, ())]
    chosen |= set(users[: max(0, _SHOWN - len(chosen))])
    return tuple(_record(side.values[index], side, matches, opened, meant) for index in sorted(chosen))


def _record(value: Value, side: Side, matches: Matches, opened: OpenValues, meant: set[int]) -> ValueRecord:
    line = value.lines[0] if value.lines else None
    is_same = matches.distance(value.index) <= opened.tolerance
    state: ValueState = "same" if is_same else "open" if value.index in opened.open else "explained"
    return ValueRecord(
        value.index,
        value.operator,
        value.name,
        side.call_of(value).path if value.call is not None else "",
        None if line is None else SourceRange(line.file, line.line, line.line),
        "" if line is None else (line.text or linecache.getline(line.file, line.line)).strip(),
        value.shape,
        value.dtype,
        value.producers,
        state,
        matches.partners[value.index][0].place if is_same else None,
        value.index in meant,
    )

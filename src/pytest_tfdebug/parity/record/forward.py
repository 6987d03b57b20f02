"""A comparison as plain data: the calls of both sides, their pairs, both sources and the values around the culprit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.check_record import CallPair, CallRecord, ForwardRecord
from pytest_tfdebug.parity.record.near_values import NearValues
from pytest_tfdebug.parity.text.source_text import source_text
from pytest_tfdebug.records import FAILING, as_they_ended

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.check_record import CallState, ElementGrid, PairedBy, SourceText
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.records import Call, CallComparison, Culprit, LeafComparison


def forward_record(report: ParityReport, elements: ElementGrid | None = None) -> ForwardRecord:
    """Return both forwards of a comparison."""
    near = NearValues(report) if report.explained is not None and report.explained.pair is not None else None
    paired = [
        CallPair(item.call.index, item.expected.index, _paired_by(item, report.suggested))
        for item in report.calls
        if item.expected is not None
    ]
    taken = {pair.reference for pair in paired}
    by_values = near.paired if near is not None else {}
    more = [CallPair(own, reference, "values") for own, (reference, _) in by_values.items() if reference not in taken]
    is_by_values = len(more) > len(paired)
    pairs = (*paired, *more)
    own = _own_calls(report, near.shares() if near is not None else {}, is_by_values=is_by_values)
    culprit = _call_of_culprit(report)
    return ForwardRecord(
        own,
        _reference_calls(report, {pair.reference: pair.own for pair in pairs}, own),
        pairs,
        "fingerprints" if is_by_values else "tolerance",
        None if culprit is None else culprit.call.index,
        _sources(report.culprit, culprit),
        near.own() if near is not None else (),
        near.reference() if near is not None else (),
        elements,
    )


def _paired_by(item: CallComparison, suggested: dict[str, str]) -> PairedBy:
    is_renamed = item.call.parent is not None and item.expected is not None and item.call.path != item.expected.path
    return "suggested" if suggested and is_renamed else "name"


def _own_calls(report: ParityReport, shares: dict[int, float | None], *, is_by_values: bool) -> tuple[CallRecord, ...]:
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
    report: ParityReport, beside: dict[int, int], own: tuple[CallRecord, ...]
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


def _call_of_culprit(report: ParityReport) -> CallComparison | None:
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

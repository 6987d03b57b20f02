"""What another recording of a golden has changed, in words: for an update, for ``tfdebug review`` and for git."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError, counted, listed
from pytest_tfdebug.goldens.store.provenance import changes as changed_environment
from pytest_tfdebug.parity.compare import compare
from pytest_tfdebug.records import as_they_ended
from pytest_tfdebug.tracing.values.statistics import summarize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.records import LeafComparison
    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.trace import Trace

#: Tensors and parameters that are listed by name; the others are counted.
_NAMED = 3


def changes(old: TraceFile, new: Trace, extra: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between a golden and another recording of it, a line each."""
    yield from _moved(old.trace, new)
    before, now = old.extra["weights"], extra["weights"]
    other = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if other:
        yield f"weights: {listed(list(map(repr, other)), _NAMED)} differ"
    since = "; ".join(changed_environment(old.extra["provenance"], extra["provenance"]))
    if since:
        yield f"environment: {since}"
    if old.extra["test"] != extra["test"]:
        yield f"test: {old.extra['test']} -> {extra['test']}"


def described(golden: TraceFile) -> Iterator[str]:
    """Yield a golden as text, a line for each fact that a change of it can change: git compares these lines."""
    summarize(golden.trace.records())
    yield f"test: {golden.extra['test']}"
    yield from (f"{name}: {value}" for name, value in golden.extra["provenance"].items())
    yield from (f"weight {name}: {value}" for name, value in golden.extra["weights"].items())
    for call in golden.trace.calls:
        yield f"{call.name} ({call.class_name})"
        for direction, records in (("input", call.inputs), ("output", call.outputs or ())):
            for record in records:
                numbers = zip(("min", "max", "mean", "std"), record.statistics or (), strict=False)
                told = "".join(f" {name} {value:.6g}" for name, value in numbers)
                leaf = f"  {direction} {record.leaf}".rstrip()
                yield f"{leaf}: {record.dtype} {tuple(record.shape)}{told}"


def _moved(old: Trace, new: Trace) -> Iterator[str]:
    """Yield which outputs have other values, the first module of them, and how these stand to what is allowed."""
    try:
        report = compare(old, new, internal="fail")
    except TFDebugError:
        yield "no tensor in common with the old golden"
        return
    moved = [(item, leaf) for item in as_they_ended(report.calls) for leaf in item.outputs if _has_moved(leaf)]
    count = sum(len(item.outputs) for item in report.calls)
    if moved:
        first = moved[0][0].call
        yield f"moved: {len(moved)} of {counted(count, 'output')}, first {first.path!r} ({first.class_name})"
        yield _verdict(report)
        worst = sorted(moved, key=lambda pair: -_relative(pair[1]))[:_NAMED]
        yield from (f"  {item.call.name} output {leaf.leaf}".rstrip() + f": {_told(leaf)}" for item, leaf in worst)
    else:
        yield f"moved: none of {counted(count, 'output')}"
    gone, added = ({call.name for call in side.calls} for side in (old, new))
    if gone != added:
        yield f"calls: {len(gone - added)} gone, {len(added - gone)} new"


def _verdict(report: ParityReport) -> str:
    if report.culprit is None:
        worst = report.worst
        return "inside tolerance" + (f": at most {worst.share:.2g} of it, at {worst.path!r}" if worst else "")
    culprit = report.culprit
    return f"outside tolerance: {counted(len(report.divergences), 'tensor')}, from {culprit.path!r} ({culprit.kind}) on"


def _has_moved(leaf: LeafComparison) -> bool:
    return bool(leaf.problem) or (leaf.metrics is not None and leaf.metrics.max_abs > 0)


def _relative(leaf: LeafComparison) -> float:
    return leaf.metrics.relative_l2 if leaf.metrics is not None else float("inf")


def _told(leaf: LeafComparison) -> str:
    metrics = leaf.metrics
    if metrics is None:
        return f"{leaf.problem} differs"
    allowed = f"{metrics.allowed:.1e} allowed"
    return f"greatest difference {metrics.max_abs:.3g} ({allowed}), relative L2 {metrics.relative_l2:.2e}"

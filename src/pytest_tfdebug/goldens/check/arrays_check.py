"""Hold the arrays of another runtime to the golden of a test."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import GoldenError, MissingGoldenError, ParityError
from pytest_tfdebug.goldens.check.golden_check import read_golden
from pytest_tfdebug.goldens.session.session import GoldenOutcome, GoldenSession
from pytest_tfdebug.goldens.store.modes import missing
from pytest_tfdebug.goldens.store.paths import shown
from pytest_tfdebug.parity.arrays.hold import hold_arrays
from pytest_tfdebug.parity.arrays.logprobs import hold_logprobs
from pytest_tfdebug.parity.record.check import parity_record
from pytest_tfdebug.parity.tensors.tolerance import read_tolerance
from pytest_tfdebug.publish.note import calling_line, note

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from pytest_tfdebug.goldens.store.place import GoldenPlace
    from pytest_tfdebug.parity.arrays.logprobs import LogprobsReport
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.tensors.tolerance import ToleranceGiven
    from pytest_tfdebug.runtimes.given import Arrays
    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.values.rerun import Rerun

#: Leaf paths of the reference's logits: a field, an entry, or all that it returns.
_LOGITS = (".logits", "['logits']", "", "[0]")


def check_arrays(
    item: pytest.Item,
    place: GoldenPlace,
    arrays: Arrays,
    *,
    tolerance: ToleranceGiven | None,
    again: Callable[[], Rerun] | None = None,
) -> ParityReport:
    """Hold arrays to a golden; see :meth:`pytest_tfdebug.Goldens.check_arrays`."""
    __tracebackhide__ = True
    golden = _golden(item, place)
    shown_path = shown(str(place), item.config)
    found = hold_arrays(golden.trace, arrays, read_tolerance(tolerance or "dtype"), again)
    report = replace(
        found,
        subject="The arrays differ from their golden",
        advice="Fix the runtime's model; the golden is its reference's.",
        facts=[*found.facts, f"Golden: {shown_path}"],
    )
    status = "checked" if report.ok else "failed"
    outcome = GoldenOutcome(str(place), item.nodeid, status, (), coverage=report.coverage)
    GoldenSession.of(item.config).outcomes.append(outcome)
    model, at = golden.trace.model_class, calling_line()
    record = parity_record(item.nodeid, report, in_detail=False, model=model, golden=shown_path, at=at)
    note(item, replace(record, text=str(report)))
    if not report.ok:
        raise ParityError(report.check_text(), report)
    return report


def check_logprobs(
    item: pytest.Item, place: GoldenPlace, token_ids: object, logprobs: object, margin: float
) -> LogprobsReport:
    """Hold tokens and log-probabilities to a golden; see :meth:`pytest_tfdebug.Goldens.check_logprobs`."""
    __tracebackhide__ = True
    records = _golden(item, place).trace.calls[0].outputs or ()
    logits = next((it.tensor for it in records if it.leaf in _LOGITS and it.tensor is not None), None)
    if logits is None:
        raise GoldenError(
            f"{shown(str(place), item.config)} does not keep the logits whole, which log-probabilities are held to.\n"
            'Record it with store="full" and --tf-golden=update.'
        )
    report = hold_logprobs(logits, token_ids, logprobs, margin)
    status = "checked" if report.ok else "failed"
    GoldenSession.of(item.config).outcomes.append(GoldenOutcome(str(place), item.nodeid, status, ()))
    if not report.ok:
        raise ParityError(str(report), report)
    return report


def _golden(item: pytest.Item, place: GoldenPlace) -> TraceFile:
    __tracebackhide__ = True
    if not place.exists():
        raise MissingGoldenError(missing(item, place))
    return read_golden(item, place)

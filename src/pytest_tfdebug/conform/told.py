"""Hands a verdict to the report of its test, and to the pages and files of the run."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.check_record import CheckRecord
from pytest_tfdebug.parity.record.check import culprit_record
from pytest_tfdebug.publish.note import note, raised, wants_details
from pytest_tfdebug.running import RUNNING

if TYPE_CHECKING:
    from pytest_tfdebug.conformance_verdict import PromiseVerdict
    from pytest_tfdebug.errors import ConformanceError


def tell(verdict: PromiseVerdict, error: ConformanceError | None = None) -> None:
    """Hand a verdict to the running test; do nothing outside pytest."""
    item = RUNNING.item
    if item is None:
        return
    item.user_properties.append(verdict.to_property())
    if verdict.state == "does not apply":
        return
    headline = f"{verdict.model}, {verdict.promise}: {verdict.state}" + (f" ({verdict.text})" if verdict.text else "")
    name = f"{verdict.model} {verdict.promise}"
    record = CheckRecord(item.nodeid, "conformance", "passed", headline, name=name, model=verdict.model)
    if error is not None:
        raised(item, error, None)
        record = replace(
            record,
            status="failed",
            headline=verdict.text,
            culprit=culprit_record(error.culprit),
            diagnosis=error.finding.diagnosis,
            text=str(error) if wants_details(item.config) else "",
        )
    note(item, record)

"""Hands a verdict to the report of its test, and to the pages and files of the run."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pytest_tfdebug.check_record import CheckRecord
from pytest_tfdebug.errors import ConformanceError
from pytest_tfdebug.parity.record.check import culprit_record
from pytest_tfdebug.publish.note import note, wants_details
from pytest_tfdebug.running import RUNNING

if TYPE_CHECKING:
    from collections.abc import Generator

    from pytest_tfdebug.conformance_verdict import PromiseVerdict


def tell(verdict: PromiseVerdict, error: ConformanceError | None = None) -> None:
    """Hand a verdict to the running test; do nothing outside pytest."""
    item = RUNNING.item
    if item is None:
        return
    if not item.config.pluginmanager.has_plugin(__name__):
        item.config.pluginmanager.register(sys.modules[__name__], __name__)
    item.user_properties.append(verdict.to_property())
    if verdict.state == "does not apply":
        return
    headline = f"{verdict.model}, {verdict.promise}: {verdict.state}" + (f" ({verdict.text})" if verdict.text else "")
    name = f"{verdict.model} {verdict.promise}"
    record = CheckRecord(item.nodeid, "conformance", "passed", headline, name=name, model=verdict.model)
    if error is not None:
        record = replace(
            record,
            status="failed",
            headline=verdict.text,
            culprit=culprit_record(error.culprit),
            diagnosis=error.finding.diagnosis,
            text=str(error) if wants_details(item.config) else "",
        )
    note(item, record)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show only the report of a broken promise, and its first line in the summary."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, ConformanceError):
        shown = call.excinfo.getrepr(style="value")
        if shown.reprcrash is not None:
            shown.reprcrash.message = str(call.excinfo.value)
        report.longrepr = shown
    return report

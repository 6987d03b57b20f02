"""Hands a verdict to the report of its test, and to the pages and files of the run."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from pytest_tfdebug.check_record import CheckRecord
from pytest_tfdebug.parity.forward_record import culprit_record
from pytest_tfdebug.publish.note import note, wants_details
from pytest_tfdebug.running import RUNNING

if TYPE_CHECKING:
    from pytest_tfdebug.conformance_verdict import Verdict
    from pytest_tfdebug.errors import ConformanceError

_HOOKS = "pytest_tfdebug.conform.hooks"


def tell(verdict: Verdict, error: ConformanceError | None = None) -> None:
    """Hand a verdict to the running test; do nothing outside pytest."""
    item = RUNNING.item
    if item is None:
        return
    if not item.config.pluginmanager.has_plugin(_HOOKS):
        item.config.pluginmanager.register(import_module(_HOOKS), _HOOKS)
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
            culprit=culprit_record(error.culprit) if error.culprit is not None else None,
            diagnosis=error.finding.diagnosis,
            text=str(error) if wants_details(item.config) else "",
        )
    note(item, record)

"""Where a verdict goes: to the report of its test, and to the pages and files of the run."""

from __future__ import annotations

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
    """Leave a verdict with the running test; nothing outside pytest."""
    item = RUNNING.item
    if item is None:
        return
    if not item.config.pluginmanager.has_plugin(_HOOKS):
        item.config.pluginmanager.register(import_module(_HOOKS), _HOOKS)
    item.user_properties.append(verdict.to_property())
    if verdict.state == "does not apply":
        return
    told = verdict.text if error is not None else f"{verdict.model}, {verdict.promise}: {verdict.state}"
    record = CheckRecord(
        item.nodeid,
        "conformance",
        "passed" if error is None else "failed",
        f"{told} ({verdict.text})" if error is None and verdict.text else told,
        name=f"{verdict.model} {verdict.promise}",
        model=verdict.model,
        culprit=culprit_record(error.culprit) if error is not None and error.culprit is not None else None,
        diagnosis=error.finding.diagnosis if error is not None else "",
        text=str(error) if error is not None and wants_details(item.config) else "",
    )
    note(item, record)

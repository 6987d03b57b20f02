"""The report section of a failed test or collection; imported when the first one fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from _pytest._code.code import ExceptionRepr
from _pytest.reports import CollectErrorRepr

from pytest_tfdebug.triage.classify import classify
from pytest_tfdebug.triage.failure import Failure
from pytest_tfdebug.triage.log_watch import findings_of
from pytest_tfdebug.triage.render import TITLE, render
from pytest_tfdebug.triage.rule import SILENT

if TYPE_CHECKING:
    import pytest

    from pytest_tfdebug.triage.rule import Finding


def explain(
    node: pytest.Item | pytest.Collector, report: pytest.TestReport | pytest.CollectReport, error: BaseException
) -> None:
    """Add the section ``tfdebug triage`` to a failed report, where a rule knows the failure."""
    phase = getattr(report, "when", None) or "collection"
    finding = classify(Failure.of(error, node.nodeid, "collection" if phase == "collect" else phase))
    findings = merge(finding, findings_of(node))
    if not findings:
        return
    body = render(findings)
    report.sections.append((TITLE, body))
    if node.config.getoption("showcapture", "all") != "all":  # pytest then hides every section of another kind
        if isinstance(report.longrepr, ExceptionRepr):
            report.longrepr.addsection(TITLE, body)
        elif isinstance(report.longrepr, CollectErrorRepr):
            report.longrepr.longrepr += f"\n{f' {TITLE} ':-^80}\n{body}"


def merge(finding: Finding | None, logged: list[Finding]) -> list[Finding]:
    """Put the failure's own kind first; an error about weights takes the keys from the log, where they stand."""
    if finding is None:
        return logged
    if finding.bucket != SILENT or not logged:
        return [finding, *logged]
    return [replace(finding, facts=(*finding.facts, *logged[0].facts)), *logged[1:]]

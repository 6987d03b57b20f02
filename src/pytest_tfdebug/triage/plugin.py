"""Puts triage's block into the report of a failed test or collection; imported when the first one fails."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from _pytest._code.code import ExceptionChainRepr, ReprEntryNative, ReprExceptionInfo
from _pytest.reports import CollectErrorRepr

from pytest_tfdebug.publish.failure import ANSWER
from pytest_tfdebug.publish.note import PUBLISHER, note
from pytest_tfdebug.triage import text
from pytest_tfdebug.triage.classify import classify
from pytest_tfdebug.triage.failure import Failure
from pytest_tfdebug.triage.log_watch import findings_of
from pytest_tfdebug.triage.render import TITLE, render

if TYPE_CHECKING:
    import pytest

    from pytest_tfdebug.triage.rule import Classification

#: Rules about weights that do not fit, for which the log lists the keys.
_OF_WEIGHTS = ("mismatched-weights", "state-dict-does-not-fit")


def explain(
    node: pytest.Item | pytest.Collector, report: pytest.TestReport | pytest.CollectReport, error: BaseException
) -> None:
    """Put the block ``tfdebug triage`` before the traceback of a failed report, if a rule knows the failure."""
    phase = {"collect": "collection"}.get(report.when or "collect", report.when)
    finding = classify(Failure.of(error, node.nodeid, phase))
    findings = merge(finding, findings_of(node))
    if not findings:
        return
    body, is_answered = render(findings), hasattr(report, ANSWER)
    if not is_answered:
        what, name = text.line(findings[0].what), "" if phase == "call" else phase
        vars(report)[ANSWER] = what
        if node.config.pluginmanager.has_plugin(PUBLISHER):
            from pytest_tfdebug.check_record import CheckRecord

            fix = f"Smallest fix: {text.line(findings[0].fix)}"
            note(node, CheckRecord(node.nodeid, "triage", "failed", what, name, advice=fix, text=body))
    if node.config.getoption("tbstyle", "auto") == "line":
        return
    if is_answered or not _put_first(report.longrepr, f"{f' {TITLE} ':-^80}\n{body}\n"):
        report.sections.append((TITLE, body))


def _put_first(shown: object, block: str) -> bool:
    """Put a block of lines before a traceback; False if there is no traceback."""
    if isinstance(shown, CollectErrorRepr):
        shown.longrepr = f"{block}\n{shown.longrepr}"
        return True
    if not isinstance(shown, (ExceptionChainRepr, ReprExceptionInfo)):
        return False
    first = shown.chain[0][0] if isinstance(shown, ExceptionChainRepr) else shown.reprtraceback
    first.reprentries = [ReprEntryNative([block]), *first.reprentries]
    return True


def merge(finding: Classification | None, logged: list[Classification]) -> list[Classification]:
    """Put the failure's own kind first; an error about weights takes over the keys that the log lists."""
    if finding is None:
        return logged
    if finding.rule not in _OF_WEIGHTS or not logged:
        return [finding, *logged]
    return [replace(finding, facts=(*finding.facts, *logged[0].facts)), *logged[1:]]

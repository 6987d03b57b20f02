"""From a failure, and from what transformers logged for a test, to triage's block in its report.

transformers may log that something is wrong and go on. If a test with such a model fails, its report says so.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from importlib import metadata, util
from typing import TYPE_CHECKING, NamedTuple

import pytest
from _pytest._code.code import ExceptionChainRepr, ReprEntryNative, ReprExceptionInfo
from _pytest.reports import CollectErrorRepr

from pytest_tfdebug.frames import Owner, running_owner
from pytest_tfdebug.publish.reports import ANSWER, PUBLISHER, note
from pytest_tfdebug.triage.facts import READERS
from pytest_tfdebug.triage.rules import (
    LINE_LIMIT,
    LOG_RULES,
    RULES,
    Classification,
    Facts,
    Failure,
    listing,
    safe_line,
    shown,
    strip_colour,
)

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_tfdebug.triage.rules import FailureRule, Link


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
        what, name = safe_line(findings[0].what), "" if phase == "call" else phase
        vars(report)[ANSWER] = what
        if node.config.pluginmanager.has_plugin(PUBLISHER):
            from pytest_tfdebug.check_record import CheckRecord

            fix = f"Smallest fix: {safe_line(findings[0].fix)}"
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
    if finding.rule in _OF_WEIGHTS and logged:
        finding, logged = replace(finding, facts=(*finding.facts, *logged[0].facts)), logged[1:]
    return [finding, *logged]


def classify(failure: Failure) -> Classification | None:
    """Return what kind of failure this is, or None if no rule is sure of it.

    The outermost exception that a rule knows decides. If several rules know it, the first one of the table does.
    """
    tried = (_apply(rule, failure, position) for position in range(len(failure.links)) for rule in RULES)
    return next((finding for finding in tried if finding is not None), None)


def _apply(rule: FailureRule, failure: Failure, position: int) -> Classification | None:
    link = failure.links[position]
    if not set(rule.raised) & set(link.types):
        return None
    matched = re.search(rule.text, link.message)
    if matched is None:
        return None
    if rule.because and not any(re.search(rule.because, inner.described) for inner in failure.links[position:]):
        return None
    if link.is_quoted(rule.libraries):
        return None
    links = failure.links[position:] + failure.links[:position]
    failure = replace(failure, links=links)  # its frames and its line of code come first
    facts = _read(rule, failure, link, matched)
    if facts is None:
        return None
    names = {**_names(failure), **{name: shown(found or "") for name, found in matched.groupdict().items()}}
    return rule.found(failure.phase, names | facts.names, facts.lines)


def _read(rule: FailureRule, failure: Failure, link: Link, matched: re.Match[str]) -> Facts | None:
    if not rule.facts:
        return Facts()
    try:
        return READERS[rule.facts](failure, link, matched)
    except Exception as unreadable:  # noqa: BLE001 - the objects are foreign and the test has failed already: say so, go on
        return Facts(lines=(f"more could not be read: {type(unreadable).__name__}: {shown(unreadable)}",))


def _names(failure: Failure) -> dict[str, str]:
    """Return the names that every template may use."""
    try:
        version = metadata.version("transformers")
    except metadata.PackageNotFoundError:
        version = "not installed" if util.find_spec("transformers") is None else "of unknown version"
    names = {"nodeid": failure.nodeid, "rerun": f"pytest {shlex.quote(failure.nodeid)}", "version": version}
    if failure.site is not None:
        place = f"{failure.site.file}:{failure.site.first}"
        names |= {"site": place, "code": shown(failure.site.code, LINE_LIMIT)}
    return names


TITLE, _MOST_LINES = "tfdebug triage", 40


def render(findings: Sequence[Classification]) -> str:
    """Return the body of the report section: a block for each finding, every line safe to print."""
    lines = [safe_line(line) for line in _lines(findings)]
    left = len(lines) - _MOST_LINES
    return "\n".join([*lines[:_MOST_LINES], f"({left} more lines)"] if left > 0 else lines)


def _lines(findings: Iterable[Classification]) -> Iterator[str]:
    for number, finding in enumerate(findings):
        if number:
            yield ""
        yield f"bucket: {finding.bucket} (in {finding.phase})"
        yield f"what happened: {finding.what}"
        for fact in finding.facts:
            yield f"  {fact}"
        yield f"smallest fix: {finding.fix}"
        yield f"next step: {finding.then}"


_MAX_NOTES = 200
_MAX_MESSAGE = 40_000
_ROW = re.compile(
    r"^(?P<key>\S.*?)\s*\| (?P<status>MISSING|UNEXPECTED|MISMATCH|CONVERSION)\b[ |]*(?P<details>[^\n]*)$", re.MULTILINE
)
_AFTER_THE_MARKER = "compare the checkpoint's keys with model.state_dict().keys()"
_SHAPES = re.compile(
    r"Reinit due to size mismatch - ckpt: torch\.Size\((?P<theirs>.*?)\) vs model: ?torch\.Size\((?P<ours>.*?)\)"
)
#: Gravest first.
_STATUSES = {
    "MISSING": "missing (random now)",
    "MISMATCH": "mismatched (random now)",
    "UNEXPECTED": "unexpected (left out)",
    "CONVERSION": "not converted",
}


class _Logged(NamedTuple):
    """A message that a rule knows, without colours, and for whom it was logged."""

    rule: FailureRule
    matched: re.Match[str]
    owner: Owner


_LOGGED = pytest.StashKey[list[_Logged]]()


def keep_logged(config: pytest.Config, record: logging.LogRecord) -> None:
    """Keep a message of transformers if a rule knows it."""
    message = strip_colour(record.getMessage()[:_MAX_MESSAGE])
    for rule in LOG_RULES:
        matched = re.search(rule.text, message)
        if matched is not None:
            known = config.stash.setdefault(_LOGGED, [])
            del known[: max(0, len(known) - _MAX_NOTES + 1)]  # the latest are of the tests that still can fail
            known.append(_Logged(rule, matched, running_owner()))
            return


def findings_of(item: pytest.Item | pytest.Collector) -> list[Classification]:
    """Return what was logged for a test: while it ran, or by the fixtures that it uses.

    The gravest message, by the order of the table, is the finding; the others are listed in its facts.
    """
    known = [entry for entry in item.config.stash.get(_LOGGED, []) if entry.owner.is_for(item)]
    unique = {(entry.rule.name, entry.matched.string): entry for entry in known}
    ordered = sorted(unique.values(), key=lambda entry: LOG_RULES.index(entry.rule))
    if not ordered:
        return []
    first, *others = [_finding(entry) for entry in ordered]
    also = tuple(dict.fromkeys(f"also: {other.what}" for other in others))
    is_asked = any("clean_load" in marker.args for marker in item.iter_markers("invariant"))
    then = _AFTER_THE_MARKER if "clean_load" in first.then and is_asked else first.then
    return [replace(first, facts=(*first.facts, *also), then=then)]


def rows_of(report: str) -> dict[str, list[str]]:
    """Return the keys of a LOAD REPORT by status."""
    rows: dict[str, list[str]] = {}
    for found in _ROW.finditer(report):
        details = _SHAPES.sub(r"checkpoint \g<theirs>, model \g<ours>", found["details"].strip())
        rows.setdefault(found["status"], []).append(f"{found['key']} ({details})" if details else found["key"])
    return {status: sorted(rows[status]) for status in _STATUSES if status in rows}


def _finding(entry: _Logged) -> Classification:
    names = {name: shown(found) for name, found in entry.matched.groupdict("").items()}
    rows = rows_of(entry.matched.string) if entry.rule.name == "load-report" else {}
    facts = tuple(f"{_STATUSES[status]}: {listing(keys, 4)}" for status, keys in rows.items())
    return entry.rule.found("the transformers log", names, facts)

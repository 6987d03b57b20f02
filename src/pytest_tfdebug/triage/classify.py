"""A failure and the table of rules -> findings."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

from pytest_tfdebug.triage import text
from pytest_tfdebug.triage.facts import READERS
from pytest_tfdebug.triage.rule import Classification, Facts, fill
from pytest_tfdebug.triage.rules import RULES

if TYPE_CHECKING:
    from pytest_tfdebug.triage.failure import Failure, Link
    from pytest_tfdebug.triage.rule import FailureRule


def classify(failure: Failure) -> Classification | None:
    """Return what kind of failure this is, or None if no rule is sure of it.

    The outermost exception that a rule knows decides. If several rules know it, the first one of the table does.
    """
    for position in range(len(failure.links)):
        for rule in RULES:
            finding = _apply(rule, failure, position)
            if finding is not None:
                return finding
    return None


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
    failure = failure.seen_from(position)
    facts = _read(rule, failure, link, matched)
    if facts is None:
        return None
    names = {**_names(failure), **{name: text.value(found or "") for name, found in matched.groupdict().items()}}
    names |= facts.names
    return Classification(
        rule.name,
        rule.bucket,
        failure.phase,
        fill(rule.what, names),
        fill(rule.fix, names),
        fill(rule.then, names),
        facts.lines,
    )


def _read(rule: FailureRule, failure: Failure, link: Link, matched: re.Match[str]) -> Facts | None:
    if not rule.facts:
        return Facts()
    try:
        return READERS[rule.facts](failure, link, matched)
    except Exception as unreadable:  # noqa: BLE001 - the objects are foreign and the test has failed already: say so, go on
        return Facts(lines=(f"more could not be read: {type(unreadable).__name__}: {text.value(unreadable)}",))


def _names(failure: Failure) -> dict[str, str]:
    names = {"nodeid": failure.nodeid, "rerun": f"pytest {shlex.quote(failure.nodeid)}"}
    if failure.site is not None:
        names |= {"site": str(failure.site), "code": text.value(failure.site.code, text.LINE_LIMIT)}
    return names

"""What transformers logged and for whom: a test, or a fixture of wider scope.

transformers may log that something is wrong and go on. If a test with such a model fails, its report says so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pytest

from pytest_tfdebug.frames import Owner, running_owner
from pytest_tfdebug.triage.rules import LOG_RULES, Classification, listing, shown, strip_colour

if TYPE_CHECKING:
    import logging

    from pytest_tfdebug.triage.rules import FailureRule

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


@dataclass(frozen=True)
class Note:
    """One message that a rule knows, without colours, and for whom it was logged."""

    rule: FailureRule
    matched: re.Match[str]
    owner: Owner

    @property
    def message(self) -> str:
        """The whole message."""
        return self.matched.string


NOTES = pytest.StashKey[list[Note]]()


def note(config: pytest.Config, record: logging.LogRecord) -> None:
    """Keep a logged message if a rule knows it."""
    message = strip_colour(record.getMessage()[:_MAX_MESSAGE])
    for rule in LOG_RULES:
        matched = re.search(rule.text, message)
        if matched is not None:
            notes = config.stash.setdefault(NOTES, [])
            del notes[: max(0, len(notes) - _MAX_NOTES + 1)]  # the latest are of the tests that still can fail
            notes.append(Note(rule, matched, running_owner()))
            return


def findings_of(item: pytest.Item | pytest.Collector) -> list[Classification]:
    """Return what was logged for a test: while it ran, or by the fixtures that it uses.

    The gravest message, by the order of the table, is the finding; the others are listed in its facts.
    """
    notes = [entry for entry in item.config.stash.get(NOTES, []) if entry.owner.is_for(item)]
    unique = {(entry.rule.name, entry.message): entry for entry in notes}
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


def _finding(entry: Note) -> Classification:
    names = {name: shown(found) for name, found in entry.matched.groupdict("").items()}
    rows = rows_of(entry.message) if entry.rule.name == "load-report" else {}
    facts = tuple(f"{_STATUSES[status]}: {listing(keys, 4)}" for status, keys in rows.items())
    return entry.rule.found("the transformers log", names, facts)

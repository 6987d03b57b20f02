"""Findings -> the lines of a report section; nothing is computed here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.triage import text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_tfdebug.triage.rule import Classification

TITLE = "tfdebug triage"


def render(findings: Sequence[Classification]) -> str:
    """Return the body of the report section: a block for each finding, every line safe to print."""
    lines = [text.line(line) for line in _lines(findings)]
    if len(lines) > text.LINES_LIMIT:
        lines = [*lines[: text.LINES_LIMIT], f"({len(lines) - text.LINES_LIMIT} more lines)"]
    return "\n".join(lines)


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

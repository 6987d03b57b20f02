"""Keeps the records of finished checks until the report of their test is made, and adds them to its properties."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_tfdebug.frames import is_users, package_of
from pytest_tfdebug.options import Options
from pytest_tfdebug.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from pytest_tfdebug.check_record import CheckRecord
    from pytest_tfdebug.errors import CheckError
    from pytest_tfdebug.records import SourceRange


#: Packages that call every test.
_RUNNERS = frozenset({"_pytest", "pluggy"})
#: Records of the running test whose report has not been made yet.
NOTED: pytest.StashKey[list[CheckRecord]] = pytest.StashKey()
#: The error that one of our markers failed a test with, and the user's line to show it at.
RAISED: pytest.StashKey[tuple[CheckError, SourceRange | None]] = pytest.StashKey()
#: Name of the plugin that takes the records if pages, a JSON file or annotations are asked for.
PUBLISHER = "tfdebug-publisher"


def note(node: pytest.Item | pytest.Collector, record: CheckRecord) -> None:
    """Keep the record of a finished check, or of a failure that triage explains."""
    node.stash.setdefault(NOTED, []).append(record)


def raised(item: pytest.Item, error: CheckError, at: SourceRange | None) -> CheckError:
    """Return an error that a marker raises; its report will show the user's line and none of ours."""
    item.stash[RAISED] = error, at
    return error


def wants_details(config: pytest.Config) -> bool:
    """Tell whether somebody reads more of a check than its verdict: a page or a file."""
    chosen = Options.of(config)
    return bool(chosen.html or chosen.json)


def calling_line() -> SourceRange | None:
    """Return the innermost line of the user's code that is running now; None if there is none."""
    from pytest_tfdebug.records import SourceRange

    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller's frame
    while frame is not None and package_of(frame) not in _RUNNERS:
        if is_users(frame):
            return SourceRange(frame.f_code.co_filename, frame.f_lineno, frame.f_lineno)
        frame = frame.f_back
    return None


def add_properties(item: pytest.Item) -> None:
    """Add the results of a phase's checks to the properties of the test, each once."""
    records = item.stash.get(NOTED, [])
    for record in records:
        found = [(name, redact(value)) for name, value in _properties(record)]
        item.user_properties += [pair for pair in found if pair not in item.user_properties]
    if not item.config.pluginmanager.has_plugin(PUBLISHER):
        records.clear()


def _properties(record: CheckRecord) -> Iterator[tuple[str, str]]:
    """Yield names and values: ``culprit``, ``file``, ``lines``, ``kind`` and ``coverage``, those that are known."""
    culprit = record.culprit
    if record.status == "failed" and culprit is not None:
        yield "culprit", culprit.path
        if culprit.source is not None:
            yield "file", culprit.source.file
            yield "lines", culprit.source.numbers
        yield "kind", culprit.kind
    if record.coverage is not None:
        yield "coverage", f"{record.coverage.compared}/{record.coverage.expected}"

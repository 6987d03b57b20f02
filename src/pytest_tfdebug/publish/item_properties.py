"""The properties of a test, which JUnit files, pytest-html and other readers of reports show, from its checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.publish.note import NOTED, PUBLISHER
from pytest_tfdebug.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from pytest_tfdebug.check_record import CheckRecord


def add(item: pytest.Item) -> None:
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

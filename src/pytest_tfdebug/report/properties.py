"""A finished check as properties of its test, which JUnit files, pytest-html and other readers of reports show."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.check_record import CheckRecord


def properties(record: CheckRecord) -> Iterator[tuple[str, str]]:
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

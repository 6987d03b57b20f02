"""The properties of a test, from the checks that it made."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.publish.note import NOTED, PUBLISHER
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.report.properties import properties

if TYPE_CHECKING:
    import pytest


def add(item: pytest.Item) -> None:
    """Add the results of a phase's checks to the properties of the test, each once."""
    records = item.stash.get(NOTED, [])
    for record in records:
        found = [(name, redact(value)) for name, value in properties(record)]
        item.user_properties += [pair for pair in found if pair not in item.user_properties]
    if not item.config.pluginmanager.has_plugin(PUBLISHER):
        records.clear()

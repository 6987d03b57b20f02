"""For whom a library did something, by the frames: a test, or a fixture of wider scope."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    import pytest

_MAX_DEPTH = 400


@dataclass(frozen=True)
class Owner:
    """For whom it was done; nobody at import."""

    test: str = ""  # the node id of the test that ran, empty outside a test
    # name and base id of the fixture that was being set up, when its scope is wider than a test
    fixture: tuple[str, str] | None = None

    def is_for(self, item: pytest.Item | pytest.Collector) -> bool:
        """Tell whether it was done in a test, or in a fixture that the test uses."""
        if self.fixture is None:
            return bool(self.test) and self.test == item.nodeid
        name, base = self.fixture
        return name in getattr(item, "fixturenames", ()) and item.nodeid.startswith(base)


def running_owner() -> Owner:
    """Walk up the frames to the fixture's set-up and the test that runs."""
    fixture = None
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - only the frames show the test and the fixture's set-up
    for _ in range(_MAX_DEPTH):
        if frame is None:
            break
        name, values = frame.f_code.co_name, frame.f_locals
        if name == "pytest_fixture_setup" and fixture is None and "fixturedef" in values:
            definition = values["fixturedef"]
            fixture = (definition.argname, definition.baseid) if definition.scope != "function" else None
        elif name == "pytest_runtest_protocol" and "item" in values:
            return Owner(values["item"].nodeid, fixture)
        elif name in {"pytest_make_collect_report", "pytest_load_initial_conftests"}:
            return Owner()
        frame = frame.f_back
    return Owner(os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0], fixture)  # another thread of the test

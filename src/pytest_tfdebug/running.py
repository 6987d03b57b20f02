"""The test that runs now: for functions of the public API that a test calls without a fixture."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


class Running:
    """Holds the test; pytest runs one at a time, whatever threads that test starts."""

    item: pytest.Item | None = None


#: Set by the plugin at each test's set-up; its item is None outside pytest.
RUNNING = Running()

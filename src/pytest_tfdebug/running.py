"""The test that runs now: for functions of the public API that a test calls without a fixture."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

#: Set by the plugin at each test's set-up; None outside pytest.
RUNNING: ContextVar[pytest.Item | None] = ContextVar("tfdebug_running", default=None)

"""What runs now, for functions that a test or a forward calls without being handed it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


class Running:
    """What runs now; the one global state of the package."""

    item: pytest.Item | None = None  # pytest runs one test at a time, whatever threads that starts
    watched: ContextVar[Any] = ContextVar("pytest_tfdebug_watched", default=None)  # a forward under watch for overflow


RUNNING = Running()

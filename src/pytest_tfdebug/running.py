"""What runs now, for functions that a test or a forward calls without being handed it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


class Running:
    """What runs now; the one global state of the package."""

    def __init__(self) -> None:
        self.item: pytest.Item | None = None
        self.watched: ContextVar[Any] = ContextVar("pytest_tfdebug_watched", default=None)


RUNNING = Running()

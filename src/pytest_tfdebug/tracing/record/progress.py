"""A line on the terminal while the explanation of a failure takes long."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

#: Seconds before the first line, between two on a terminal, and between two in a log.
_FIRST, _ON_TERMINAL, _IN_LOG = 2.0, 0.5, 10.0


class Progress:
    """Shows how far a piece of work is, once it has taken two seconds; shows nothing in a worker of pytest-xdist."""

    def __init__(self, config: pytest.Config, test: str) -> None:
        self._config, self._test = config, test
        self._next = time.monotonic() + _FIRST

    def step(self, done: int, of: int) -> None:
        """Show which of several calls the work is at."""
        self.tell(f"call {done} of {of}")

    def tell(self, what: str) -> None:
        """Show what the work is at, if it has taken long."""
        now = time.monotonic()
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if now < self._next or reporter is None:
            return
        self._next = now + (_ON_TERMINAL if reporter.isatty else _IN_LOG)
        capture = self._config.pluginmanager.get_plugin("capturemanager")
        line = f"explaining {self._test}: {what}"
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            if reporter.isatty:
                reporter.rewrite(line, erase=True)
            else:
                reporter.ensure_newline()
                reporter.write_line(line)

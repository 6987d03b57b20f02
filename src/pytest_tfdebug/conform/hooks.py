"""The hooks of a run in which a test holds a model to its promises."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_tfdebug.errors import ConformanceError

if TYPE_CHECKING:
    from collections.abc import Generator


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show only the report of a broken promise, and its first line in the summary."""
    report = yield
    if call.excinfo is not None and isinstance(call.excinfo.value, ConformanceError):
        shown = call.excinfo.getrepr(style="value")
        if shown.reprcrash is not None:
            shown.reprcrash.message = str(call.excinfo.value)
        report.longrepr = shown
    return report

"""``@pytest.mark.overflow_free``: the hooks of a run that has such a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.marker_arguments import marked
from pytest_tfdebug.options import Options
from pytest_tfdebug.overflow.recorded_check import overflow_record
from pytest_tfdebug.overflow.roots import Roots
from pytest_tfdebug.overflow.settings import OverflowSettings
from pytest_tfdebug.overflow.watch import Watch
from pytest_tfdebug.publish.note import calling_line, note, raised, wants_details
from pytest_tfdebug.repro.write import write_repro
from pytest_tfdebug.tracing.record.kept_call import KeptCall

if TYPE_CHECKING:
    from collections.abc import Generator

    import torch

    from pytest_tfdebug.records import SourceRange
    from pytest_tfdebug.report.check_text import CheckText

_NAME = "overflow_free"
_ADVICE = (
    "Call the model in the test itself: what fixtures, subprocesses and compiled code run is not seen. "
    "Or take the marker off."
)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Refuse bad marker arguments before the test runs."""
    marked(item, _NAME, OverflowSettings)


class _Calls:
    """Keeps the line of the first call and, with ``--tf-repro``, the latest call, for the repro."""

    def __init__(self, item: pytest.Item) -> None:
        self._item = item
        self._latest: KeptCall | None = None
        self.at: SourceRange | None = None

    def keep(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep a call in place of the one before it."""
        self.at = self.at or calling_line()
        if Options.of(self._item.config).repro:
            self._latest = KeptCall.of(model, args, kwargs)

    def with_repro(self, report: CheckText | None) -> CheckText | None:
        """Return a report with where its repro is."""
        call = self._latest
        if report is None or call is None:
            return report
        return report.with_repro(write_repro(self._item, _NAME, call.model, call.args, call.kwargs))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch the modules that run inside a marked test."""
    settings = marked(item, _NAME, OverflowSettings)
    if settings is None:
        return (yield)
    watch, calls = Watch(settings, raises=False), _Calls(item)
    watch.headroom.is_complete = wants_details(item.config)
    try:
        with Roots(watch, calls.keep).watching():
            result = yield
    except BaseException:
        _add_section(item, watch, calls)
        raise
    if getattr(item, "_excinfo", None):  # a unittest.TestCase keeps its failure instead of raising it
        _add_section(item, watch, calls)
        return result
    message = calls.with_repro(watch.verdict()) or watch.emptiness("overflow_free", _ADVICE)
    error = None if message is None else watch.error(message)
    note(item, overflow_record(item.nodeid, watch, error, calls.at, in_detail=wants_details(item.config)))
    if error is not None:
        raise raised(item, error, calls.at)
    return result


def _add_section(item: pytest.Item, watch: Watch, calls: _Calls) -> None:
    """Show what was found beside a failure of the test's own."""
    report = calls.with_repro(watch.verdict())
    if report is not None:
        item.add_report_section("call", "overflow_free", str(report))

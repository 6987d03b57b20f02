"""``@pytest.mark.overflow_free``: the hooks of a run that has such a test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.marker_arguments import marked
from pytest_tfdebug.options import repros
from pytest_tfdebug.overflow.recorded_check import overflow_record
from pytest_tfdebug.overflow.roots import Roots
from pytest_tfdebug.overflow.settings import Settings
from pytest_tfdebug.overflow.watch import Watch
from pytest_tfdebug.publish.note import calling_line, note, raised, wants_details

if TYPE_CHECKING:
    from collections.abc import Generator

    import torch

    from pytest_tfdebug.check_record import Lines
    from pytest_tfdebug.report.check_text import CheckText
    from pytest_tfdebug.tracing.kept_call import KeptCall

_NAME = "overflow_free"
_ADVICE = (
    "Call the model in the test itself: what fixtures, subprocesses and compiled code run is not seen. "
    "Or take the marker off."
)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Refuse bad marker arguments before any test runs; a worker of xdist can only report them test by test."""
    if hasattr(session.config, "workerinput"):
        return
    for item in session.items:
        marked(item, _NAME, Settings)


class _Calls:
    """Keeps the line of the first call and, with ``--tf-repro``, the latest call, for the repro.

    Args:
        item: The test.
        settings: Its marker's arguments.
    """

    def __init__(self, item: pytest.Item, settings: Settings) -> None:
        self.repros = repros(item.config)
        self._test, self._settings = item.nodeid, settings
        self._latest: KeptCall | None = None
        self.at: Lines | None = None

    def keep(self, model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep a call in place of the one before it."""
        self.at = self.at or calling_line()
        if self.repros is None:
            return
        from pytest_tfdebug.tracing.kept_call import KeptCall

        self._latest = KeptCall.of(model, args, kwargs)

    def with_repro(self, report: CheckText | None) -> CheckText | None:
        """Return a report with where its repro is."""
        if report is None or self.repros is None or self._latest is None:
            return report
        from pytest_tfdebug.overflow.repro import write

        return report.with_repro(write(self.repros, self._test, self._settings, self._latest))


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Watch the modules that run inside a marked test."""
    settings = marked(item, _NAME, Settings)
    if settings is None:
        return (yield)
    watch, calls = Watch(settings, raises=False), _Calls(item, settings)
    watch.headroom.is_complete = wants_details(item.config)
    try:
        with Roots(watch, calls.keep).watching():
            result = yield
    except BaseException:
        _add_section(item, watch, calls)
        raise
    finally:
        watch.close()
    if getattr(item, "_excinfo", None):  # a unittest.TestCase keeps its failure instead of raising it
        _add_section(item, watch, calls)
        return result
    message = calls.with_repro(watch.verdict()) or watch.emptiness("overflow_free", _ADVICE)
    told = None if message is None else str(message)
    note(item, overflow_record(item.nodeid, watch, told, calls.at, in_detail=wants_details(item.config)))
    if message is not None:
        raise raised(item, watch.error(message), calls.at)
    return result


def _add_section(item: pytest.Item, watch: Watch, calls: _Calls) -> None:
    """Show what was found beside a failure of the test's own."""
    report = calls.with_repro(watch.verdict())
    if report is not None:
        item.add_report_section("call", "overflow_free", str(report))

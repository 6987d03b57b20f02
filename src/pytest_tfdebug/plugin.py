"""The pytest entry point: hooks and fixtures, each a few lines that delegate.

It is loaded in every pytest run of its users, so it imports the standard library and pytest alone; what a marker or
an option needs is imported when one asks for it.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import traceback
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug import options
from pytest_tfdebug.errors import CheckError, TFDebugError
from pytest_tfdebug.running import RUNNING, Collected, read

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
    from types import FrameType

    from pytest_tfdebug.sweeping.fixture import Goldens
    from pytest_tfdebug.tracing.trace import Trace

_INVARIANCE = "pytest_tfdebug.invariance.hooks"
#: Marker -> module whose hooks run the marked tests; registered in a run that has such a test.
MARKER_PLUGINS: dict[str, str] = {
    "tf_ranks": "pytest_tfdebug.ranks.hooks",
    "overflow_free": "pytest_tfdebug.overflow.marker",
    "padding_invariant": _INVARIANCE,
    "invariant": _INVARIANCE,
}

_GOLDEN_SESSION = "pytest_tfdebug.goldens.session"
_REPORTS = "pytest_tfdebug.publish.reports"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ``--tf-*`` flags and ``tf_*`` ini keys."""
    options.register(parser)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Set the switches for a second look before a conftest can import what they are for."""
    chosen = options.Options.of(early_config)
    if chosen.offline or chosen.device != "auto" or chosen.sync_cuda:
        import_module("pytest_tfdebug.triage.switches").apply(early_config, chosen)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers and refuse bad ini values."""
    for text in options.MARKERS.values():
        config.addinivalue_line("markers", text)
    chosen = options.Options.of(config)
    if chosen.triage == "auto":
        _LogWatch(config)
    if chosen.watch_masks:
        _register(config, _INVARIANCE)
    if chosen.certify:
        _register(config, "pytest_tfdebug.certify.hooks")
    if chosen.run_skipped:
        _register(config, "pytest_tfdebug.run_skipped.hooks")
    is_told = chosen.html or chosen.json or chosen.patch or os.environ.get("GITHUB_ACTIONS") == "true"
    if is_told and not ("TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("RANK") != "0"):  # rank 0 alone writes
        _register(config, "pytest_tfdebug.publish.hooks")


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Note which test files are collected whole, for unused goldens to be known, and explain one that failed."""
    report = yield
    Collected.of(collector.config).note(collector, report)
    excinfo = getattr(getattr(report, "call", None), "excinfo", None)
    if report.failed and excinfo is not None:
        _explain(collector, report, excinfo.value)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: Sequence[pytest.Item]
) -> Generator[None, object, object]:
    """Register the hooks behind each marker that a collected test carries, before any test is left out."""
    Collected.of(config).items = tuple(items)
    markers = [marker for item in items for marker in item.iter_markers()]
    carried = {marker.name for marker in markers}
    for marker, module in MARKER_PLUGINS.items():
        if marker in carried:
            _register(config, module)
    if any(marker.name == "invariant" and "clean_load" in marker.args for marker in markers):
        _register(config, "pytest_tfdebug.invariance.clean_load")
    declared = {re.split(r"\W", line, maxsplit=1)[0] for line in config.getini("markers")}
    if not carried <= declared:
        from pytest_tfdebug.marker_arguments import MisspeltMarkers

        config.pluginmanager.register(MisspeltMarkers(carried - declared, options.MARKERS), "tfdebug-misspelt-markers")
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Note how the modules of a test that checks goldens are made."""
    if "tf_golden" not in getattr(item, "fixturenames", ()):
        return (yield)
    with import_module("pytest_tfdebug.constructed").noted():
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember the running test, for ``pytest_tfdebug.golden()``."""
    RUNNING.item, RUNNING.random = item, None
    if "tf_golden" in getattr(item, "fixturenames", ()):
        from pytest_tfdebug.generators import states

        RUNNING.random = states()


def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> None:
    """Show where a test made a mistake, and none of our own lines; add what its checks found to its properties.

    It is no wrapper: pytest gives the error of a ``unittest.TestCase`` to the call only in a hook of its own.
    """
    if _REPORTS in sys.modules:
        import_module(_REPORTS).add_properties(item)
    if call.excinfo is None or item.config.getoption("fulltrace"):
        return
    if _is_mistake(call.excinfo):
        _hide_own_lines(call.excinfo.value)
    elif isinstance(call.excinfo.value, CheckError):
        _end_at_the_users_line(call.excinfo.value)


@pytest.hookimpl(wrapper=True, specname="pytest_runtest_makereport")
def pytest_show_failed_check(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the answer of a failed check, the user's lines of a model that raised in one, and what triage knows."""
    report = yield
    if not report.failed or call.excinfo is None:
        return report
    error = call.excinfo.value
    if isinstance(error, (CheckError, TFDebugError)):
        import_module(_REPORTS).show(item, report, call.excinfo)
    elif not item.config.getoption("fulltrace") and any(map(_is_ours, _frames(error))):
        import_module(_REPORTS).fold_libraries(report, call.excinfo)
    _explain(item, report, error)
    return report


def _is_mistake(excinfo: pytest.ExceptionInfo[BaseException]) -> bool:
    return isinstance(excinfo.value, (TFDebugError, pytest.UsageError))


def _hide_own_lines(error: BaseException) -> None:
    from pytest_tfdebug.frames import is_users

    frames = _frames(error)
    if not frames or not _is_ours(frames[-1]):
        return
    cause = _before(error)
    while cause is not None and not any(map(is_users, _frames(cause))):  # came through no line of the user's
        cause = _before(cause)
    if cause is not error.__cause__:
        error.__cause__, error.__context__, error.__suppress_context__ = None, cause, cause is None
    for frame in filter(_is_ours, frames):
        frame.f_globals["__tracebackhide__"] = _is_mistake  # which pytest asks of each line's module
    _end_at_the_users_line(error)


def _end_at_the_users_line(error: BaseException) -> None:
    """Cut what libraries and this package called below the user's last line off a traceback; without one, nothing."""
    from pytest_tfdebug.frames import is_users

    last, step = None, error.__traceback__
    while step is not None:
        last, step = (step if is_users(step.tb_frame) else last), step.tb_next
    if last is not None:
        last.tb_next = None


def _before(error: BaseException) -> BaseException | None:
    return error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _frames(error: BaseException) -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_tb(error.__traceback__)]


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__")).startswith("pytest_tfdebug.")


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Forget it after the last one."""
    if nextitem is None:
        RUNNING.item = None


@pytest.fixture
def tf_golden(request: pytest.FixtureRequest) -> Goldens:
    """Hold a forward to this test's golden: ``tf_golden.check(port, reference=model, input_ids=ids)``."""
    from pytest_tfdebug.sweeping.fixture import goldens_of

    return goldens_of(request.node)


@pytest.fixture
def tf_trace(request: pytest.FixtureRequest) -> Callable[..., Trace]:
    """Record a forward: ``tf_trace(model, input_ids=ids)``; if it raises, the report shows the calls so far."""
    from pytest_tfdebug.tracing.trace import tracer

    return tracer(request.node)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Find the goldens whose test is gone."""
    goldens = _golden_session(session.config)
    if goldens is not None:
        goldens.finish(session)


@pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_sessionfinish")
def pytest_tell_late_interrupts(session: pytest.Session) -> Generator[None, object, object]:
    """Tell of Ctrl-C after the last test, the terminal summary included, as pytest does of one in a test.

    It ends no run itself: pytest catches Ctrl-C until the last test only, and would show its own traceback.
    """
    try:
        return (yield)
    except KeyboardInterrupt:
        session.config.hook.pytest_keyboard_interrupt(excinfo=pytest.ExceptionInfo.from_current())
        session.exitstatus = pytest.ExitCode.INTERRUPTED
        return None


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:  # noqa: ANN401 - a worker of pytest-xdist
    """Tell a worker what was typed and how wide the terminal is: it sees neither."""
    from pytest_tfdebug.goldens.place import TYPED, is_typed
    from pytest_tfdebug.publish.reports import TOLD_WIDTH, width_of

    node.workerinput.update({TYPED: is_typed(node.config), TOLD_WIDTH: width_of(node.config)})


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - a worker of pytest-xdist
    """Take over what a worker did with goldens."""
    if "tfdebug_goldens" in getattr(node, "workeroutput", {}):
        import_module(_GOLDEN_SESSION).take_over(node.config, node)


@pytest.hookimpl(wrapper=True, tryfirst=True, specname="pytest_terminal_summary")
def pytest_colour_failed_checks(terminalreporter: pytest.TerminalReporter) -> Generator[None]:
    """Colour the answers before they are printed."""
    if _REPORTS in sys.modules:
        import_module(_REPORTS).colour(terminalreporter)
    return (yield)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what became of the goldens, and what passing checks have to say."""
    goldens = _golden_session(config)
    if goldens is not None:
        from pytest_tfdebug.redaction import leaving

        _write(terminalreporter, "tfdebug goldens", goldens.summary(config))
        for line in goldens.covered(config):
            terminalreporter.write_line(leaving(line))
    verdicts = [value for _, value in _properties(terminalreporter, options.CONFORMANCE)]
    if verdicts:
        from pytest_tfdebug.check_record import PromiseVerdict
        from pytest_tfdebug.report.tables import render_table

        table = render_table([read(each, PromiseVerdict) for each in verdicts])
        _write(terminalreporter, "tfdebug conformance", table)
    told = _properties(terminalreporter, options.NOTE)
    notes = [f"{it.nodeid}: {value}" for it, value in told if it.when == "call" and it.outcome == "passed"]
    _write(terminalreporter, "tfdebug notes", notes)
    if _REPORTS in sys.modules:
        _write(terminalreporter, "tfdebug diagnoses", import_module(_REPORTS).table(terminalreporter))


def _properties(terminalreporter: pytest.TerminalReporter, key: str) -> Iterator[tuple[pytest.TestReport, Any]]:
    """Yield what tests of this run have noted under a key, each with the report that carries it."""
    for report in (each for group in terminalreporter.stats.values() for each in group):
        yield from ((report, value) for name, value in getattr(report, "user_properties", ()) if name == key)


def _write(terminalreporter: pytest.TerminalReporter, title: str, lines: Iterable[str]) -> None:
    text = "\n".join(lines)
    if text:
        from pytest_tfdebug.redaction import leaving

        terminalreporter.section(title)
        terminalreporter.write_line(leaving(text, keep="\n"))


def _golden_session(config: pytest.Config) -> Any:  # noqa: ANN401 - the module, if this run has to do with goldens
    if _GOLDEN_SESSION not in sys.modules and options.Options.of(config).golden != "update":
        return None
    module = import_module(_GOLDEN_SESSION)
    return module if module.is_active(config) else None


def _register(config: pytest.Config, module: str) -> None:
    if not config.pluginmanager.has_plugin(module):
        config.pluginmanager.register(import_module(module), module)


def _explain(
    node: pytest.Item | pytest.Collector, report: pytest.TestReport | pytest.CollectReport, error: BaseException
) -> None:
    if options.Options.of(node.config).triage == "auto":
        import_module("pytest_tfdebug.triage.plugin").explain(node, report, error)


class _LogWatch(logging.Handler):
    """Hands what transformers logs to triage, which is imported when there is something to hand over."""

    def __init__(self, config: pytest.Config) -> None:
        super().__init__()
        self._config = config
        logger = logging.getLogger("transformers")
        logger.addHandler(self)
        config.add_cleanup(lambda: logger.removeHandler(self))

    def emit(self, record: logging.LogRecord) -> None:
        import_module("pytest_tfdebug.triage.plugin").keep_logged(self._config, record)

"""The pytest entry point: hooks and fixtures, each a few lines that delegate.

It is loaded in every pytest run of its users, so it imports the standard library and pytest alone; what a marker or
an option needs is imported when one asks for it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug import options
from pytest_tfdebug.running import RUNNING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_tfdebug.goldens.fixture import Goldens
    from pytest_tfdebug.tracing.trace import Trace

#: Marker -> module whose hooks run the marked tests; registered in a run that has such a test.
MARKER_PLUGINS: dict[str, str] = {}

_GOLDEN_SESSION = "pytest_tfdebug.goldens.session"
#: Every collected test, before any is left out.
_COLLECTED: pytest.StashKey[tuple[pytest.Item, ...]] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the ``--tf-*`` flags and ``tf_*`` ini keys."""
    options.register(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers and refuse bad ini values."""
    options.register_markers(config)
    options.Options.of(config)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Register the hooks behind each marker that a collected test carries."""
    config.stash[_COLLECTED] = tuple(items)
    for marker, module in MARKER_PLUGINS.items():
        if any(item.get_closest_marker(marker) for item in items) and not config.pluginmanager.has_plugin(module):
            config.pluginmanager.register(import_module(module), module)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Remember the running test, for ``pytest_tfdebug.golden()``."""
    RUNNING.set(item)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Forget it after the last one."""
    if nextitem is None:
        RUNNING.set(None)


@pytest.fixture
def tf_golden(request: pytest.FixtureRequest) -> Goldens:
    """Hold a forward to this test's golden: ``tf_golden.check(port, reference=model, input_ids=ids)``."""
    from pytest_tfdebug.goldens.fixture import goldens_of

    return goldens_of(request.node)


@pytest.fixture
def tf_trace(request: pytest.FixtureRequest) -> Callable[..., Trace]:
    """Record a forward: ``tf_trace(model, input_ids=ids)``; if it raises, the report shows the calls so far."""
    from pytest_tfdebug.tracing.fixture import tracer

    return tracer(request.node)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Find the goldens whose test is gone."""
    goldens = _golden_session(session.config)
    if goldens is not None:
        goldens.finish(session.config, session.config.stash.get(_COLLECTED, ()))


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:  # noqa: ANN401 - a worker of pytest-xdist
    """Take over what a worker did with goldens."""
    part = getattr(node, "workeroutput", {}).get("tfdebug_goldens")
    if part is not None:
        import_module(_GOLDEN_SESSION).GoldenSession.of(node.config).merge(part)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print what became of the goldens."""
    goldens = _golden_session(config)
    lines = list(goldens.summary(config)) if goldens is not None else []
    if lines:
        terminalreporter.section("tfdebug goldens")
        terminalreporter.write_line("\n".join(lines))


def _golden_session(config: pytest.Config) -> Any:  # noqa: ANN401 - the module, if this run has to do with goldens
    if _GOLDEN_SESSION not in sys.modules and not options.Options.of(config).golden_prune:
        return None
    module = import_module(_GOLDEN_SESSION)
    return module if module.is_active(config) else None

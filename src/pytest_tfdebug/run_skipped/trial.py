"""Runs one test without its skips, hidden from the plugins that report and count tests."""

from __future__ import annotations

import inspect
import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_tfdebug.run_skipped.skips import (
    Skip,
    declared,
    does_nothing,
    held_marks,
    innermost,
    is_own,
    without_skips,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pytest_tfdebug.run_skipped.skips import Lifting

#: Plugins of pytest that fill in a report; no other plugin hears of a trial.
_REPORTING = frozenset({"runner", "unittest", "skipping", "tmpdir"})


class Row(NamedTuple):
    """What became of a skipped test; plain values, so that a worker of pytest-xdist can send it."""

    nodeid: str
    outcome: str  # "passes", "fails", or "kept" where it was not run
    skips: tuple[Skip, ...]  # those that were lifted; before them the one that was not
    # the first line of a failure, the function that an empty override hides, or why a test was kept
    text: str = ""


class Quiet:
    """The hooks during a trial: nothing is logged, and only pytest itself makes the reports."""

    def __init__(self, hooks: Any, manager: pytest.PytestPluginManager) -> None:  # noqa: ANN401 - pluggy's relay
        plugins = manager.list_name_plugin()
        others = [plugin for name, plugin in plugins if plugin and name not in _REPORTING]
        self._hooks = hooks
        self.reports: list[pytest.TestReport] = []
        self.pytest_runtest_makereport = manager.subset_hook_caller("pytest_runtest_makereport", others)
        self.pytest_warning_recorded = SimpleNamespace(call_historic=lambda **_: None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report, such as that of a subtest."""
        self.reports.append(report)

    def pytest_exception_interact(self, **_: object) -> None:
        """Open no debugger."""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a hook
        return getattr(self._hooks, name)


def try_test(
    item: pytest.Item, reason: str, met: list[Skip], lifting: Lifting, run: Callable[[pytest.Item], Any]
) -> Row:
    """Run a test that was skipped, for a reason that pytest gave, by the skips that it met."""
    if not isinstance(item, pytest.Function):  # such as a doctest
        return Row(item.nodeid, "kept", (Skip("", 0, reason),), "inside")
    with pytest.MonkeyPatch.context() as patch:
        trial = _Attempt(item, reason, met, lifting)
        try:
            return trial.prepare(patch) or trial.run(patch, run)
        except Exception as error:  # noqa: BLE001 - whatever a test does to pytest, the run has gone well
            return trial.row("fails", f"{type(error).__name__}: {error}".partition("\n")[0])


class _Attempt:
    def __init__(self, item: pytest.Function, reason: str, met: list[Skip], lifting: Lifting) -> None:
        self._item, self._reason, self._skips, self._lifting = item, reason, met, lifting
        self._behind = ""

    def prepare(self, patch: pytest.MonkeyPatch) -> Row | None:
        """Take the skips away; return the row of a test that cannot be run, None where it can."""
        holder, name = self._item.cls or self._item.module, self._item.originalname
        written = getattr(holder, name)
        blocked = self._declare(written)
        function = _first_that_does_something(holder, name) if is_own(written, self._skips) else written
        if blocked is not None:
            return blocked
        if not self._skips:
            return self._kept(Skip("", 0, self._reason), "inside")
        if function is None:
            return self._kept(self._skips[0], "empty")
        return self._clear(patch, holder, written, function)

    def _clear(self, patch: pytest.MonkeyPatch, holder: Any, written: Any, function: Any) -> Row | None:  # noqa: ANN401 - functions and their owner
        """Let the item find a function without its skips; return the row of one that has a skip which is not lifted."""
        item, name, blocked = self._item, self._item.originalname, None
        is_behind = innermost(function) is not innermost(written)
        if is_behind:
            owner = next(base for base in holder.__mro__ if vars(base).get(name) is function)
            self._behind = f"{owner.__name__}.{name}"
            patch.setattr(item, "own_markers", list(getattr(function, "pytestmark", ())))
            blocked = self._declare(function)
        bare = without_skips(function)  # a coroutine function has to be seen as one
        if bare is not written:
            patch.setattr(holder, name, bare)
        for kept in ("_obj", "_instance"):  # what an item keeps of its function once it has run
            vars(item).pop(kept, None)
        is_test_case = hasattr(item.cls, "countTestCases")
        if is_behind and not is_test_case and not hasattr(item, "callspec"):  # it may ask for other fixtures
            asked = item.session._fixturemanager.getfixtureinfo(item, bare, item.cls)  # noqa: SLF001 - no public way
            self._item = pytest.Function.from_parent(item.parent, name=item.name, fixtureinfo=asked)
        for owner in (bare, item.cls):
            if getattr(owner, "__unittest_skip__", False):
                patch.setattr(owner, "__unittest_skip__", False)
        lifted = list(map(id, held_marks(self._item)))
        for node in self._item.listchain():
            patch.setattr(node, "own_markers", [mark for mark in node.own_markers if id(mark) not in lifted])
        return blocked

    def _declare(self, function: Any) -> Row | None:  # noqa: ANN401 - a test function
        """Note the skips that decorators and marks give the test; return the first that is not lifted."""
        self._skips += declared(self._item, function)
        blocking = next((skip for skip in self._skips if skip.kind not in self._lifting.kinds), None)
        return None if blocking is None else self._kept(blocking, blocking.kind)

    def run(self, patch: pytest.MonkeyPatch, run: Callable[[pytest.Item], Any]) -> Row:
        """Run the test and say what became of it."""
        session, met = self._item.session, self._lifting.met
        quiet = Quiet(self._item.ihook, session.config.pluginmanager)
        patch.setattr(session, "gethookproxy", lambda _: quiet)
        patch.setattr(session.config.option, "tbstyle", "line")  # only the first line of a failure is shown
        patch.setattr(self._lifting, "is_on", True)
        met.clear()
        made = run(self._item)
        self._skips += [skip for skip in met if skip.kind in self._lifting.kinds]
        reports = [*quiet.reports, *made]
        failed = next((each for each in reports if each.failed or (each.skipped and hasattr(each, "wasxfail"))), None)
        if failed is not None:
            return self.row("fails", _first_line(failed))
        skipped = next((report for report in made if report.skipped), None)
        if skipped is None:
            return self.row("passes", self._behind)
        if not met or met[-1].kind in self._lifting.kinds:
            return self._kept(Skip("", 0, reason_of(skipped)), "inside")
        return self._kept(met[-1], met[-1].kind)

    def row(self, outcome: str, text: str = "", skips: Iterable[Skip] | None = None) -> Row:
        """Return what became of the test: each skip once, its file relative to the root of the run if it lies there."""
        root = f"{self._item.config.rootpath}{os.sep}"
        shown = (each._replace(file=each.file.removeprefix(root)) for each in skips or self._skips)
        return Row(self._item.nodeid, outcome, tuple(dict.fromkeys(shown)), text)

    def _kept(self, skip: Skip, why: str) -> Row:
        return self.row("kept", why, [skip, *(each for each in self._skips if each.kind in self._lifting.kinds)])


def _first_that_does_something(holder: Any, name: str) -> Any:  # noqa: ANN401 - a class or a module
    """Return the function that a name would mean if those that do nothing were gone; None where there is none."""
    for owner in getattr(holder, "__mro__", (holder,)):
        found = vars(owner).get(name)
        if inspect.isfunction(found):
            if without_skips(found) is None:  # which ``parameterized.expand`` leaves to be skipped
                return None
            if not does_nothing(innermost(found).__code__):
                return found
        elif name in vars(owner):
            return getattr(holder, name) if getattr(holder, name) in {found, getattr(found, "__func__", None)} else None
    return None


def reason_of(report: pytest.TestReport) -> str:
    """Return the reason of a skip as it was written."""
    told = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ")


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = getattr(report, "wasxfail", "") or (crash.message if crash is not None else report.longreprtext)
    return next(iter(str(text).strip().splitlines()), "")

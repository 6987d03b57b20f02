"""Runs one test without its skips, hidden from the plugins that report and count tests."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_tfdebug.run_skipped.skips import (
    Skip,
    does_nothing,
    of_body,
    of_decorators,
    of_marks,
    without_skips,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.run_skipped.skips import Lifting

#: Plugins of pytest that fill in a report; no other plugin hears of a trial.
_REPORTING = frozenset({"runner", "unittest", "skipping", "tmpdir"})


class Row(NamedTuple):
    """What became of a skipped test; plain values, so that a worker of pytest-xdist can send it."""

    nodeid: str
    outcome: str  # "passes", "fails"; or why it was not run: "conditional", "decided" by code, or "empty"
    skips: tuple[Skip, ...]  # those to lift
    # the first line of a failure, the function that an empty override hides, or the reason of the skip that stays
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


def try_test(item: pytest.Item, reason: str, lifting: Lifting, run: Callable[[pytest.Item], Any]) -> Row:
    """Run a test that was skipped, for a reason that pytest gave."""
    if not isinstance(item, pytest.Function):  # such as a doctest
        return Row(item.nodeid, "decided", (), reason)
    with pytest.MonkeyPatch.context() as patch:
        trial = _Attempt(item, reason, lifting)
        try:
            return trial.prepare(patch) or trial.run(patch, run)
        except Exception as error:  # noqa: BLE001 - whatever a test does to pytest, the run has gone well
            return trial.row("fails", f"{type(error).__name__}: {error}".partition("\n")[0])


class _Attempt:
    def __init__(self, item: pytest.Function, reason: str, lifting: Lifting) -> None:
        self._item, self._reason, self._lifting = item, reason, lifting
        self._skips: list[Skip] = []
        self._behind = ""

    def prepare(self, patch: pytest.MonkeyPatch) -> Row | None:
        """Take the skips away; return the row of a test that cannot be run, None where it can."""
        item, name = self._item, self._item.originalname
        holder: Any = item.cls or item.module
        written = getattr(holder, name)
        self._skips = [*of_decorators(item.cls), *self._of(written), *of_body(written, self._reason)]
        for owner in getattr(holder, "__mro__", (holder,)):
            own = vars(owner).get(name)
            if own is not None and not does_nothing(own):
                break
            if own is not None:  # an override without its skips: gone, it shows what is behind
                patch.delattr(owner, name)
        function = getattr(holder, name, None)
        if function is not None and function is not written:
            self._behind = function.__qualname__
            patch.setattr(item, "own_markers", list(getattr(function, "pytestmark", ())))
            self._skips += self._of(function)
        for skip in self._skips:
            if not self._lifting.lifts(skip):
                return self.row("conditional" if skip.file else "decided", skip.reason)
        if not self._skips:
            return self.row("decided", self._reason)
        if function is None:
            return self.row("empty", self._skips[0].reason)
        self._clear(patch, holder, function)
        return None

    def _of(self, function: Any) -> list[Skip]:  # noqa: ANN401 - a function
        return [*(skip for _, skip in of_marks(self._item)), *of_decorators(function)]

    def _clear(self, patch: pytest.MonkeyPatch, holder: Any, function: Any) -> None:  # noqa: ANN401 - and its owner
        """Let the item find a function without its skips."""
        item = self._item
        bare = without_skips(function)  # a coroutine function has to be seen as one
        patch.setattr(holder, item.originalname, bare)
        for kept in ("_obj", "_instance"):  # what an item keeps of its function once it has run
            vars(item).pop(kept, None)
        is_test_case = hasattr(item.cls, "countTestCases")
        if self._behind and not is_test_case and not hasattr(item, "callspec"):  # it may ask for other fixtures
            asked = item.session._fixturemanager.getfixtureinfo(item, bare, item.cls)  # noqa: SLF001 - no public way
            self._item = pytest.Function.from_parent(item.parent, name=item.name, fixtureinfo=asked)
        for owner in (bare, item.cls):
            if getattr(owner, "__unittest_skip__", False):
                patch.setattr(owner, "__unittest_skip__", False)
        lifted = [id(mark) for mark, _ in of_marks(self._item)]
        for node in self._item.listchain():
            patch.setattr(node, "own_markers", [mark for mark in node.own_markers if id(mark) not in lifted])

    def run(self, patch: pytest.MonkeyPatch, run: Callable[[pytest.Item], Any]) -> Row:
        session = self._item.session
        quiet = Quiet(self._item.ihook, session.config.pluginmanager)
        patch.setattr(session, "gethookproxy", lambda _: quiet)
        patch.setattr(session.config.option, "tbstyle", "line")  # only the first line of a failure is shown
        patch.setattr(self._lifting, "is_on", True)
        made = run(self._item)
        failed = next((each for each in (*quiet.reports, *made) if each.failed or hasattr(each, "wasxfail")), None)
        skipped = next((report for report in made if report.skipped), None)
        if failed is not None:
            return self.row("fails", _first_line(failed))
        return self.row("passes", self._behind) if skipped is None else self.row("decided", reason_of(skipped))

    def row(self, outcome: str, text: str) -> Row:
        root = f"{self._item.config.rootpath}{os.sep}"
        found = (each._replace(file=each.file.removeprefix(root)) for each in self._skips if self._lifting.lifts(each))
        return Row(self._item.nodeid, outcome, tuple(dict.fromkeys(found)), text)


def reason_of(report: pytest.TestReport) -> str:
    """Return the reason of a skip as it was written."""
    told = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped").removeprefix(": ")


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = getattr(report, "wasxfail", "") or (crash.message if crash is not None else report.longreprtext)
    return next(iter(str(text).strip().splitlines()), "")

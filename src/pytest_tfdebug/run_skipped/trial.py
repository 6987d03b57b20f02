"""Runs one test without its skips, hidden from the plugins that report and count tests."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_tfdebug.run_skipped import source
from pytest_tfdebug.run_skipped.marks import holder_of, marks_of
from pytest_tfdebug.run_skipped.skips import Skip, carried, without_skips

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_tfdebug.run_skipped.skips import Lifting

#: Plugins of pytest that fill in a report; no other plugin hears of a trial.
_REPORTING = frozenset({"runner", "unittest", "skipping", "tmpdir"})


class Row(NamedTuple):
    """What became of a skipped test; plain values, so that a worker of pytest-xdist can send it."""

    nodeid: str  # the test
    # `"passes"`, `"fails"`, `"redundant"` where a condition of its own skips the test all the same, `"empty"` where
    # deleting the skip leaves nothing to run, or `"kept"` where a skip was not lifted
    outcome: str
    skips: tuple[Skip, ...]  # the skips that were lifted; before them the one that was not
    # the first line of a failure, the function that an empty override hides, the skip that remains, or why one was not
    # lifted
    text: str = ""


class Quiet:
    """The hooks during a trial: nothing is logged, and only pytest itself makes the reports."""

    def __init__(self, hooks: Any, manager: pytest.PytestPluginManager) -> None:  # noqa: ANN401 - pluggy's relay
        self._hooks, self._manager = hooks, manager
        self.reports: list[pytest.TestReport] = []

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a hook
        if name == "pytest_runtest_logreport":
            return lambda report: self.reports.append(report)  # noqa: PLW0108 - it is called by keyword
        if name == "pytest_exception_interact":
            return lambda **_: None
        if name == "pytest_warning_recorded":
            return SimpleNamespace(call_historic=lambda **_: None)
        if name == "pytest_runtest_makereport":
            plugins = self._manager.list_name_plugin()
            others = [plugin for known, plugin in plugins if plugin and known not in _REPORTING]
            return self._manager.subset_hook_caller(name, others)
        return getattr(self._hooks, name)


def try_test(item: pytest.Item, noted: Noted, lifting: Lifting, run: Callable[[pytest.Item], Any]) -> Row:
    """Run a test that was skipped without its skips."""
    if not isinstance(item, pytest.Function):  # such as a doctest
        return Row(item.nodeid, "kept", (Skip("", 0, noted.reason),), "inside")
    with pytest.MonkeyPatch.context() as patch:
        trial = _Attempt(item, noted, lifting)
        try:
            return trial.prepare(patch) or trial.run(patch, run)
        except Exception as error:  # noqa: BLE001 - whatever a test does to pytest, the run has gone well
            return Row(item.nodeid, "fails", trial.shown(), f"{type(error).__name__}: {error}".partition("\n")[0])


class Noted(NamedTuple):
    """How a test was skipped: the reason that pytest gave, and the skips that it met."""

    reason: str
    met: tuple[Skip, ...]


class _Attempt:
    def __init__(self, item: pytest.Function, noted: Noted, lifting: Lifting) -> None:
        self._item, self._noted, self._lifting = item, noted, lifting
        self._skips: list[Skip] = list(noted.met[-1:])
        self._is_test_case = hasattr(item.cls, "countTestCases")
        self._behind = ""

    def prepare(self, patch: pytest.MonkeyPatch) -> Row | None:
        """Take the skips away; return the row of a test that cannot be run, None where it can."""
        holder, name = holder_of(self._item), self._item.originalname
        written = getattr(holder, name)
        blocked = self._declare(written)
        is_own = self._is_own(written) or without_skips(written) is None
        function = _first_that_does_something(holder, name) if is_own else written
        if blocked is None and not self._skips:
            blocked = self._kept(Skip("", 0, self._noted.reason), "inside")
        elif blocked is None and function is None:
            blocked = Row(self._item.nodeid, "empty", self.shown())
        if blocked is not None:
            return blocked
        is_behind = _innermost(function) is not _innermost(written)
        if is_behind:
            owner = next(base for base in holder.__mro__ if vars(base).get(name) is function)
            self._behind = f"{owner.__name__}.{name}"
        bare = without_skips(function)  # a coroutine function has to be seen as one
        if bare is not written:
            patch.setattr(holder, name, bare)
        if is_behind:
            patch.setattr(self._item, "own_markers", list(getattr(function, "pytestmark", ())))
            blocked = self._declare(function)
        self._renew(name, is_other=is_behind)
        for owner in (bare, self._item.cls):
            if getattr(owner, "__unittest_skip__", False):
                patch.setattr(owner, "__unittest_skip__", False)
        lifted = [marked.mark for marked in marks_of(self._item)]
        for node in self._item.listchain():
            kept = [mark for mark in node.own_markers if not any(mark is each for each in lifted)]
            patch.setattr(node, "own_markers", kept)
        return blocked

    def _declare(self, function: Any) -> Row | None:  # noqa: ANN401 - a test function
        """Note the skips that decorators and marks give the test; return the first that is not lifted."""
        self._skips += [marked.skip for marked in marks_of(self._item)]
        for owner in (function, self._item.cls) if self._is_test_case else (function,):
            if getattr(owner, "__unittest_skip__", False):
                self._skips += carried(owner) or [Skip("", 0, self._noted.reason, "environment", "set by hand")]
        blocking = next((skip for skip in self._skips if skip.kind not in self._lifting.kinds), None)
        return None if blocking is None else self._kept(blocking, blocking.kind)

    def _is_own(self, function: Any) -> bool:  # noqa: ANN401 - a test function
        """Tell whether a test itself has one of the skips, and not only its class, module or set-up."""
        inner = _innermost(function)
        if not inspect.isfunction(inner):
            return False
        lines = source.lines_of(inner.__code__)
        return any(skip.file == inner.__code__.co_filename and skip.line in lines for skip in self._skips)

    def _renew(self, name: str, *, is_other: bool) -> None:
        """Make the item look its function up again; another function may ask for other fixtures."""
        item = self._item
        for kept in ("_obj", "_instance"):  # what an item keeps of its function once it has run
            vars(item).pop(kept, None)
        if is_other and not self._is_test_case and not hasattr(item, "callspec"):
            asked = item.session._fixturemanager.getfixtureinfo(item, getattr(item.cls, name), item.cls)  # noqa: SLF001 - no public way
            self._item = pytest.Function.from_parent(item.parent, name=item.name, fixtureinfo=asked)

    def run(self, patch: pytest.MonkeyPatch, run: Callable[[pytest.Item], Any]) -> Row:
        """Run the test and say what became of it."""
        session, met = self._item.session, self._lifting.met
        quiet = Quiet(self._item.ihook, session.config.pluginmanager)
        patch.setattr(session, "gethookproxy", lambda _: quiet)
        patch.setattr(session.config.option, "tbstyle", "line")  # only the first line of a failure is shown
        patch.setattr(self._lifting, "is_on", True)
        met.clear()
        made = run(self._item)
        reports = [*quiet.reports, *made]
        self._skips += [skip for skip in met if skip.kind in self._lifting.kinds]
        failed = next((each for each in reports if each.failed or (each.skipped and hasattr(each, "wasxfail"))), None)
        if failed is not None:
            return Row(self._item.nodeid, "fails", self.shown(), _first_line(failed))
        skipped = next((report for report in made if report.skipped), None)
        if skipped is None:
            return Row(self._item.nodeid, "passes", self.shown(), self._behind)
        if not met or met[-1].kind in self._lifting.kinds:
            return self._kept(Skip("", 0, reason_of(skipped)), "inside")
        if met[-1].kind != "conditional":
            return self._kept(met[-1], met[-1].kind)
        (left,) = self.shown([met[-1]])
        return Row(self._item.nodeid, "redundant", self.shown(), f"{left.file}:{left.line}: {left.reason}")

    def shown(self, skips: Sequence[Skip] = ()) -> tuple[Skip, ...]:
        """Return each skip once, with its file relative to the root of the run."""
        root = self._item.config.rootpath
        return tuple(dict.fromkeys(skip.seen_from(root) for skip in skips or self._skips))

    def _kept(self, skip: Skip, why: str) -> Row:
        others = [each for each in self._skips if each.kind in self._lifting.kinds]
        return Row(self._item.nodeid, "kept", self.shown([skip, *others]), why)


def _first_that_does_something(holder: Any, name: str) -> Any:  # noqa: ANN401 - a class or a module
    """Return the function that a name would mean if those that do nothing were gone; None where there is none."""
    for owner in getattr(holder, "__mro__", (holder,)):
        found = vars(owner).get(name)
        if inspect.isfunction(found):
            if without_skips(found) is None:  # which ``parameterized.expand`` leaves to be skipped
                return None
            if not source.does_nothing(_innermost(found).__code__):
                return found
        elif name in vars(owner):
            return getattr(holder, name) if getattr(holder, name) in {found, getattr(found, "__func__", None)} else None
    return None


def _innermost(function: Any) -> Any:  # noqa: ANN401 - a function
    """Return the function that was decorated, also by ``parameterized.expand``."""
    while inspect.isfunction(inner := getattr(function, "__wrapped__", None) or getattr(function, "place_as", None)):
        function = inner
    return function


def reason_of(report: pytest.TestReport) -> str:
    """Return the reason of a skip as it was written."""
    told = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped: ")


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(report.longrepr, "reprcrash", None)
    text = getattr(report, "wasxfail", "") or (crash.message if crash is not None else report.longreprtext)
    return next(iter(str(text).strip().splitlines()), "")

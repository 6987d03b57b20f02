"""The skips of a run, where each is written and which are lifted; and a test run without its skips.

``unittest.skip`` and ``pytest.mark.skip`` note the line that calls them. A line of a module or of a class stands beside
the tests that it skips; one of a function (``slow``, a hook of a conftest) is a choice of the run, and stays. So does a
skip that the code of a test calls, unless that is all that the test does.
"""

from __future__ import annotations

import ast
import functools
import inspect
import os
import sys
import unittest
from contextlib import suppress
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


#: Where a mark, and where a function or class, keeps what is known of its skips.
_PLACE, _SKIPS = "tf_place", "__tf_skips__"
#: Functions and errors that skip the test that calls or raises them.
_SKIPPING = frozenset({"skip", "skipTest", "SkipTest"})
_MACHINERY = frozenset({"unittest", "_pytest", "pytest_tfdebug"})


class Skip(NamedTuple):
    """A skip in the source."""

    file: str  # empty where a function decides it, and not the source beside the test
    line: int  # the line to delete
    reason: str  # as written
    is_conditional: bool = False


class Lifting:
    """Which skips are lifted while a test is run without them."""

    def __init__(self, mode: str) -> None:
        self.is_on = False  # whether a test is run without its skips
        self._lifts_conditions = mode == "all"

    def lifts(self, skip: Skip) -> bool:
        """Tell whether a skip is one to lift."""
        return bool(skip.file) and (self._lifts_conditions or not skip.is_conditional)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replace what makes skips."""
        skip, create = self._decorator(unittest.skip), pytest.Mark.__init__

        @functools.wraps(create)
        def create_here(mark: pytest.Mark, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as a mark takes them
            create(mark, *args, **kwargs)
            object.__setattr__(mark, _PLACE, _place())  # a mark is frozen

        patch.setattr(unittest.case, "skip", skip)  # which skipIf and skipUnless call
        patch.setattr(unittest, "skip", skip)
        patch.setattr(pytest.Mark, "__init__", create_here)

    def _decorator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def skip(reason: Any) -> Any:  # noqa: ANN401 - a reason, or the function of a bare decorator
            is_bare = inspect.isfunction(reason)
            is_conditional = sys._getframe(1).f_globals["__name__"] == "unittest.case"  # noqa: SLF001 - as below
            found = Skip(*_place(), "" if is_bare else str(reason), is_conditional)

            def decorate(test_item: Any) -> Any:  # noqa: ANN401 - a function or a class
                decorated = skipping = original(found.reason)(test_item)
                if not isinstance(test_item, type):

                    @functools.wraps(skipping)
                    def skip_wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever a test takes
                        return (test_item if self.is_on and self.lifts(found) else skipping)(*args, **kwargs)

                    decorated, vars(skip_wrapper)["__wrapped__"] = skip_wrapper, test_item
                setattr(decorated, _SKIPS, (found, *of_decorators(test_item)))
                return decorated

            return decorate(reason) if is_bare else decorate

        return skip


def _place() -> tuple[str, int]:
    """Return the file and line that asks for a skip; no file if it is in a function, and not in a module or a class."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to ask who calls
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _MACHINERY:
        frame = frame.f_back
    if frame is None or frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return "", 0
    return frame.f_code.co_filename, frame.f_lineno


def of_marks(item: pytest.Item) -> Iterator[Skip]:
    """Yield the ``skip`` marks of a test, and the ``skipif`` marks whose condition holds."""
    from _pytest.skipping import evaluate_condition

    for mark in (*item.iter_markers("skip"), *item.iter_markers("skipif")):
        is_always = mark.name == "skip"
        conditions = () if is_always else mark.args
        conditions = (mark.kwargs["condition"],) if "condition" in mark.kwargs else conditions
        if not conditions or any(evaluate_condition(item, mark, condition)[0] for condition in conditions):
            reason = mark.kwargs.get("reason") or (mark.args[0] if mark.args and is_always else "")
            file, line = getattr(mark, _PLACE, ("", 0))
            yield Skip(file, line, str(reason), bool(conditions))


def of_decorators(test_item: Any) -> tuple[Skip, ...]:  # noqa: ANN401 - a function or a class
    """Return the skips that decorators of ``unittest`` give a function or a class."""
    return getattr(test_item, _SKIPS, ())


def without_skips(function: Any) -> Any:  # noqa: ANN401 - a function
    """Return the function without the outermost decorators of ``unittest`` that skip it."""
    while getattr(getattr(function, "__code__", None), "co_name", "") == "skip_wrapper" and of_decorators(function):
        function = function.__wrapped__
    return function


def innermost(function: Any) -> Any:  # noqa: ANN401 - a function
    """Return the function that was decorated, also by ``parameterized.expand``."""
    while inspect.isfunction(inner := getattr(function, "__wrapped__", None) or getattr(function, "place_as", None)):
        function = inner
    return function


def skips_alone(function: Any) -> list[int] | None:  # noqa: ANN401 - a function
    """Return the lines at which a test skips itself, where it does nothing else; None for any other test."""
    if without_skips(function) is None:  # as ``parameterized.expand`` leaves it
        return []
    try:
        lines, first = inspect.getsourcelines(innermost(function))
        tree = ast.parse("if True:\n" + "".join(f" {line}" for line in lines))
    except (OSError, TypeError, SyntaxError, UnicodeError):
        return None
    found = next((node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
    body = [] if found is None else found.body
    skips = [each for each in body if _is_skip(each)]
    is_idle = bool(body) and all(_is_idle(each) for each in body if each not in skips)
    return [first - 2 + each.lineno for each in skips] if is_idle else None


def _is_skip(statement: ast.stmt) -> bool:
    skip = statement.value if isinstance(statement, ast.Expr) else getattr(statement, "exc", None)
    called = skip.func if isinstance(skip, ast.Call) else skip
    return getattr(called, "attr", getattr(called, "id", None)) in _SKIPPING


def _is_idle(statement: ast.stmt) -> bool:
    is_constant = isinstance(getattr(statement, "value", None), (ast.Constant, type(None)))
    return isinstance(statement, (ast.Pass, ast.Expr, ast.Return)) and is_constant


#: Plugins of pytest that fill in a report; no other plugin hears of a trial.
_REPORTING = frozenset({"runner", "unittest", "skipping", "tmpdir"})


class Row(NamedTuple):
    """What became of a skipped test; plain values, so that a worker of pytest-xdist can send it."""

    nodeid: str
    outcome: str  # "passes", "fails"; or why it was not run: "conditional", "decided" by code, or "empty"
    skips: tuple[Skip, ...]  # those to lift
    # the first line of a failure, the function that an empty override hides, or the reason of the skip that stays
    text: str = ""


class _Quiet:
    """The hooks during a trial: nothing is logged, no debugger opens, and only pytest itself makes the reports."""

    def __init__(self, hooks: Any, manager: pytest.PytestPluginManager) -> None:  # noqa: ANN401 - pluggy's relay
        others = [plugin for name, plugin in manager.list_name_plugin() if plugin and name not in _REPORTING]
        self._hooks = hooks
        self.reports: list[pytest.TestReport] = []
        self.pytest_runtest_makereport = manager.subset_hook_caller("pytest_runtest_makereport", others)
        self.pytest_warning_recorded = SimpleNamespace(call_historic=lambda **_: None)
        self.pytest_runtest_logstart = self.pytest_runtest_logfinish = lambda **_: None
        self.pytest_exception_interact = lambda **_: None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep a report, also that of a subtest."""
        self.reports.append(report)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a hook
        return getattr(self._hooks, name)


def try_test(item: pytest.Item, reason: str, lifting: Lifting, following: pytest.Item | None) -> Row:
    """Run a test that was skipped, for a reason that pytest gave, before another one."""
    if not isinstance(item, pytest.Function):  # such as a doctest
        return Row(item.nodeid, "decided", (), reason)
    trial = _Attempt(item, reason, lifting)
    try:
        with pytest.MonkeyPatch.context() as patch:
            return trial.prepare(patch) or trial.run(patch, following)
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
        self._skips = [*of_decorators(item.cls), *self._of(written)]
        for line in skips_alone(written) or ():
            self._skips.append(Skip(innermost(written).__code__.co_filename, line, self._reason))
        for owner in getattr(holder, "__mro__", (holder,)):
            own = vars(owner).get(name)
            if own is not None and skips_alone(own) is None:
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
        return [*of_marks(self._item), *of_decorators(function)]

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
        patch.setattr("_pytest.skipping.evaluate_skip_marks", lambda _: None)  # each of them is one to lift

    def run(self, patch: pytest.MonkeyPatch, following: pytest.Item | None) -> Row:
        item, session = self._item, self._item.session
        quiet = _Quiet(item.ihook, session.config.pluginmanager)
        patch.setattr(session, "gethookproxy", lambda _: quiet)
        patch.setattr(session.config.option, "tbstyle", "line")  # only the first line of a failure is shown
        patch.setattr(self._lifting, "is_on", True)
        tear_down(session, item)
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)  # which timeouts and filters wrap
        failed = next((each for each in quiet.reports if each.failed or hasattr(each, "wasxfail")), None)
        skipped = next((each for each in quiet.reports if each.skipped and type(each) is pytest.TestReport), None)
        if failed is not None:
            return self.row("fails", _first_line(failed))
        return self.row("passes", self._behind) if skipped is None else self.row("decided", reason_of(skipped))

    def row(self, outcome: str, text: str) -> Row:
        root = f"{self._item.config.rootpath}{os.sep}"
        found = (each._replace(file=each.file.removeprefix(root)) for each in self._skips if self._lifting.lifts(each))
        return Row(self._item.nodeid, outcome, tuple(dict.fromkeys(found)), text)


def tear_down(session: pytest.Session, following: pytest.Item | None) -> None:
    """End the fixtures that the next test does not share, as another test may have been expected next."""
    with suppress(Exception):  # an error of theirs belongs to no test
        session._setupstate.teardown_exact(following)  # noqa: SLF001 - as pytest does after each test


def reason_of(report: pytest.TestReport) -> str:
    """Return the reason of a skip as it was written."""
    told = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return told.removeprefix("Skipped").removeprefix(": ")


def _first_line(report: pytest.TestReport) -> str:
    crash = getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longreprtext)
    return str(getattr(report, "wasxfail", "") or crash).strip().partition("\n")[0]

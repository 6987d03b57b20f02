"""``--tf-skip-report=FILE``: what pytest really collected and skipped, in the scanner's own form.

The answer comes from live classes and reports alone, never from source, so that it can prove the scanner right or
wrong: ``python -m pytest_tfdebug.scan --against FILE``.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_tfdebug.options import Options

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.scan.layout import Place
    from pytest_tfdebug.scan.report import CommonTest

_OUTPUT = "tf_skip_report"


class Row(NamedTuple):
    """What happened to one test item; plain values, so that an xdist worker can send it.

    ``is_run`` tells what a run has shown from what its decorators, or nothing, say of an item that it did not reach.
    """

    nodeid: str
    model: str
    cls: str
    test: str
    name: str
    origin: str
    state: str
    form: str = ""
    reason: str = ""
    file: str = ""
    line: int = 0
    is_run: bool = False


class Part(NamedTuple):
    """What one process of a run saw: its rows, and the models of which a file could not be collected."""

    rows: list[Row]
    broken: list[str]


def pytest_configure(config: pytest.Config) -> None:
    """Add the hooks of a run that asks for a report."""
    path = Options.of(config).skip_report
    if path:
        config.pluginmanager.register(SkipReport(config, path))


class SkipReport:
    """The hooks of one run.

    Args:
        config: The run's configuration.
        path: The file to write.
    """

    def __init__(self, config: pytest.Config, path: str) -> None:
        self._config, self._path = config, Path(path)
        self._rows: dict[str, Row] = {}
        self._broken: set[str] = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note every model that is not wholly collected, so that what it lacks proves nothing."""
        where = _place(report.nodeid.partition("::")[0])
        if where is not None and not report.passed:
            self._broken.add(where.model)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note every item that is to run, and what vanished beside it."""
        classes: dict[tuple[str, str], type] = {}
        for item in session.items:
            row = _row(item)
            if row is not None:
                self._rows[item.nodeid] = row
                classes[item.nodeid.rpartition("::")[0], row.model] = item.cls  # type: ignore[attr-defined]
        for (node, model), cls in classes.items():
            kept = {row.test for row in self._rows.values() if row.nodeid.startswith(f"{node}::")}
            for row in _vanished(self._config.rootpath, node, model, cls):
                if row.test not in kept:
                    self._rows[row.nodeid] = row

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Note every item that will not run, so that its absence proves nothing."""
        for item in items:
            row = _row(item)
            if row is not None:
                self._rows[item.nodeid] = row._replace(state="deselected")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how an item ended; one whose call never began, or never ended, has not run."""
        row = self._rows.get(report.nodeid)
        if row is None or report.when == "teardown":
            return
        if report.skipped and not hasattr(report, "wasxfail"):
            file, line, reason = _location(report.longrepr)
            file = _relative(file, self._config.rootpath)
            found = row._replace(state="skipped", form=row.form or "guard", reason=reason, file=file, line=line)
            self._rows[report.nodeid] = found._replace(is_run=True)
        elif report.when == "call" and row.state != "skipped":  # as a skipped subtest reports it before the test
            self._rows[report.nodeid] = row._replace(state="ran", is_run=True)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report; a worker hands its part to the controller."""
        for item in session.items:
            row = self._rows.get(item.nodeid)
            if row is not None and row.state == "collected":
                self._rows[item.nodeid] = _marked(item, row)
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_OUTPUT] = [[tuple(row) for row in self._rows.values()], sorted(self._broken)]
            return
        _write(Part(list(self._rows.values()), sorted(self._broken)), self._path)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:  # noqa: ANN401 - xdist is not typed
        """Take what a worker saw; what one has run counts before what others only collected."""
        rows, broken = getattr(node, "workeroutput", {}).get(_OUTPUT, ((), ()))
        for row in (Row(*values) for values in rows):
            if row.is_run or row.nodeid not in self._rows:
                self._rows[row.nodeid] = row
        self._broken.update(broken)


def _row(item: pytest.Item) -> Row | None:
    """Return the row of an item that is a common test of a model, before it runs."""
    cls = getattr(item, "cls", None)
    where = _place(_relative(str(item.path), item.config.rootpath))
    if cls is None or where is None or item.parent is None:
        return None
    name = getattr(item, "originalname", None) or item.name.partition("[")[0]
    test = _base(cls, name)
    origin = _origin(cls, test, name, item.config.rootpath)
    if not origin:
        return None
    form = _form(item, cls, name)
    return Row(item.nodeid, where.model, item.parent.name, test, item.name, origin, "collected", form)


def _place(path: str) -> Place | None:
    from pytest_tfdebug.scan.layout import place

    return place(path)


def _base(cls: type, name: str) -> str:
    """Return the name of a test before ``parameterized.expand`` gave it a suffix."""
    for base in cls.__mro__:
        original = getattr(vars(base).get(name), "place_as", None)
        if original is not None and name.startswith(f"{original.__name__}_"):
            return str(original.__name__)
    return name


def _origin(cls: type, test: str, name: str, root: Path) -> str:
    """Return the mixin at the root of those outside the models that define a test; empty where there is none."""
    from pytest_tfdebug.scan.scanner import ORIGINS

    found = [base for base in cls.__mro__ if _defines(base, test, name) and not _is_of_a_model(base, root)]
    return ORIGINS.get(found[-1].__name__, found[-1].__name__) if found and test.startswith("test_") else ""


def _defines(cls: type, test: str, name: str) -> bool:
    """Tell whether a class itself defines a test, or the variants that ``expand`` made of it."""
    own = vars(cls)
    if any(_is_function(own.get(found)) for found in (test, name)):
        return True
    return test in own and any(
        getattr(value, "place_as", None) and _base(cls, key) == test for key, value in own.items()
    )


def _is_function(value: object) -> bool:
    return inspect.isfunction(value)


def _is_of_a_model(cls: type, root: Path) -> bool:
    """Tell whether a class stands in a file that belongs to one model."""
    from pytest_tfdebug.scan.layout import is_model_file

    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is None:
        return False
    relative = _relative(file, root)
    return is_model_file(relative, (path.name for path in Path(file).parent.glob("test_modeling_*.py")))


def _form(item: pytest.Item, cls: type, name: str) -> str:
    """Return which kind of decorator could skip an item, or nothing where only its body could."""
    function = getattr(cls, name, None)
    if getattr(cls, "__unittest_skip__", False):
        return "class-decorator"
    if getattr(function, "__unittest_skip__", False):
        return "decorator"
    marks = [(node, mark) for kind in ("skip", "skipif") for node, mark in item.iter_markers_with_node(kind)]
    return "" if not marks else "decorator" if marks[0][0] is item else "class-decorator"


def _marked(item: pytest.Item, row: Row) -> Row:
    """Return the row of an item that is collected and not run: its decorators are all that is known."""
    from _pytest.skipping import evaluate_skip_marks

    cls: Any = getattr(item, "cls", None)
    function = getattr(cls, row.name.partition("[")[0], None)
    try:
        mark = evaluate_skip_marks(item)
    except pytest.fail.Exception:  # a condition that raises, or a mark without a reason for one
        return row
    if mark is not None:
        return row._replace(state="skipped", reason=mark.reason)
    for skipped in (cls, function):
        is_heeded = skipped is function or hasattr(cls, "countTestCases")
        if getattr(skipped, "__unittest_skip__", False) and is_heeded:
            return row._replace(state="skipped", reason=str(getattr(skipped, "__unittest_skip_why__", "")))
    return row


def _vanished(root: Path, node: str, model: str, cls: type) -> Iterator[Row]:
    """Yield a row for each common test, or variant of one, that a class binds to something that is not a function."""
    for base in cls.__mro__[1:]:
        if _is_of_a_model(base, root):
            continue
        for name, value in vars(base).items():
            bound = getattr(cls, name, None)
            if not name.startswith("test_") or not _is_function(value) or callable(bound):
                continue
            test = _base(cls, name)
            origin = _origin(cls, test, name, root)
            is_plain = bound is None or isinstance(bound, (bool, int, float, str, tuple))
            reason = f"{name} = {bound!r}" if is_plain else f"{name} is a {type(bound).__name__}"
            place = node.rpartition("::")[2]
            yield Row(f"{node}::{name}", model, place, test, name, origin, "vanished", "vanished", reason)


def _location(longrepr: object) -> tuple[str, int, str]:
    if isinstance(longrepr, tuple):
        file, line, reason = longrepr
        return str(file), int(line), str(reason).removeprefix("Skipped: ").removeprefix("Skipped")
    return "", 0, str(longrepr)


def _relative(file: str, root: Path) -> str:
    path = Path(file)
    return path.relative_to(root).as_posix() if path.is_absolute() and path.is_relative_to(root) else path.as_posix()


def _write(part: Part, path: Path) -> None:
    """Write what a run saw as a scan's report."""
    from pytest_tfdebug.scan.errors import ScanError
    from pytest_tfdebug.scan.report import dumps, write_text

    try:
        write_text(path, lambda: dumps(*_report(part)))
    except ScanError as error:
        raise pytest.UsageError(str(error).replace("--output_dir", "--tf-skip-report")) from error


def _report(part: Part) -> tuple[dict[str, CommonTest], dict[str, dict[str, Any]]]:
    """Return the tests of the rows, and what is said of each beyond a scan's report."""
    from pytest_tfdebug.scan.report import Case, CommonTest

    tests: dict[str, dict[tuple[str, str], list[Row]]] = {}
    for row in sorted(part.rows):
        tests.setdefault(row.test, {}).setdefault((row.model, row.cls), []).append(row)
    report, extra = {}, {}
    for test, classes in sorted(tests.items()):
        origin = next(row.origin for found in classes.values() for row in found)
        kept = {key: [row for row in found if row.state != "deselected"] for key, found in classes.items()}
        cases = tuple(Case(*key, _state(found)) for key, found in sorted(kept.items()) if found)
        report[test] = CommonTest(test, origin, cases)
        ran: dict[str, list[str]] = {}
        for case in cases:
            if case.state.state == "ran":
                ran.setdefault(case.model, []).append(case.cls)
        left_out = {row.model for found in classes.values() for row in found if row.state == "deselected"}
        extra[test] = {
            "models_not_run": sorted({case.model for case in cases if case.state.state == "collected"}),
            "models_incomplete": sorted(left_out.union(part.broken)),
            "classes_ran": ran,
        }
    return report, extra


def _state(rows: list[Row]) -> Any:  # noqa: ANN401 - the scanner's State, imported when a report is written
    """Return the state of a test in a class from what became of its variants."""
    from pytest_tfdebug.scan.states import RAN, State

    if any(row.state == "collected" for row in rows):
        return State("collected")
    stopped = [row for row in rows if row.state != "ran"]
    if not stopped:
        return RAN
    first = stopped[0]
    state = State(first.state, first.form, first.reason, "", first.file, first.line)
    if len(stopped) < len(rows):
        return state._replace(state="conditional", condition=f"only {', '.join(row.name for row in stopped)}")
    return state

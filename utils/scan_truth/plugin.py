"""``--skip-report=FILE``: what pytest really collected and skipped, from live classes and reports alone."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_tfdebug.scan.read.layout import models_dir_of, named, place
from pytest_tfdebug.scan.result import ORIGINS


class Row(NamedTuple):
    """What happened to one test item: collected, deselected, ran, skipped or vanished."""

    nodeid: str
    model: str
    cls: str
    test: str  # before parameters
    name: str
    origin: str
    state: str
    reason: str = ""
    file: str = ""
    line: int = 0

    @property
    def node(self) -> str:
        """The node id of the item's class."""
        return self.nodeid.partition("[")[0].rpartition("::")[0]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flag."""
    parser.addoption("--skip-report", metavar="FILE", help="write what each model ran and skipped")


def pytest_configure(config: pytest.Config) -> None:
    """Add the hooks of a run that asks for a report."""
    path = config.getoption("--skip-report")
    if path:
        config.pluginmanager.register(SkipReport(config.rootpath, Path(path)))


class SkipReport:
    """The hooks of one run, which write a file."""

    def __init__(self, root: Path, path: Path) -> None:
        self._root, self._path = root, path
        self._rows: dict[str, Row] = {}
        self._broken: set[str] = set()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note every model that is not wholly collected: that a test of it is missing proves nothing."""
        where = place(report.nodeid.partition("::")[0])
        if where is not None and not report.passed:
            self._broken.add(where.model)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Note every item that is to run, and what vanished beside it."""
        classes: dict[tuple[str, str], type] = {}
        for item in session.items:
            row = row_of(item)
            if row is not None:
                self._rows[item.nodeid] = row
                classes[row.node, row.model] = item.cls  # type: ignore[attr-defined]
        for (node, model), cls in classes.items():
            kept = {row.test for row in self._rows.values() if row.node == node}
            self._rows |= {row.nodeid: row for row in vanished(self._root, node, model, cls) if row.test not in kept}

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Note every item that will not run: its absence proves nothing."""
        rows = [(item.nodeid, row_of(item)) for item in items]
        self._rows |= {nodeid: row._replace(state="deselected") for nodeid, row in rows if row is not None}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how an item ended; one whose call never began, or never ended, has not run."""
        row = self._rows.get(report.nodeid)
        if row is None or report.when == "teardown":
            return
        if report.skipped and not hasattr(report, "wasxfail"):
            found = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, str(report.longrepr))
            # pytest puts "Skipped" before a reason, which may begin so itself; alone it means that there is none
            reason = "" if found[2] == "Skipped" else str(found[2]).removeprefix("Skipped: ")
            file = relative_to(str(found[0]), self._root)
            self._rows[row.nodeid] = row._replace(state="skipped", reason=reason, file=file, line=found[1])
        elif report.when == "call" and row.state != "skipped":  # a skipped subtest is reported before its test
            self._rows[row.nodeid] = row._replace(state="ran")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report; of an item that was collected and not run, only the decorators are known."""
        for item in session.items:
            row = self._rows.get(item.nodeid)
            if row is not None and row.state == "collected":
                self._rows[item.nodeid] = marked(item, row)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        report = {"broken": sorted(self._broken), "rows": [row._asdict() for row in sorted(self._rows.values())]}
        self._path.write_text(json.dumps(report, indent=1), encoding="utf-8")


def row_of(item: pytest.Item) -> Row | None:
    """Return the row of an item that is a common test of a model, before it runs."""
    root, cls = item.config.rootpath, getattr(item, "cls", None)
    where = place(relative_to(str(item.path), root))
    if cls is None or where is None or item.parent is None:
        return None
    name = getattr(item, "originalname", None) or item.name.partition("[")[0]
    test = _base(cls, name)
    origin = _origin(cls, test, name, root)
    return Row(item.nodeid, where.model, item.parent.name, test, item.name, origin, "collected") if origin else None


def _base(cls: type, name: str) -> str:
    """Return the name of a test before ``parameterized.expand`` gave it a suffix."""
    for base in cls.__mro__:
        original = getattr(vars(base).get(name), "place_as", None)
        if original is not None and name.startswith(f"{original.__name__}_"):
            return str(original.__name__)
    return name


def _origin(cls: type, test: str, name: str, root: Path) -> str:
    """Return the mixin at the root of those outside the models that define a test; empty where there is none."""
    found = [base for base in cls.__mro__ if _defines(base, test, name) and not _is_of_a_model(base, root)]
    return ORIGINS.get(found[-1].__name__, found[-1].__name__) if found and test.startswith("test_") else ""


def _defines(cls: type, test: str, name: str) -> bool:
    """Tell whether a class itself defines a test, or the variants that ``expand`` made of it."""
    own = vars(cls)
    if any(inspect.isfunction(own.get(found)) for found in (test, name)):
        return True
    variants = (key for key, value in own.items() if getattr(value, "place_as", None))
    return test in own and any(_base(cls, key) == test for key in variants)


def _is_of_a_model(cls: type, root: Path) -> bool:
    """Tell whether a class stands in a file that belongs to one model."""
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    relative = relative_to(file, root) if file is not None else ""
    if not relative or place(relative) is not None:
        return bool(relative)
    models = models_dir_of(relative)
    is_below = bool(models) and "/" in relative.removeprefix(f"{models}/")
    return is_below and any(named(path.name)[0] for path in Path(file or "").parent.glob("test_modeling_*.py"))


def marked(item: pytest.Item, row: Row) -> Row:
    """Return the row of an item that is collected and not run, of which only the decorators are known."""
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


def vanished(root: Path, node: str, model: str, cls: type) -> Iterator[Row]:
    """Yield a row for each common test, or variant of one, that a class binds to something that is not a function."""
    for base in cls.__mro__[1:]:
        for name, value in vars(base).items() if not _is_of_a_model(base, root) else ():
            bound = getattr(cls, name, None)
            if name.startswith("test_") and inspect.isfunction(value) and not callable(bound):
                test, own = _base(cls, name), node.rpartition("::")[2]
                origin, reason = _origin(cls, test, name, root), f"{name} = {bound!r:.60}"
                yield Row(f"{node}::{name}", model, own, test, name, origin, "vanished", reason)


def relative_to(file: str, root: Path) -> str:
    """Return the posix path of a file from a directory; as it is where it lies elsewhere."""
    path = Path(file)
    return path.relative_to(root).as_posix() if path.is_absolute() and path.is_relative_to(root) else path.as_posix()

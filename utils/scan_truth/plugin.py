"""``--skip-report=FILE``: what pytest really collected and skipped, in the scanner's own form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from scan_truth.rows import Row, marked, place_of, relative_to, row_of, vanished

if TYPE_CHECKING:
    from collections.abc import Iterable


_OUTPUT = "tf_skip_report"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the flag."""
    parser.addoption("--skip-report", metavar="FILE", help="write what each model ran and skipped, as the scanner does")


def pytest_configure(config: pytest.Config) -> None:
    """Add the hooks of a run that asks for a report."""
    path = config.getoption("--skip-report")
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
        """Note every model that is not wholly collected: that a test of it is missing proves nothing."""
        where = place_of(report.nodeid.partition("::")[0])
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
            for row in vanished(self._config.rootpath, node, model, cls):
                if row.test not in kept:
                    self._rows[row.nodeid] = row

    def pytest_deselected(self, items: list[pytest.Item]) -> None:
        """Note every item that will not run: its absence proves nothing."""
        for item in items:
            row = row_of(item)
            if row is not None:
                self._rows[item.nodeid] = row._replace(state="deselected")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how an item ended; one whose call never began, or never ended, has not run."""
        row = self._rows.get(report.nodeid)
        if row is None or report.when == "teardown":
            return
        if report.skipped and not hasattr(report, "wasxfail"):
            file, line, reason = _location(report.longrepr)
            file = relative_to(file, self._config.rootpath)
            found = row._replace(state="skipped", form=row.form or "guard", reason=reason, file=file, line=line)
            self._rows[report.nodeid] = found._replace(is_run=True)
        elif report.when == "call" and row.state != "skipped":  # a skipped subtest is reported before its test
            self._rows[report.nodeid] = row._replace(state="ran", is_run=True)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the report; a worker hands its part to the controller."""
        for item in session.items:
            row = self._rows.get(item.nodeid)
            if row is not None and row.state == "collected":
                self._rows[item.nodeid] = marked(item, row)
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output[_OUTPUT] = [[tuple(row) for row in self._rows.values()], sorted(self._broken)]
        else:
            self._write()

    def _write(self) -> None:
        """Write what the run saw as a scan's report."""
        from pytest_tfdebug.scan.errors import ScanError
        from pytest_tfdebug.scan.result import write

        try:
            write(self._path, [json.dumps(_report(self._rows.values(), self._broken), ensure_ascii=False, indent=2)])
        except ScanError as error:
            raise pytest.UsageError(str(error).replace("--output_dir", "--skip-report")) from error

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:  # noqa: ANN401 - xdist is not typed
        """Take what a worker saw; an item that one worker ran counts before one that others only collected."""
        rows, broken = getattr(node, "workeroutput", {}).get(_OUTPUT, ((), ()))
        for row in (Row(*values) for values in rows):
            if row.is_run or row.nodeid not in self._rows:
                self._rows[row.nodeid] = row
        self._broken.update(broken)


def _location(longrepr: object) -> tuple[str, int, str]:
    if isinstance(longrepr, tuple):
        file, line, reason = longrepr
        # pytest puts "Skipped" before a reason, which may begin so itself; alone it means that there is none
        return str(file), int(line), "" if reason == "Skipped" else str(reason).removeprefix("Skipped: ")
    return "", 0, str(longrepr)


def _report(rows: Iterable[Row], broken: set[str]) -> dict[str, dict[str, Any]]:
    """Return a scan's report of the rows, with some keys that it does not have."""
    from pytest_tfdebug.scan.result import Case, CommonTest

    tests: dict[str, dict[tuple[str, str, str], list[Row]]] = {}
    for row in sorted(rows):
        tests.setdefault(row.test, {}).setdefault((row.model, row.cls, row.node), []).append(row)
    report = {}
    for test, classes in sorted(tests.items()):
        origin = next(row.origin for found in classes.values() for row in found)
        kept = {key: [row for row in found if row.state != "deselected"] for key, found in classes.items()}
        cases = tuple(Case(*key[:2], _state(found)) for key, found in sorted(kept.items()) if found)
        ran: dict[str, list[str]] = {}
        for case in cases:
            if case.state.state == "ran":
                ran.setdefault(case.model, []).append(case.cls)
        left_out = {row.model for found in classes.values() for row in found if row.state == "deselected"}
        report[test] = CommonTest(test, origin, cases).to_dict() | {
            "models_not_run": sorted({case.model for case in cases if case.state.state == "collected"}),
            "models_incomplete": sorted(left_out | broken),
            "classes_ran": ran,
        }
    return report


def _state(rows: list[Row]) -> Any:  # noqa: ANN401 - the scanner's State, imported when a report is written
    """Return the state of a test in a class from what became of its variants."""
    from pytest_tfdebug.scan.resolve.conditions import RAN, Condition, State

    if any(row.state == "collected" for row in rows):
        return State("collected")
    stopped = [row for row in rows if row.state != "ran"]
    if not stopped:
        return RAN
    first = stopped[0]
    state = State(first.state, first.form, first.reason, file=first.file, line=first.line)
    if len(stopped) < len(rows):
        some = f"only {', '.join(row.name for row in stopped)}"
        return state._replace(state="conditional", condition=Condition.of([(some,)]))
    return state

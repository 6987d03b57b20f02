"""The hooks of a run that writes pages, a JSON file or annotations; registered where one of them is asked for."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import replace
from errno import EISDIR
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.check_record import SCHEMA, CheckRecord, read_checks
from pytest_tfdebug.environment import environment
from pytest_tfdebug.errors import CheckError, GoldenError, MissingGoldenError, TFDebugError, counted, in_a_line
from pytest_tfdebug.options import Options
from pytest_tfdebug.publish.annotation import annotation
from pytest_tfdebug.publish.reports import NOTED, PUBLISHER
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.redaction import leaving, redact, redacted
from pytest_tfdebug.report.page import card, render_check, render_index
from pytest_tfdebug.tracing.record.replacing import replace_atomically

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Mapping


#: Attribute of a test's report under which its records travel, from workers of pytest-xdist too.
CARRIED = "tfdebug_checks"
#: Likewise the kind of its error.
_ERROR = "tfdebug_error"


def pytest_configure(config: pytest.Config) -> None:
    """Begin a run."""
    config.pluginmanager.register(Publisher(config), PUBLISHER)


class Publisher:
    """Takes the records from the reports of tests and writes pages, the JSON file and annotations.

    A page is written as soon as its check is known, and records are kept in a temporary file. So memory does not grow
    with the number of tests, and an interrupted run leaves its pages.
    """

    def __init__(self, config: pytest.Config) -> None:
        chosen = Options.of(config)
        here = config.invocation_params.dir
        self._config = config
        self._html = here / chosen.html if chosen.html else None
        self._json = here / chosen.json if chosen.json else None
        self._patch = here / chosen.patch if chosen.patch else None
        self._patches: list[str] = []
        self._has_forwards = bool(chosen.json_forward)
        self._is_worker = hasattr(config, "workerinput")
        self._annotations: list[str] = []
        self._unwritten: list[str] = []
        self._tests: dict[str, dict[str, Any]] = {}
        self._waiting = None
        if self._is_worker:
            return
        try:
            for folder in filter(None, (self._html, *(file and file.parent for file in (self._json, self._patch)))):
                folder.mkdir(parents=True, exist_ok=True)
            for file in filter(None, (self._json, self._patch)):
                if file.is_dir():
                    raise IsADirectoryError(EISDIR, os.strerror(EISDIR), str(file))
        except OSError as error:
            told = f"Cannot write into {error.filename}: {error.strerror}. Name another place."
            raise pytest.UsageError(told) from error
        if self._json is not None:
            self._waiting = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115

    @contextmanager
    def _writing(self) -> Generator[None]:
        """Write something; what cannot be written is said at the end, and hides no failure of a test."""
        try:
            yield
        except (OSError, pytest.UsageError) as error:
            self._unwritten.append(str(error))

    @cached_property
    def _site(self) -> Pages | None:
        return None if self._html is None else Pages(self._html)

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # and registered after triage, which has noted what it found by then
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Attach the records of a test to its report, and what kind of error it is."""
        report = yield
        if report.failed and call.excinfo is not None:
            error = call.excinfo.value
            told = {"kind": kind_of(error), "type": type(error).__name__, "message": leaving(in_a_line(error))}
            setattr(report, _ERROR, told)
        self._attach(item, report, (item.reportinfo()[1] or 0) + 1)
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        """Attach what triage found to the report of a file that could not be collected."""
        report = yield
        self._attach(collector, report, 1)
        return report

    def _attach(
        self, node: pytest.Item | pytest.Collector, report: pytest.TestReport | pytest.CollectReport, first: int
    ) -> None:
        records, node.stash[NOTED] = node.stash.get(NOTED, []), []
        if records:
            at = SourceRange(str(node.path), first, first)
            placed = [record if record.at is not None else replace(record, at=at) for record in records]
            setattr(report, CARRIED, [json.dumps(redacted(record.to_dict(), keep="\n\t")) for record in placed])
            self._link(report, records)

    def _link(self, report: pytest.TestReport | pytest.CollectReport, records: list[CheckRecord]) -> None:
        if self._html is None or not self._config.pluginmanager.hasplugin("html"):
            return
        from pytest_html import extras

        made = self._config.getoption("htmlpath", None)
        beside = Path(os.path.expandvars(made)).absolute().parent if made else self._config.invocation_params.dir
        folder = os.path.relpath(self._html, beside).replace(os.sep, "/")
        links = [extras.url(f"{folder}/checks/{it.slug}.html", name=f"tfdebug {it.check}") for it in records]
        vars(report)["extras"] = [*getattr(report, "extras", ()), *links]

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Write what triage found in a file that could not be collected."""
        self.pytest_runtest_logreport(report)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        """Write what a test has checked; a worker leaves it on the report, which goes to the controller."""
        if self._is_worker:
            return
        error = vars(report).pop(_ERROR, None)
        if isinstance(report, pytest.TestReport):
            self._note_outcome(report, error)
        for text in vars(report).pop(CARRIED, ()):
            with self._writing():
                self._take(text)

    def _note_outcome(self, report: pytest.TestReport, error: dict[str, str] | None) -> None:
        """Note how a test ended; of its phases the first that did not pass counts."""
        test = redact(report.nodeid)
        earlier = self._tests.get(test)
        if earlier is None or earlier["outcome"] == "passed":
            self._tests[test] = {"test": test, "outcome": report.outcome, "error": error}

    def _take(self, text: str) -> None:
        if self._waiting is not None:
            self._waiting.write(f"{text if self._has_forwards else _without_forward(text)}\n")
        [check] = read_checks([json.loads(text)])
        if check.status == "failed":
            self._patches += [each.patch for each in check.culprits if each.patch]
        if os.environ.get("GITHUB_ACTIONS") == "true" and check.status == "failed":
            root = os.environ.get("GITHUB_WORKSPACE") or str(self._config.rootpath)
            self._annotations.append(annotation(check, root))
        if self._site is not None:
            self._site.add(check)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the index and the JSON file."""
        if self._is_worker:
            return
        run = _run(self._config, int(session.exitstatus), list(self._tests.values()))
        with self._writing():
            if self._site is not None:
                self._site.finish(run)
        with self._writing():
            if self._patch is not None:
                write_text(self._patch, dict.fromkeys(self._patches))
        with self._writing():
            if self._json is not None and self._waiting is not None:
                with self._waiting:
                    self._waiting.seek(0)
                    write_text(self._json, checks_file(run, self._waiting))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell GitHub of every failed check, and say where the page and the file are."""
        for line in self._annotations:
            terminalreporter.write_line(line)
        for problem in dict.fromkeys(self._unwritten):
            terminalreporter.write_line(f"tfdebug: {problem}", yellow=True)
        if self._unwritten:
            return
        if self._html is not None:
            terminalreporter.write_line(f"tfdebug page: {(self._html / 'index.html').absolute().as_uri()}")
        if self._json is not None:
            terminalreporter.write_line(f"tfdebug checks: {self._json}")
        if self._patch is not None:
            count = len(dict.fromkeys(self._patches))
            terminalreporter.write_line(f"tfdebug patch: {counted(count, 'diff')} in {self._patch}")


#: Class of an error -> what it says of a test; any other is an exception of the test's own, or of its model.
_KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (MissingGoldenError, "missing golden"),
    (CheckError, "wrong answer"),
    (TFDebugError, "misuse"),
    (pytest.UsageError, "misuse"),
)
#: What a run can be called, the kind of error that says most first.
VERDICTS = ("wrong answer", "raised", "missing golden", "misuse")


def kind_of(error: BaseException) -> str:
    """Return what an error says of a test: a wrong answer, a missing golden, a misuse, or that something raised.

    A check that checked nothing is a misuse.
    """
    if isinstance(error, CheckError) and error.is_empty:
        return "misuse"
    return next((kind for cls, kind in _KINDS if isinstance(error, cls)), "raised")


def verdict_of(tests: Iterable[Mapping[str, Any]]) -> str:
    """Return one word for a run: the kind of error that says most, ``passed``, or that nothing ran."""
    tests = list(tests)
    kinds = {test["error"]["kind"] if test["error"] else "raised" for test in tests if test["outcome"] == "failed"}
    worst = next((verdict for verdict in VERDICTS if verdict in kinds), None)
    return worst or ("passed" if any(test["outcome"] == "passed" for test in tests) else "nothing ran")


def _run(config: pytest.Config, status: int, tests: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "verdict": verdict_of(tests),
        "command": ["pytest", *(redact(str(argument)) for argument in config.invocation_params.args)],
        "directory": str(config.invocation_params.dir),
        "rootdir": str(config.rootpath),
        "exit_status": status,
        "python": sys.version.partition(" ")[0],
        "environment": environment(with_git=True),
        "tests": tests,
    }


def _without_forward(text: str) -> str:
    """Return a check without both forwards: nine tenths of it, which few read."""
    return json.dumps({**json.loads(text), "forward": None})


def checks_file(run: Mapping[str, Any], checks: Iterable[str]) -> Iterator[str]:
    """Yield the text of ``--tf-json``, with each check on one line."""
    version = run["environment"]["pytest_tfdebug"]
    head = {"schema": SCHEMA, "generator": {"name": "pytest-tfdebug", "version": version}, "run": run}
    yield json.dumps(head, indent=1)[:-2] + ',\n "checks": ['
    for number, line in enumerate(checks):
        yield (",\n  " if number else "\n  ") + line.rstrip("\n")
    yield "\n ]\n}\n"


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """Write a file from pieces of text, replacing it as a whole."""

    def fill(temporary: str) -> None:
        with Path(temporary).open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(pieces)

    try:
        replace_atomically(path, fill)
    except GoldenError as error:
        raise pytest.UsageError(f"{error} Name another place.") from error


class Pages:
    """A directory of pages: an index, a page for each check, and the files that they share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cards: dict[str, CheckRecord] = {}
        for file in files("pytest_tfdebug.report").joinpath("static").iterdir():
            write_text(folder / "assets" / file.name, [file.read_text(encoding="utf-8")])

    def add(self, check: CheckRecord) -> None:
        """Write the page of a check; the page of a repeated check replaces the earlier one."""
        self._cards.pop(check.slug, None)
        self._cards[check.slug] = card(check)
        write_text(self._folder / "checks" / f"{check.slug}.html", [render_check(check)])

    def finish(self, run: Mapping[str, Any]) -> None:
        """Write the index."""
        for page in (self._folder / "checks").glob("*-????????.html"):  # of an earlier run into the same directory
            if page.stem not in self._cards:
                page.unlink()
        write_text(self._folder / "index.html", [render_index(list(self._cards.values()), run)])

"""What finished checks leave on the report of their test: records, properties, and the answer of one that failed."""

from __future__ import annotations

import re
import shutil
import sys
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest._code.code import ExceptionChainRepr, ReprEntry, ReprFileLocation
from _pytest.pathlib import bestrelpath

from pytest_tfdebug.errors import CheckError
from pytest_tfdebug.frames import is_users, package_of
from pytest_tfdebug.options import Options
from pytest_tfdebug.redaction import leaving
from pytest_tfdebug.report.check_text import WIDTH, CheckText, Level
from pytest_tfdebug.running import told

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from pytest_tfdebug.check_record import CheckRecord
    from pytest_tfdebug.records import SourceRange


#: Packages that call every test.
_RUNNERS = frozenset({"_pytest", "pluggy"})
#: Records of the running test whose report has not been made yet.
NOTED: pytest.StashKey[list[CheckRecord]] = pytest.StashKey()
#: The error that one of our markers failed a test with, and the user's line to show it at.
RAISED: pytest.StashKey[tuple[CheckError, SourceRange | None]] = pytest.StashKey()
#: Name of the plugin that takes the records if pages, a JSON file or annotations are asked for.
PUBLISHER = "tfdebug-publisher"


def note(node: pytest.Item | pytest.Collector, record: CheckRecord) -> None:
    """Keep the record of a finished check, or of a failure that triage explains."""
    node.stash.setdefault(NOTED, []).append(record)


def raised(item: pytest.Item, error: CheckError, at: SourceRange | None) -> CheckError:
    """Return an error that a marker raises; its report will show the user's line and none of ours."""
    item.stash[RAISED] = error, at
    return error


def wants_details(config: pytest.Config) -> bool:
    """Tell whether somebody reads more of a check than its verdict: a page or a file."""
    chosen = Options.of(config)
    return bool(chosen.html or chosen.json)


def calling_line() -> SourceRange | None:
    """Return the innermost line of the user's code that is running now; None if there is none."""
    from pytest_tfdebug.records import SourceRange

    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller's frame
    while frame is not None and package_of(frame) not in _RUNNERS:
        if is_users(frame):
            return SourceRange(frame.f_code.co_filename, frame.f_lineno, frame.f_lineno)
        frame = frame.f_back
    return None


def add_properties(item: pytest.Item) -> None:
    """Add the results of a phase's checks to the properties of the test, each once."""
    records = item.stash.get(NOTED, [])
    for record in records:
        found = [(name, leaving(value, keep="\n\t")) for name, value in _properties(record)]
        item.user_properties += [pair for pair in found if pair not in item.user_properties]
    if not item.config.pluginmanager.has_plugin(PUBLISHER):
        records.clear()


def _properties(record: CheckRecord) -> Iterator[tuple[str, str]]:
    """Yield names and values: ``culprit``, ``file``, ``lines``, ``kind`` and ``coverage``, those that are known."""
    culprit = record.culprit
    if record.status == "failed" and culprit is not None:
        yield "culprit", culprit.path
        if culprit.source is not None:
            yield "file", culprit.source.file
            yield "lines", culprit.source.numbers
        yield "kind", culprit.kind
    if record.coverage is not None:
        yield "coverage", f"{record.coverage.compared}/{record.coverage.expected}"


#: Attribute of a report that carries the first line of its failure to the table at the end of the run.
ANSWER = "tfdebug_answer"
#: Key under which a worker of pytest-xdist gets the width of the terminal.
TOLD_WIDTH = "tfdebug_width"
_NARROWEST = 60
_FAIL = "E   "
#: How a line begins -> its colour in a terminal.
_MARKUP = {
    r"  (here|reference), ": {"cyan": True},
    r"  Next: ": {"bold": True},
    r"  Proved: ": {"green": True},
    r"  (Not certain|Note): ?": {"yellow": True},
    r".*<- ": {"red": True},
}


def show(item: pytest.Item, report: pytest.TestReport, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Show a failed check by its answer, where pytest would show the name of the error's class."""
    error, at = item.stash.get(RAISED, (None, None))
    if error is excinfo.value:
        report.longrepr = excinfo.getrepr(style="value")
    else:
        at = None
    shown: Any = report.longrepr
    answer = leaving(getattr(excinfo.value, "answer", str(excinfo.value).partition("\n")[0]))
    vars(report)[ANSWER] = answer
    if getattr(shown, "reprcrash", None) is None:
        return
    shown.reprcrash.message = answer
    if at is not None:
        shown.reprcrash.path, shown.reprcrash.lineno = at.file, at.first
    if isinstance(shown, ExceptionChainRepr) and isinstance(excinfo.value, CheckError):
        _rewrite(item.config, shown, excinfo.value, at)


def fold_libraries(report: pytest.TestReport, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Show one line in place of the libraries' calls between the user's own lines and the line that raised."""
    shown = report.longrepr
    if not isinstance(shown, ExceptionChainRepr):
        return
    own = {(Path(entry.path).name, entry.lineno + 1) for entry in excinfo.traceback if is_users(entry.frame.raw)}
    *before, last = shown.reprtraceback.reprentries
    folded: list[Any] = []
    for is_own, some in groupby(before, lambda entry: _place(entry) in own):
        calls = list(some)
        told = f"... {len(calls)} calls of libraries, with --full-trace"
        folded += calls if is_own or len(calls) == 1 else [ReprEntry([told], None, None, None, "short")]
    shown.reprtraceback.reprentries = [*folded, last]


def _place(entry: Any) -> tuple[str, int] | None:  # noqa: ANN401 - an entry of a traceback
    location = getattr(entry, "reprfileloc", None)
    return None if location is None else (Path(location.path).name, location.lineno)


def width_of(config: pytest.Config) -> int:
    """Return the columns of the terminal; a worker of pytest-xdist gets them from the process that prints."""
    width: int | None = told(config, TOLD_WIDTH)
    return max(_NARROWEST, width or shutil.get_terminal_size((WIDTH, 24)).columns)


def _rewrite(config: pytest.Config, shown: ExceptionChainRepr, error: CheckError, at: SourceRange | None) -> None:
    """Show the answer as the error, and the rest of the text below it as plain text."""
    answer, *rest = leaving(str(error), keep="\n\t").split("\n")
    text: CheckText | None = error.text
    verbosity = config.get_verbosity()
    level: Level = "brief" if verbosity < 0 else "normal" if verbosity < 2 else "full"  # noqa: PLR2004 - -vv
    if text is not None:
        rest = leaving("\n".join(text.details(level, width_of(config))), keep="\n\t").split("\n")
    traceback = shown.reprtraceback
    if config.getoption("tbstyle") == "line":  # pytest adds the line of the crash, which has the answer
        traceback.reprentries = []
        return
    entry = traceback.reprentries[-1]
    if not isinstance(entry, ReprEntry):  # --tb=native
        return
    location = None
    if entry.style == "value":
        if at is not None:
            path = bestrelpath(config.invocation_params.dir, Path(at.file))
            location = ReprFileLocation(path, at.first, type(error).__name__)
        entry.lines = [answer]
    else:
        entry.lines = list(_with_answer(entry.lines, answer))
        if level == "brief":  # the lines of both models are below, and those of the test say nothing
            entry.lines, entry.reprfuncargs = [f"{_FAIL}{answer}"], None
        if entry.style == "long":
            location, entry.reprfileloc = entry.reprfileloc, None
    last = [] if location is None else [f"{location.path}:{location.lineno}: {location.message}"]
    traceback.extraline = "\n".join([*rest, *last]) or None


def _with_answer(lines: Any, answer: str) -> Iterator[str]:  # noqa: ANN401 - the lines of an entry
    for line in lines:
        if line.startswith(_FAIL):
            indent = len(line) - len(line[1:].lstrip()) - 1
            yield f"E{' ' * indent}{answer}"
            return
        yield line


def colour(terminalreporter: pytest.TerminalReporter) -> None:
    """Colour the lines below the answers, in the terminal alone: every other report has been written."""
    for report in (*terminalreporter.getreports("failed"), *terminalreporter.getreports("error")):
        traceback = getattr(report.longrepr, "reprtraceback", None)
        if hasattr(report, ANSWER) and traceback is not None and traceback.extraline:
            lines = traceback.extraline.split("\n")
            traceback.extraline = "\n".join(terminalreporter._tw.markup(line, **_markup(line)) for line in lines)  # noqa: SLF001 - it has no public name


def _markup(line: str) -> dict[str, bool]:
    return next((markup for begins, markup in _MARKUP.items() if re.match(begins, line)), {})


def table(terminalreporter: pytest.TerminalReporter) -> Iterator[str]:
    """Yield a line for each failed test that triage explains; pytest's summary has the answers of our checks."""
    for category in ("failed", "error"):
        for report in terminalreporter.getreports(category):
            answer = getattr(report, ANSWER, None)
            if answer and getattr(getattr(report.longrepr, "reprcrash", None), "message", None) != answer:
                yield f"{report.nodeid}: {answer}"

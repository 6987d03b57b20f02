"""``pytest --tf-certify``: run each test once more for every change of its port, as pass or fail alone."""

from __future__ import annotations

import random
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal

import pytest
import torch

from pytest_tfdebug.certify.edits import LineEdit, edits_of
from pytest_tfdebug.certify.swap import edited, lines_run, own_files
from pytest_tfdebug.certify.variants import Variants
from pytest_tfdebug.check_record import CheckRecord, KillRecord, LineRecord, SourceText, SurvivorRecord
from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.goldens.golden_check import HELD
from pytest_tfdebug.goldens.session import GoldenSession
from pytest_tfdebug.options import NOTE, Options
from pytest_tfdebug.publish.reports import NOTED, note, wants_details
from pytest_tfdebug.report.kills import kill_answer, kill_lines
from pytest_tfdebug.sweeping.fixture import goldens_of
from pytest_tfdebug.tracing.values.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Iterator, Sequence

    from pytest_tfdebug.parity.patch.tried_source import TriedFile

#: What becomes of a change.
Fate = Literal["caught", "survived", "raised", "not run"]
#: Seconds for one test, unless ``tf_certify_seconds`` says otherwise.
_SECONDS = 60
_UNDER_WAY = pytest.StashKey[bool]()
#: Options of the run while a change is tried: it passes or fails, and nothing else is asked, shown or written.
_PLAIN = {
    "tf_golden": "check",
    "tf_explain": "off",
    **dict.fromkeys(("tf_repro", "tf_html", "tf_json", "tf_patch"), ""),
}


def pytest_configure(config: pytest.Config) -> None:
    """Refuse what is no number before any test runs."""
    _limits(config)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Certify a test that has passed, and that has held a port to a golden."""
    __tracebackhide__ = True
    result = yield
    if not item.stash.get(_UNDER_WAY, False) and HELD in item.stash:
        item.stash[_UNDER_WAY] = True
        try:
            record = _Certified(item).record()
        finally:
            item.stash[_UNDER_WAY] = False
        note(item, record)
        told = [record.headline, *(f"    {line}" for line in record.text.splitlines()[1:])]
        item.user_properties.append((NOTE, "\n".join(told)))
    return result


def _limits(config: pytest.Config) -> tuple[int, int]:
    """Return how many changes are tried for a test, and for how many seconds."""
    options = Options.of(config)
    count = _number("--tf-certify", options.certify, least=1)
    return count, _number("tf_certify_seconds", options.certify_seconds or _SECONDS)


def _number(name: str, text: object, least: int = 0) -> int:
    if not str(text).isdigit() or int(str(text)) < least:
        raise pytest.UsageError(
            f"{name}={text} is no whole number from {least} on: --tf-certify=200 tries 200 changes of each port."
        )
    return int(str(text))


class _Certified:
    """A test whose port is changed, place by place."""

    def __init__(self, item: pytest.Item) -> None:
        held = item.stash[HELD]
        self._item, self._held = item, held[:]
        self._count, self._seconds = _limits(item.config)
        self._goldens = goldens_of(item)

    def record(self) -> CheckRecord:
        """Change the port, and return how many changes the test catches."""
        begun, name = time.monotonic(), type(self._held[0].model).__name__
        try:
            files = own_files([held.model for held in self._held])
            with lines_run(each.path for each in files) as ran:
                clean = self._run()
        except TFDebugError as error:
            return CheckRecord(self._item.nodeid, "certify", "passed", str(error), model=name)
        if clean != "survived":
            told = "Not certified: the test fails when it is run again in one process."
            return CheckRecord(self._item.nodeid, "certify", "passed", told, model=name)
        edits = [(file, edit) for file in files for edit in edits_of(file.text, ran[file.path], file.path)]
        random.Random(self._item.nodeid).shuffle(edits)  # noqa: S311 - the same ones in every run
        kills = self._kills(edits[: self._count], begun, len(edits))
        return CheckRecord(
            self._item.nodeid,
            "certify",
            "passed",
            kill_answer(kills),
            model=name,
            text="\n".join([kill_answer(kills), *kill_lines(kills)]),
            kills=kills,
        )

    def _kills(self, edits: Sequence[tuple[TriedFile, LineEdit]], begun: float, known: int) -> KillRecord:
        variants, counts, fates = Variants(self._held[0]), Counter[str](), Counter[tuple[str, int, str]]()
        survivors, tried = list[SurvivorRecord](), 0
        for number, (file, edit) in enumerate(edits):
            if time.monotonic() - begun > self._seconds:
                break
            self._tell(number, len(edits))
            fate, shown = self._fate(file, edit, variants)
            tried += 1
            counts[fate] += 1
            fates[file.path, edit.line, "missed" if shown else fate] += 1
            if fate == "survived":
                before = file.text.splitlines()[edit.line - 1].strip()
                survivors.append(SurvivorRecord(file.path, edit.line, before, edit.text.strip(), shown))
        survivors.sort(key=lambda each: (not each.shown_by, each.file, each.line))
        names = tuple(sorted({PurePath(file.path).name for file, _ in edits}))
        counted_of = (counts["caught"], counts["raised"], tuple(survivors), variants.names)
        sources = self._sources({file.path: file for file, _ in edits}.values())
        return KillRecord(names, known, tried, *counted_of, tuple(_lines(fates)), tuple(sources))

    def _sources(self, files: Iterable[TriedFile]) -> Iterator[SourceText]:
        if wants_details(self._item.config):
            yield from (SourceText(file.path, 1, tuple(file.text.splitlines())) for file in files)

    def _fate(self, file: TriedFile, edit: LineEdit, variants: Variants) -> tuple[Fate, str]:
        """Return what becomes of a change; of one that survives, the variant that shows it."""
        try:
            with edited(file, edit) as is_live:
                if not is_live:
                    return "not run", ""
                held = self._item.stash[HELD] = list[Rerun]()
                fate = self._run()
                return fate, variants.shown_by(held[0]) if fate == "survived" and held else ""
        except (SyntaxError, ValueError):
            return "not run", ""

    def _run(self) -> Fate:
        """Run the test once more, and leave what it has told as it was."""
        item, session = self._item, GoldenSession.of(self._item.config)
        noted = item.stash.setdefault(NOTED, [])
        told, properties, outcomes = noted[:], item.user_properties[:], session.outcomes[:]
        self._goldens.forget_names()
        try:
            with self._plainly(), warnings.catch_warnings(), torch.random.fork_rng(devices=[]):
                warnings.simplefilter("ignore")
                item.ihook.pytest_runtest_call(item=item)
        except AssertionError:
            return "caught"
        except (Exception, pytest.skip.Exception):  # noqa: BLE001 - most changes do not run at all
            return "raised"
        finally:
            noted[:], item.user_properties[:], session.outcomes[:] = told, properties, outcomes
        return "survived"

    @contextmanager
    def _plainly(self) -> Iterator[None]:
        """Hold the options of a change that is tried in a block."""
        given, own = self._item.config.option, self._goldens.options
        kept = {name: getattr(given, name, None) for name in _PLAIN}
        vars(given).update(_PLAIN)
        self._goldens.options = Options.of(self._item.config)
        try:
            yield
        finally:
            vars(given).update(kept)
            self._goldens.options = own

    def _tell(self, number: int, count: int) -> None:
        """Show how far it is, on a terminal."""
        reporter = self._item.config.pluginmanager.get_plugin("terminalreporter")
        capture = self._item.config.pluginmanager.get_plugin("capturemanager")
        if reporter is None or capture is None or not reporter.isatty:
            return
        filled = 20 * number // count
        with capture.global_and_fixture_disabled():
            reporter.rewrite(f"certify [{'#' * filled}{'.' * (20 - filled)}] {number} of {count}", erase=True)


def _lines(fates: Counter[tuple[str, int, str]]) -> Iterator[LineRecord]:
    for file, line in sorted({(file, line) for file, line, _ in fates}):
        found = LineRecord(file, line, *(fates[file, line, fate] for fate in ("caught", "missed", "survived")))
        if found.caught or found.missed or found.same:  # what raises says nothing
            yield found

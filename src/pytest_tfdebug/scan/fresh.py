"""A scan for the command line: by two processes where that pays, and with what it learnt kept for the next one."""

from __future__ import annotations

import gc
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.answer import Answer, summarize
from pytest_tfdebug.scan.api import result
from pytest_tfdebug.scan.beside import HAS_SECOND, beside
from pytest_tfdebug.scan.cache import Known
from pytest_tfdebug.scan.parser import Parser
from pytest_tfdebug.scan.reading import CHECKED, Reader
from pytest_tfdebug.scan.report import encode
from pytest_tfdebug.scan.scanner import Scan, Scanner, model_files
from pytest_tfdebug.scan.tree import DiskTree, Record, RecordingTree
from pytest_tfdebug.scan.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.scan.cache import Cache
    from pytest_tfdebug.scan.layout import Place

#: Model test files from which a second process pays for its start.
SHARED = 64


class Task(NamedTuple):
    """What is to be scanned, and how.

    ``name`` is that of the answer, ``test`` the one test or None for all.
    """

    name: str
    test: str | None
    is_exact: bool
    is_strict: bool


class _Part(NamedTuple):
    """A scan of some of the model test files, the questions that it asked of the tree, and what it learnt."""

    scan: Scan
    record: Record
    known: Known
    has_news: bool


def answer(tree: DiskTree, task: Task, cache: Cache | None) -> Answer:
    """Scan a work tree.

    Raises:
        ScanError: If it has no common test, or none of this name.
    """
    gc.disable()  # a scan makes much and drops little until it ends
    try:
        asked = RecordingTree(tree)
        places = model_files(asked)
        parts = _parts(tree, task, places, cache)
        found = _answer(task, sum((part.scan for part in parts[1:]), parts[0].scan), places)
    finally:
        gc.enable()
    if cache is not None:
        record = Record.joined([asked.record, *(part.record for part in parts)])
        cache.keep_answer(found, record)
        if any(part.has_news for part in parts):
            cache.keep(Known.joined([part.known for part in parts]))
    return found


def _parts(tree: DiskTree, task: Task, places: list[Place], cache: Cache | None) -> tuple[_Part, ...]:
    known = cache.known() if cache is not None else None
    sys.stderr.write(f"🔬 Parsing {len(places)} model test files once each...\n")
    if len(places) < SHARED or not HAS_SECOND or task.is_exact:
        return (_part(tree, task, places, known, _progress(places)),)
    half = len(places) // 2
    return beside(
        lambda: _part(tree, task, places, known, _progress(places[:half])),
        lambda: _part(tree, task, places, known, places[half:]),
    )


def _part(tree: DiskTree, task: Task, places: list[Place], known: Known | None, mine: Iterable[Place]) -> _Part:
    asked = RecordingTree(tree)
    is_checked = task.is_strict or len(places) <= CHECKED
    reader = Reader(asked if known else tree, known, is_exact=task.is_exact, is_checked=is_checked)
    parser = Parser(known.expressions if known else None, is_exact=task.is_exact)
    number = len(parser.known)
    found = Scanner(Workspace(asked if known else tree, reader, parser), places).scan(mine, task.test)
    learnt = Known(reader.used(), parser.known if known else {})
    return _Part(found, asked.record, learnt, reader.has_news or len(parser.known) > number)


def _answer(task: Task, found: Scan, places: list[Place]) -> Answer:
    scanned = result(found, places, task.test)
    summaries = {name: test.summary() for name, test in scanned.tests.items()}
    report = summaries if task.test is None else scanned.to_dict()
    summary = "\n".join(summarize(report, is_one=task.test is not None))
    pieces = list(encode(scanned.tests, summaries))
    return Answer(task.name, pieces, summary, scanned.skipped_files, scanned.unresolved_bases)


def _progress(places: list[Place]) -> Iterable[Place]:
    """Show a progress bar on a terminal, and nothing in a pipe."""
    if not sys.stderr.isatty():
        return places
    from tqdm import tqdm

    bar: Iterable[Any] = tqdm(places, unit="file", leave=False)
    return bar

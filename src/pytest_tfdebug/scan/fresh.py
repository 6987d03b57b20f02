"""A scan for the command line: by two processes where that pays, and with what it learnt kept for the next one."""

from __future__ import annotations

import gc
import sys
from functools import reduce
from itertools import chain, groupby
from operator import add, attrgetter, or_
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.answer import Answer
from pytest_tfdebug.scan.api import bases, check
from pytest_tfdebug.scan.beside import HAS_SECOND, beside
from pytest_tfdebug.scan.known import Known
from pytest_tfdebug.scan.parser import Parser
from pytest_tfdebug.scan.reading import CHECKED, Reader
from pytest_tfdebug.scan.render import table
from pytest_tfdebug.scan.report import Column, columns, encode
from pytest_tfdebug.scan.scanner import Scan, Scanner, model_files
from pytest_tfdebug.scan.tree import DiskTree, RecordingTree
from pytest_tfdebug.scan.workspace import Workspace

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from pytest_tfdebug.scan.cache import Cache
    from pytest_tfdebug.scan.layout import Place
    from pytest_tfdebug.scan.tree import Record

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


class _Work(NamedTuple):
    """What every part of a scan is done with; ``known`` is what ``cache`` holds of the files."""

    tree: DiskTree
    task: Task
    places: list[Place]
    cache: Cache | None
    known: Known | None


class _Part(NamedTuple):
    """A scan of some of the models without its classes, their report, and what it asked of the tree."""

    scan: Scan
    report: dict[str, Column]
    record: Record | None


def answer(repo: str | os.PathLike[str], task: Task, cache: Cache | None) -> Answer:
    """Scan a work tree, and keep the answer where there is a cache.

    Raises:
        ScanError: If it has no common test, or none of this name.
    """
    gc.disable()  # a scan makes much and drops little until it ends
    try:
        tree = RecordingTree(repo) if cache is not None else DiskTree(repo)
        places = sorted(model_files(tree), key=attrgetter("model"))
        sys.stderr.write(f"🔬 Parsing {len(places)} model test files once each...\n")
        parts = _parts(_Work(tree, task, places, cache, Known.load(cache) if cache is not None else None))
        found = _answer(task, parts, places)
        if cache is not None:
            cache.keep_answer(found, reduce(or_, (part.record for part in parts if part.record is not None)))
    finally:
        gc.freeze()  # nor are these searched for garbage later
        gc.enable()
    return found


def _parts(work: _Work) -> tuple[_Part, ...]:
    """Scan the model test files, some of them in a second process where that pays."""
    models = [list(files) for _, files in groupby(work.places, attrgetter("model"))]
    if len(work.places) < SHARED or not HAS_SECOND or work.task.is_exact:
        return (_part(work, 0, _progress(models, len(models))),)
    half = len(models) // 2
    return beside(models, lambda number, mine: _part(work, number, mine if number else _progress(mine, half)))


def _part(work: _Work, number: int, models: Iterable[list[Place]]) -> _Part:
    tree, task, places, cache, known = work
    is_checked = task.is_strict or len(places) <= CHECKED
    reader = Reader(tree, known, is_exact=task.is_exact, is_checked=is_checked)
    parser = Parser(known.expressions if known else None, is_exact=task.is_exact)
    count = len(parser.known)
    found = Scanner(Workspace(tree, reader, parser), places).scan(chain.from_iterable(models), task.test)
    if cache is not None and (reader.has_news or len(parser.known) > count):
        Known(reader.used(), parser.known).keep(cache, number)
    classes = sorted(found.classes, key=attrgetter("model", "name"))
    report = columns((cls.model, cls.name, cls.decided) for cls in classes)
    return _Part(found._replace(classes=[]), report, tree.record if cache is not None else None)


def _answer(task: Task, parts: tuple[_Part, ...], places: list[Place]) -> Answer:
    found = reduce(add, (part.scan for part in parts))
    nothing = Column({}, {}, [])
    names = sorted(set().union(*(part.report for part in parts)))
    check(found, names, places, task.test)
    entries: list[tuple[str, str, Column, dict[str, Any]]] = [
        (name, found.origin(name), sum((part.report.get(name, nothing) for part in parts), start=nothing), {})
        for name in names
    ]
    answer = Answer(task.name, list(encode(entries)), "", found.bad, bases(found))
    if task.test is not None:
        return answer._replace(summary="\n".join(answer.summarize()))
    rows = ((name, origin, column.counts, column.share) for name, origin, column, _ in entries)
    return answer._replace(summary="\n".join(table(rows)))


def _progress(models: Iterable[list[Place]], count: int) -> Iterable[list[Place]]:
    """Show a progress bar on a terminal, and nothing in a pipe."""
    if not sys.stderr.isatty():
        return models
    from tqdm import tqdm

    bar: Iterable[Any] = tqdm(models, total=count, unit="model", leave=False)
    return bar

"""The answer to the command line's question: a kept answer that is still valid, or a scan of what has changed."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.cache import MISTAKES, Cache, Head
from pytest_tfdebug.scan.read.files import stamp
from pytest_tfdebug.scan.read.tree import DiskTree, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_tfdebug.scan.report.found import Part
    from pytest_tfdebug.scan.report.result import ScanResult


class Question(NamedTuple):
    """What the command line asks: a repository, where its models are, one test or all, and whether to be strict."""

    repo: str
    models_dir: str = ""
    test: str | None = None
    is_strict: bool = False

    @property
    def name(self) -> str:
        """The name of the answer, and of its file."""
        return "all_tests_scan_result" if self.test is None else f"scan_{self.test}"


class Answer:
    """What the command line shows: the report, its summary, and what went wrong on the way.

    ``find`` returns what the scan found, and ``head`` is what is kept of an earlier answer that still stands, if any.
    """

    def __init__(self, question: Question, find: Callable[[], Part], head: Head | None = None) -> None:
        self.question, self._find = question, find
        self._kept, self.head = head, head or self._made()

    @cached_property
    def _part(self) -> Part:
        return self._find()

    def _made(self) -> Head:
        lines = "\n".join(self._summary(verbose=False))
        return Head(self._part.record, self.result.skipped_files, self.result.unresolved_bases, lines, 0, 0)

    @cached_property
    def result(self) -> ScanResult:
        """What the scan found."""
        from pytest_tfdebug.scan.report.found import result

        return result(self._part.models, self._part.bad, self.question.test)

    @cached_property
    def report(self) -> dict[str, dict[str, Any]]:
        """The report as dictionaries."""
        return self.result.to_dict()

    def save(self, path: str) -> None:
        """Write the JSON report where it is not already.

        Raises:
            ScanError: If it cannot be written.
        """
        with suppress(OSError):
            if stamp(path) == (self.head.size, self.head.checksum) != (0, 0):
                return
        from pytest_tfdebug.scan.report.result import chunks, write

        size, checksum = write(path, chunks(self.result.tests))
        self.head = self.head._replace(size=size, checksum=checksum)

    def keep(self, cache: Cache) -> None:
        """Keep the answer for the next scan, if it is new."""
        if self.head != self._kept:
            from pytest_tfdebug.scan.report.found import to_rows

            cache.keep(self.question.name, self.head, to_rows(self._part.models, self._part.shared))

    @property
    def warnings(self) -> Iterator[str]:
        """Yield a line for each file that was left out and each base class that is not known."""
        if self.head.bad:
            yield f"warning: {len(self.head.bad)} file(s) left out:"
            yield from (f"  {path}: {reason}" for path, reason in sorted(self.head.bad.items()))
        if self.head.unresolved:
            count = len(self.head.unresolved)
            yield f"warning: {count} base class(es) not found; the tests that they bring are not counted:"
            yield from (f"  {base}" for base in self.head.unresolved)

    def summarize(self, *, verbose: bool = False) -> Iterable[str]:
        """Return the lines of the summary."""
        return self._summary(verbose=True) if verbose else [self.head.summary]

    def _summary(self, *, verbose: bool) -> Iterable[str]:
        from pytest_tfdebug.scan.report import render

        if self.question.test is not None:
            return render.one_test(self.question.test, self.result[self.question.test].to_dict(), verbose=verbose)
        return render.all_tests(self.result.tests.values(), self.result.models, verbose=verbose)


def answer(question: Question, cache: Cache | None) -> Answer:
    """Scan a repository, or find in the cache, if one is given, that an earlier scan still stands.

    Raises:
        ScanError: If there is no repository, no common test, or none of this name.
    """
    tree, head = DiskTree(question.repo), cache.head(question.name) if cache is not None else None
    if cache is None or head is None or not head.record.has_listings_of(tree):
        return Answer(question, lambda: _scanned(question))
    changed = head.record.changed(tree)
    return Answer(
        question, lambda: _updated(question, head, cache.rows(question.name), changed), None if changed else head
    )


def _scanned(question: Question) -> Part:
    """Scan every model."""
    from pytest_tfdebug.scan.read.layout import Work, model_files
    from pytest_tfdebug.scan.workers import scan_shown

    tree = DiskTree(question.repo)
    work = Work(question.repo, tuple(model_files(tree, question.models_dir)), question.test, question.is_strict)
    _tell(len(work.places))
    part = scan_shown(work, tree)
    return part._replace(record=Record.union([part.record, tree.record]))


def _updated(question: Question, head: Head, rows: Any, changed: set[str]) -> Part:
    """Scan the models that depend on changed files, and take what an earlier scan found of the others.

    Every model is scanned where a file has changed that belongs to none, or the rows are not what they should be.
    """
    from pytest_tfdebug.scan.report.found import Part, from_rows

    try:
        models, shared = from_rows(rows)
    except MISTAKES:
        return _scanned(question)
    earlier = Part(models, head.bad, head.record, shared)
    if not changed:
        return earlier
    from pytest_tfdebug.scan.read.layout import Work, model_files
    from pytest_tfdebug.scan.workers import hit, scan_changed

    tree = DiskTree(question.repo)
    work = Work(question.repo, tuple(model_files(tree, question.models_dir)), question.test)
    models_hit = hit(work, earlier, changed)
    if models_hit is None:
        return _scanned(question)
    by_model = work.by_model()
    _tell(sum(len(by_model[model]) for model in models_hit))
    return scan_changed(work, tree, earlier, models_hit)


def _tell(files: int) -> None:
    sys.stderr.write(f"🔬 Parsing {files} model test files once each...\n")
    sys.stderr.flush()

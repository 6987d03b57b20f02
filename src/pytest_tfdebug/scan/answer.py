"""The answer to the command line's question: a kept answer that is still valid, or a scan of what has changed."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.cache import MISTAKES, Cache, Head
from pytest_tfdebug.scan.read.files import stamp
from pytest_tfdebug.scan.read.tree import DiskTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_tfdebug.scan.report.found import PartialScan
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

    def __init__(self, question: Question, find: Callable[[], PartialScan], head: Head | None = None) -> None:
        self.question, self._find, self._kept = question, find, head

    @cached_property
    def _part(self) -> PartialScan:
        return self._find()

    @cached_property
    def head(self) -> Head:
        """What is kept of the answer."""
        if self._kept is not None:
            return self._kept
        found = self.result
        return Head(self._part.record, found.skipped_files, found.unresolved_bases, "\n".join(self._summary()), 0, 0)

    @cached_property
    def result(self) -> ScanResult:
        """What the scan found."""
        from pytest_tfdebug.scan.report.found import result

        return result(self._part, self.question.test)

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

            cache.keep(self.question.name, self.head, to_rows(self._part))

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

    def _summary(self, *, verbose: bool = False) -> Iterable[str]:
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
        return Answer(question, lambda: _found(question))
    changed = head.record.changed(tree)
    if changed:
        return Answer(question, lambda: _found(question, head, cache.rows(question.name), changed))
    return Answer(question, lambda: _earlier(head, cache.rows(question.name)) or _found(question), head)


def _found(
    question: Question, head: Head | None = None, rows: Any = None, changed: set[str] | None = None
) -> PartialScan:
    """Scan the models that depend on changed files, and take what an earlier scan found of the others.

    Every model is scanned where there is no earlier scan, or a file has changed that belongs to no model.
    """
    from pytest_tfdebug.scan.read.layout import Work, model_files
    from pytest_tfdebug.scan.workers import scan_models

    tree = DiskTree(question.repo)
    work = Work(question.repo, tuple(model_files(tree, question.models_dir)), question.test, question.is_strict)
    earlier = _earlier(head, rows) if head is not None else None
    kept = earlier.without(work, changed or set()) if earlier is not None else None
    known = {model.model for model in kept.models} if kept is not None else set()
    models = [model for model in work.by_model() if model not in known]
    sys.stderr.write(
        f"🔬 Parsing {sum(where.model not in known for where in work.places)} model test files once each...\n"
    )
    sys.stderr.flush()
    part = scan_models(work, tree, models)
    return part if kept is None else part.union([kept, part])


def _earlier(head: Head, rows: Any) -> PartialScan | None:
    """Return what an earlier scan found; None where the rows are not what they should be."""
    from pytest_tfdebug.scan.report.found import from_rows

    with suppress(*MISTAKES):
        return from_rows(rows, head.bad, head.record)
    return None

"""The answer to the command line's question: one that was kept and is still valid, or a scan."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.cache import Cache, Head
from pytest_tfdebug.scan.read.files import stamp
from pytest_tfdebug.scan.read.tree import DiskTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

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

    If nothing has changed since an answer was kept, its head stands; what is not in that is scanned if it is asked for.

    Raises:
        ScanError: If there is no repository; when it is asked, if there is no common test, or none of this name.
    """

    def __init__(self, question: Question, cache: Cache | None = None) -> None:
        self.question, self._cache, tree = question, cache, DiskTree(question.repo)
        head = cache.head(question.name) if cache is not None else None
        self._kept = head if head is not None and tree.still_says(head.record) else None

    @cached_property
    def _found(self) -> PartialScan:
        from pytest_tfdebug.scan.read.layout import Work, model_files
        from pytest_tfdebug.scan.workers import scan_all

        repo, models_dir, test, is_strict = self.question
        tree = DiskTree(repo)
        work = Work(repo, tuple(model_files(tree, models_dir)), test, is_strict)
        sys.stderr.write(f"🔬 Parsing {len(work.places)} model test files once each...\n")
        sys.stderr.flush()
        return scan_all(work, tree)

    @cached_property
    def head(self) -> Head:
        """What is kept of the answer."""
        if self._kept is not None:
            return self._kept
        found = self.result
        return Head(self._found.record, found.skipped_files, found.unresolved_bases, "\n".join(self._summary()), 0, 0)

    @cached_property
    def result(self) -> ScanResult:
        """What the scan found."""
        from pytest_tfdebug.scan.report.found import result

        return result(self._found, self.question.test)

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

    def keep(self) -> None:
        """Keep the answer for the next scan, if it is new."""
        if self._cache is not None and self.head != self._kept:
            self._cache.keep(self.question.name, self.head)

    @property
    def warnings(self) -> Iterator[str]:
        """Yield a line for each file that was left out and each base class that is not known."""
        bad, unresolved = self.head.bad, self.head.unresolved
        if bad:
            yield f"warning: {len(bad)} file(s) left out:"
            yield from (f"  {path}: {reason}" for path, reason in sorted(bad.items()))
        if unresolved:
            yield f"warning: {len(unresolved)} base class(es) not found; the tests that they bring are not counted:"
            yield from (f"  {base}" for base in unresolved)

    def summarize(self, *, verbose: bool = False) -> Iterable[str]:
        """Return the lines of the summary."""
        return self._summary(verbose=True) if verbose else [self.head.summary]

    def _summary(self, *, verbose: bool = False) -> Iterable[str]:
        from pytest_tfdebug.scan.report import render

        if self.question.test is not None:
            return render.one_test(self.question.test, self.result[self.question.test].to_dict(), verbose=verbose)
        return render.all_tests(self.result.tests.values(), self.result.models, verbose=verbose)

"""From the command line's question to its answer, through the cache where one is left."""

from __future__ import annotations

import os
import zlib
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.tree import DiskTree

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_tfdebug.scan.cache import Cache, Head
    from pytest_tfdebug.scan.report import ScanResult


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

    Args:
        question: What was asked.
        head: What is known without the report.
        find: Returns what the scan found.
    """

    def __init__(self, question: Question, head: Head, find: Callable[[], ScanResult]) -> None:
        self.question, self._head, self._find = question, head, find
        self.bad = head.bad

    @cached_property
    def result(self) -> ScanResult:
        """What the scan found."""
        return self._find()

    @cached_property
    def json(self) -> bytes:
        """The JSON report."""
        from pytest_tfdebug.scan.report import encoded

        return encoded(self.result.dumps())

    @cached_property
    def report(self) -> dict[str, dict[str, Any]]:
        """The report as dictionaries."""
        return self.result.to_dict()

    def is_at(self, path: str) -> bool:
        """Tell whether a file holds the report already."""
        from pytest_tfdebug.scan.files import stamp

        try:
            return stamp(path) == (self._head.size, self._head.checksum) != (0, 0)
        except OSError:
            return False

    @property
    def warnings(self) -> Iterator[str]:
        """Yield a line for each file that was left out and each base class that is not known."""
        if self.bad:
            yield f"warning: {len(self.bad)} file(s) left out:"
            yield from (f"  {path}: {reason}" for path, reason in sorted(self.bad.items()))
        if self._head.unresolved:
            count = len(self._head.unresolved)
            yield f"warning: {count} base class(es) not found; the tests that they bring are not counted:"
            yield from (f"  {base}" for base in self._head.unresolved)

    def summarize(self, *, verbose: bool = False) -> Iterable[str]:
        """Return the lines of the summary."""
        return summary(self.result, self.question.test, verbose=True) if verbose else [self._head.summary]


def summary(result: ScanResult, test: str | None, *, verbose: bool = False) -> Iterable[str]:
    """Return the lines that sum a scan up."""
    from pytest_tfdebug.scan import render

    if test is not None:
        return render.one_test(test, result[test].to_dict(), verbose=verbose)
    if verbose:
        return render.all_tests(result.to_dict(), verbose=True)
    rows = (
        (name, each.origin, render.counts(each.lists), each.skipped_proportion) for name, each in result.tests.items()
    )
    return render.table(rows)


def answer(question: Question, *, is_cached: bool = True) -> Answer:
    """Scan a repository, or find that an earlier scan still stands.

    Raises:
        ScanError: If there is no repository, no common test, or none of this name.
    """
    if not os.path.isdir(question.repo):
        raise ScanError(f"{question.repo} is not a directory; name the root of a repository with --repo.")
    if not is_cached or question.is_strict:
        return _fresh(question, None, None)
    from pytest_tfdebug.scan.cache import Cache

    cache = Cache(question.repo, question.models_dir)
    head, tree = cache.head(question.name), DiskTree(question.repo)
    if head is None or not head.record.has_listings_of(tree):
        return _fresh(question, cache, None)
    changed = head.record.changed(tree)
    if changed:
        return _fresh(question, cache, Earlier(head, cache.rows(question.name), changed))
    return Answer(question, head, lambda: _again(question, cache))


class Earlier(NamedTuple):
    """An earlier answer of which some files have changed since."""

    head: Head
    rows: Any
    changed: set[str]


def _again(question: Question, cache: Cache) -> ScanResult:
    """Return what an earlier scan found; where that cannot be used, what a new one finds."""
    from pytest_tfdebug.scan.found import result
    from pytest_tfdebug.scan.rows import MISTAKES, from_rows

    head = cache.head(question.name)
    try:
        return result(from_rows(cache.rows(question.name)), head.bad if head is not None else {}, question.test)
    except MISTAKES:
        return _fresh(question, cache, None).result


def _fresh(question: Question, cache: Cache | None, earlier: Earlier | None) -> Answer:
    from pytest_tfdebug.scan.cache import Head
    from pytest_tfdebug.scan.fresh import Fresh

    found = Fresh(question.repo, question.models_dir, question.test, is_strict=question.is_strict)
    if earlier is None or not found.update(earlier.rows, earlier.head.record, earlier.head.bad, earlier.changed):
        found.scan()
    lines = "\n".join(summary(found.result, question.test))
    fields = found.record, found.result.skipped_files, found.result.unresolved_bases, lines
    if cache is None:
        return Answer(question, Head(*fields, 0, 0), lambda: found.result)
    made = Answer(question, Head(*fields, 0, 0), lambda: found.result)
    head = Head(*fields, len(made.json), zlib.crc32(made.json))
    cache.keep(question.name, head, found.rows())
    return made

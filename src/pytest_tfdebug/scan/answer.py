"""From the command line's question to its answer, through the cache where one is left."""

from __future__ import annotations

import gc
import json
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.tree import DiskTree, RecordingTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pytest_tfdebug.scan.cache import Cache


class Answer(NamedTuple):
    """What the command line shows: the JSON report, in pieces, its summary, and what went wrong on the way."""

    name: str
    json: list[bytes]
    summary: str
    bad: dict[str, str]
    unresolved: list[str]

    @property
    def report(self) -> dict[str, dict[str, Any]]:
        """The report as dictionaries."""
        report: dict[str, dict[str, Any]] = json.loads(b"".join(self.json))
        return report

    @property
    def warnings(self) -> Iterator[str]:
        """Yield a line for each file that was left out and each base class that is not known."""
        if self.bad:
            yield f"warning: {len(self.bad)} file(s) left out:"
            yield from (f"  {path}: {reason}" for path, reason in sorted(self.bad.items()))
        if self.unresolved:
            count = len(self.unresolved)
            yield f"warning: {count} base class(es) not found; the tests that they bring are not counted:"
            yield from (f"  {base}" for base in self.unresolved)

    def summarize(self, *, verbose: bool = False) -> Iterable[str]:
        """Return the lines of the summary."""
        return summarize(self.report, is_one=self.name.startswith("scan_"), verbose=verbose)


def summarize(report: dict[str, dict[str, Any]], *, is_one: bool, verbose: bool = False) -> Iterable[str]:
    """Return the lines that sum up a report."""
    from pytest_tfdebug.scan import render

    if is_one:
        test = next(iter(report))
        return render.one_test(test, report[test], verbose=verbose)
    return render.all_tests(report, verbose=verbose)


def answer(
    repo: Path, test: str | None, *, is_cached: bool = True, is_exact: bool = False, is_strict: bool = False
) -> Answer:
    """Scan a repository, or find that an earlier scan still stands.

    Raises:
        ScanError: If there is no repository, no common test, or none of this name.
    """
    if not repo.is_dir():
        raise ScanError(f"{repo} is not a directory; name the root of a repository with --repo.")
    name = "all_tests_scan_result" if test is None else f"scan_{test}"
    tree = DiskTree(repo)
    if not is_cached or is_exact or is_strict:
        return _scan(tree, name, test, None, is_exact=is_exact, is_strict=is_strict)
    from pytest_tfdebug.scan.cache import Cache

    cache = Cache(repo)
    kept = cache.answer(name, tree)
    if kept is not None:
        about, report = kept
        return Answer(name, [report], about["summary"], about["bad"], about["unresolved"])
    return _scan(tree, name, test, cache, is_exact=False, is_strict=False)


def _scan(
    tree: DiskTree, name: str, test: str | None, cache: Cache | None, *, is_exact: bool, is_strict: bool
) -> Answer:
    from pytest_tfdebug.scan.api import scan_with
    from pytest_tfdebug.scan.cache import Known
    from pytest_tfdebug.scan.reading import Reader
    from pytest_tfdebug.scan.report import encode

    gc.disable()  # a scan makes much and drops little until it ends
    try:
        recording = RecordingTree(tree)
        known = cache.known() if cache is not None else Known({}, {})
        reader = Reader(recording, known, is_exact=is_exact, is_checked=is_strict)
        result = scan_with(recording, reader, test, track=_progress)
    finally:
        gc.enable()
    summaries = {name: found.summary() for name, found in result.tests.items()}
    report = summaries if test is None else result.to_dict()
    summary = "\n".join(summarize(report, is_one=test is not None))
    pieces = list(encode(result.tests, summaries))
    found = Answer(name, pieces, summary, result.skipped_files, result.unresolved_bases)
    if cache is not None:
        about = {"summary": found.summary, "bad": found.bad, "unresolved": found.unresolved}
        cache.keep_answer(name, recording.record, about, found.json)
        if reader.has_news:
            cache.keep(reader.used())
    return found


def _progress(items: list[Any]) -> Iterable[Any]:
    """Show a progress bar on a terminal, and nothing in a pipe."""
    sys.stderr.write(f"🔬 Parsing {len(items)} model test files once each...\n")
    if not sys.stderr.isatty():
        return items
    from tqdm import tqdm

    bar: Iterable[Any] = tqdm(items, unit="file", leave=False)
    return bar

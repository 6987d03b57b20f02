"""From the command line's question to its answer, through the cache where one is left."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.tree import DiskTree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from typing_extensions import Buffer


class Answer(NamedTuple):
    """What the command line shows: the JSON report, in pieces, its summary, and what went wrong on the way."""

    name: str
    json: Sequence[Buffer]
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
        from pytest_tfdebug.scan import render

        report = self.report
        if not self.name.startswith("scan_"):
            return render.all_tests(report, verbose=verbose)
        test = next(iter(report))
        return render.one_test(test, report[test], verbose=verbose)


def answer(
    repo: str, test: str | None, *, is_cached: bool = True, is_exact: bool = False, is_strict: bool = False
) -> Answer:
    """Scan a repository, or find that an earlier scan still stands.

    Raises:
        ScanError: If there is no repository, no common test, or none of this name.
    """
    if not os.path.isdir(repo):
        raise ScanError(f"{repo} is not a directory; name the root of a repository with --repo.")
    name = "all_tests_scan_result" if test is None else f"scan_{test}"
    cache = None
    if is_cached and not is_exact and not is_strict:
        from pytest_tfdebug.scan.cache import Cache

        cache = Cache(repo)
        kept = cache.answer(name, DiskTree(repo))
        if kept is not None:
            return kept
    from pytest_tfdebug.scan import fresh

    return fresh.answer(repo, fresh.Task(name, test, is_exact, is_strict), cache)

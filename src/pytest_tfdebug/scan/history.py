"""How the share of skips changed from commit to commit; each commit is read from git without a checkout."""

from __future__ import annotations

import html
import json
import os
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.scan.errors import ScanError, naming_the_extra
from pytest_tfdebug.scan.found import Part, result
from pytest_tfdebug.scan.layout import Work, model_files
from pytest_tfdebug.scan.scanner import Scanner
from pytest_tfdebug.scan.tree import GitTree, git
from pytest_tfdebug.scan.workers import hit, scan_changed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd


#: Pixels of a curve, and of the margin around it.
_WIDTH, _HEIGHT, _MARGIN = 720, 160, 24


class Commit(NamedTuple):
    """A commit, its date (ISO 8601), how many models it has, and the share of them that skips each common test."""

    commit: str
    date: str
    models: int
    skipped_proportion: dict[str, float]

    @property
    def mean(self) -> float:
        """The mean over the tests."""
        return sum(self.skipped_proportion.values()) / max(len(self.skipped_proportion), 1)


class History(NamedTuple):
    """The commits of a range, the oldest first."""

    commits: list[Commit]

    def to_json(self) -> str:
        """Return the commits as a JSON list."""
        return json.dumps([each._asdict() for each in self.commits], indent=2) + "\n"

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each commit and test, with columns ``commit, date, test, skipped_proportion``."""
        with naming_the_extra():
            import pandas as pd

        columns = ["commit", "date", "test", "skipped_proportion"]
        rows = [
            (each.commit, each.date, test, share)
            for each in self.commits
            for test, share in each.skipped_proportion.items()
        ]
        table: pd.DataFrame = pd.DataFrame(rows, columns=columns)
        return table

    def lines(self) -> Iterator[str]:
        """Yield a line for each commit: its date, its name, its models and the mean share of skips."""
        for each in self.commits:
            tests = len(each.skipped_proportion)
            yield f"{each.date[:10]}  {each.commit[:10]}  {each.models} models  {tests} tests  {each.mean:.2%} skipped"

    def to_html(self) -> str:
        """Return a page with a curve of the mean, and one of each test whose share changed."""
        tests = sorted({test for each in self.commits for test in each.skipped_proportion})
        shares = {test: [each.skipped_proportion.get(test) for each in self.commits] for test in tests}
        curves = [_curve("all tests (mean)", [each.mean for each in self.commits])]
        curves += [_curve(test, values) for test, values in shares.items() if len(set(values)) > 1 or len(tests) == 1]
        first, last = self.commits[0], self.commits[-1]
        return (
            "<!doctype html>\n<html lang='en'><meta charset='utf-8'><title>Skipped tests</title>"
            "<style>body{font:14px sans-serif;margin:2em} svg{display:block;background:#f6f6f6}</style>\n"
            f"<h1>Share of models that skip a test</h1>\n<p>{first.date[:10]} ({first.commit[:10]}) to "
            f"{last.date[:10]} ({last.commit[:10]}), {len(self.commits)} commits</p>\n{''.join(curves)}</html>\n"
        )


def _curve(title: str, values: list[float | None]) -> str:
    """Return a curve, with gaps where there is no value, as SVG."""
    known = [value for value in values if value is not None]
    top, step = max(known) or 1.0, _WIDTH / max(len(values) - 1, 1)
    points = [
        f"{_MARGIN + at * step:.1f},{_MARGIN + _HEIGHT * (1 - value / top):.1f}"
        for at, value in enumerate(values)
        if value is not None
    ]
    name, shares = html.escape(title), f"{known[0]:.1%} to {known[-1]:.1%}, at most {top:.1%}"
    return (
        f"<h2>{name}</h2><p>{shares}</p><svg width='{_WIDTH + 2 * _MARGIN}' height='{_HEIGHT + 2 * _MARGIN}' "
        f"role='img' aria-label='{name}: {shares}'><polyline fill='none' stroke='#b00' stroke-width='2' "
        f"points='{' '.join(points)}'/></svg>\n"
    )


def history(
    repo: str | os.PathLike[str], span: str, test: str | None = None, *, every: int = 1, models_dir: str = ""
) -> History:
    """Scan the commits of a range.

    Only the models that depend on a changed file are scanned again, and an unchanged file is read once.

    Args:
        repo: Root of a git repository.
        span: ``A..B``: the first-parent commits from A to B, both included.
        test: The one test to follow; every common test where it is not given.
        every: Take every so many commits, counted from the first, and the last.
        models_dir: Where the models' tests are, relative to the root; found where it is not given.

    Raises:
        ScanError: If there is no such range, or no commit of it can be scanned.
    """
    found: list[Commit] = []
    contents: dict[str, bytes] = {}
    before: tuple[Work, Part, dict[str, str]] | None = None
    reason = "it is empty"
    for name, date in _commits(os.fspath(repo), span, every):
        with GitTree(repo, name, contents) as tree:
            try:
                work = Work("", tuple(model_files(tree, models_dir)), test)
                part = _part(work, tree, before)
                tests = result(part.models, part.bad, test).tests
            except ScanError as error:  # such as a commit before there were models, or the test
                reason = str(error)
                continue
        before = work, part, tree.blobs
        contents = {blob: tree.contents[blob] for blob in set(tree.blobs.values()) & tree.contents.keys()}
        shares = {each.name: each.skipped_proportion for each in tests.values()}
        found.append(Commit(name, date, len(part.models), shares))
    if not found:
        raise ScanError(f"No commit of {span} can be scanned: {reason}")
    return History(found)


def _part(work: Work, tree: GitTree, before: tuple[Work, Part, dict[str, str]] | None) -> Part:
    """Return what is found in a commit, with the help of what was found in another."""
    if before is None:
        return Scanner(work, tree).scan()
    earlier_work, earlier, blobs = before
    differing = {path for path, _ in blobs.items() ^ tree.blobs.items()}
    moved = {path for path in differing if path not in blobs or path not in tree.blobs}
    if any(place in earlier.record.listings for path in moved for place in _above(path)):
        return Scanner(work, tree).scan()  # a path that was looked for and not found may be there now
    models = hit(earlier_work, work, earlier, differing & earlier.record.contents.keys())
    return Scanner(work, tree).scan() if models is None else scan_changed(work, tree, earlier, models)


def _above(path: str) -> Iterator[str]:
    """Yield a path and the directories above it."""
    while path:
        yield path
        path = path.rpartition("/")[0]


def _commits(root: str, span: str, every: int) -> list[tuple[str, str]]:
    """Return the name and date of commits, the oldest first."""
    first, dots, last = span.partition("..")
    if not dots or not first or not last or first.startswith("-"):
        raise ScanError(f"{span!r} is not a range of commits such as v4.50..main.")
    if every < 1:
        raise ScanError(f"--every {every} takes no commit; give 1 or more.")
    git(root, "rev-parse", "--git-dir")
    form = "--format=%H %cI"
    try:
        listed = git(root, "log", "--first-parent", "--reverse", form, span, "--").decode().splitlines()
        start = git(root, "log", "-1", form, first, "--").decode().splitlines()
    except ScanError as error:
        raise ScanError(f"{span!r} is not a range of commits of {root}; `git log --oneline` lists some.") from error
    lines = [*start, *listed]
    chosen = lines[::every] + (lines[-1:] if (len(lines) - 1) % every else [])
    return [(name, date) for name, _, date in (line.partition(" ") for line in chosen)]

"""The lines at the end of a run on the skipped tests that were run."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.run_skipped.skips import Skip
    from pytest_tfdebug.run_skipped.trial import Row

#: What to do about a skip; the first that fits.
_HEADINGS = {
    "deletable": "to delete: every test behind passes now.",
    "conditional": "with a condition to look at: it holds here, and every test behind passes all the same.",
    "partly": "to narrow: a part of the tests behind passes now.",
}
#: Why a test was not run -> how the list says so.
_KEPT = {
    "environment": "a machine, a library or an option decides the skip",
    "conditional": "the skip has a condition, which --tf-run-skipped=all sets aside",
    "body": "the code of the test decides the skip",
    "empty": "without the skip nothing is left to run",
    "inside": "the skip cannot be lifted, as SkipTest, importorskip, or a fixture or class that had skipped raises it",
}
#: How many reasons are named, and how long one may be.
_NAMED, _LONGEST = 3, 80


class _SkipGroup(NamedTuple):
    """The tests under the same skips; ``left`` counts the tests that another skip kept from running."""

    skips: tuple[Skip, ...]
    rows: list[Row]
    left: int

    @property
    def heading(self) -> str:
        outcomes = {row.outcome for row in self.rows}
        if outcomes == {"passes"}:
            return "conditional" if any(skip.kind == "conditional" for skip in self.skips) else "deletable"
        return "partly" if "passes" in outcomes else ""


def listing(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the lines of the closing section."""
    rows = sorted(rows)
    groups = _groups(rows)
    if not any(row.outcome == "passes" for row in rows):
        yield "No skipped test passes now."
    for heading, text in _HEADINGS.items():
        found = [group for group in groups if group.heading == heading]
        if found:
            yield f"{counted(len(found), 'skip')} {text}"
        for group in found:
            yield from _lines(group)
    failing = [row for row in rows if row.outcome == "fails"]
    if failing:
        yield f"Still failing: {counted(len(failing), 'test')}."
        yield from (f"    {row.nodeid}: {row.text}" for row in failing)
    yield from _kept([row for row in rows if row.outcome == "kept"])


def _groups(rows: Sequence[Row]) -> list[_SkipGroup]:
    found: dict[tuple[Skip, ...], list[Row]] = {}
    for row in rows:
        if row.outcome != "kept":
            found.setdefault(row.skips, []).append(row)
    left = [set(row.skips[1:]) for row in rows if row.outcome == "kept"]
    return [
        _SkipGroup(skips, found[skips], sum(not others.isdisjoint(skips) for others in left)) for skips in sorted(found)
    ]


def _lines(group: _SkipGroup) -> Iterator[str]:
    passing = [row for row in group.rows if row.outcome != "fails"]
    notes = [f"{len(passing)} of {len(group.rows)} pass"] if len(passing) < len(group.rows) else []
    notes += [f"{group.left} not run"] if group.left else []
    for number, skip in enumerate(group.skips):
        told = f" ({', '.join(notes)})" if notes and not number else ""
        yield f"  {'and ' if number else ''}{skip.file}:{skip.line}: {skip.reason or '(no reason)'}{told}"
    for row in passing:
        yield f"    {row.nodeid}" + (f" (without this override: {row.text})" if row.text else "")


def _kept(rows: list[Row]) -> Iterator[str]:
    for why, text in _KEPT.items():
        counts = Counter(_short(row.skips[0].reason) for row in rows if row.text == why)
        if counts:
            named = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
            few = ", ".join(f"{count} {name}" for name, count in named[:_NAMED])
            more = ", ..." if len(named) > _NAMED else ""
            yield f"Not run: {counted(counts.total(), 'test')}; {text} ({few}{more})."


def _short(text: str) -> str:
    line = text.partition("\n")[0]
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."

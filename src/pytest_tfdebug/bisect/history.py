"""Where in a line of versions a result changes: every place, each between two neighbours that ran.

Two versions are held to each other, the halves between them only where they differ. Each change is so judged by the two
ends of its own stretch, and an earlier one does not hide a later one. What differs over a stretch and at none of its
steps has drifted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

#: Nothing differs; only names do; only values inside do; outputs do.
Kind = Literal["same", "renamed", "inside", "changed"]
GRAVITY: tuple[Kind, ...] = ("same", "renamed", "inside", "changed")


@dataclass(frozen=True)
class VersionDifference:
    """What becomes of one version's forward that is held to another's."""

    kind: Kind
    told: str = ""  # what differs, in a few words
    report: str = ""  # the whole report of what changed


@dataclass(frozen=True)
class ResultChange:
    """A place in the line at which the result changes."""

    before: str  # the last version that ran and gave the old result
    after: str  # the first that ran and gave the new one
    outcome: VersionDifference
    skipped: tuple[str, ...] = ()  # versions between the two, which could not be run
    is_spread: bool = False  # no step between the two makes it: it adds up


@dataclass
class History:
    """A line of versions, the oldest first, and how they are run and held to each other."""

    versions: Sequence[str]
    run: Callable[[str], str]  # runs the test in a version; returns why that was not possible, or nothing
    hold: Callable[[str, str], VersionDifference]  # holds what the second version gives to what the first gave
    skipped: dict[str, str] = field(default_factory=dict)  # why, by version

    def changes(self) -> list[ResultChange]:
        """Return every change between the first version and the last, in their order."""
        return list(self._between(0, len(self.versions) - 1))

    def is_usable(self, place: int) -> bool:
        """Run a version, and tell whether it could be run."""
        version = self.versions[place]
        if version not in self.skipped:
            problem = self.run(version)
            if not problem:
                return True
            self.skipped[version] = problem
        return False

    def _between(self, first: int, last: int) -> Iterator[ResultChange]:
        outcome = self.hold(self.versions[first], self.versions[last])
        if outcome.kind == "same":
            return
        middle = self._middle(first, last)
        found = [] if middle is None else [*self._between(first, middle), *self._between(middle, last)]
        yield from found
        most = max((GRAVITY.index(each.outcome.kind) for each in found), default=0)
        if most < GRAVITY.index(outcome.kind):
            left_out = tuple(each for each in self.versions[first + 1 : last] if each in self.skipped)
            before, after = self.versions[first], self.versions[last]
            yield ResultChange(before, after, outcome, left_out, is_spread=middle is not None)

    def _middle(self, first: int, last: int) -> int | None:
        """Return the version nearest to the middle of a stretch that can be run; None where none can."""
        middle = (first + last) / 2
        inner = sorted(range(first + 1, last), key=lambda place: abs(place - middle))
        return next(filter(self.is_usable, inner), None)

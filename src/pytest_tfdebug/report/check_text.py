"""The text of a failed check: its parts in one order for every check, at the length that was asked for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from textwrap import wrap
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: ``brief`` is the answer, the lines, why and what to do; ``full`` leaves nothing out.
Level = Literal["brief", "normal", "full"]
#: Columns if the width of the terminal is unknown; a log of a CI run shows that many.
WIDTH = 110


@dataclass(frozen=True)
class CheckText:
    """The parts of a report, in the order in which they are read; all but the first may be empty.

    Sentences and figures are wrapped and indented here; code and tables are printed as they are.
    """

    answer: str  # what is wrong and where, in one line; it begins with file and line if these are known
    code: tuple[str, ...] = ()  # the lines to blame, of both sides
    why: tuple[str, ...] = ()  # sentences: how this is known
    advice: tuple[str, ...] = ()  # sentences: what to do
    figures: tuple[str, ...] = ()  # which tensor differs, and by how much
    drift: tuple[str, ...] = ()  # how the difference grows along the depth of the model
    everything: tuple[str, ...] = ()  # replaces ``drift`` in the full text: the same and more
    circumstances: tuple[str, ...] = ()  # sentences: notes, weights, and what differs in the environment
    repro: tuple[str, ...] = ()  # where the repro is and how to run it

    def __str__(self) -> str:
        return self.to_text()

    def to_text(self, level: Level = "normal", width: int = WIDTH) -> str:
        """Return the whole text."""
        return "\n".join([self.answer, *self.details(level, width)])

    def details(self, level: Level = "normal", width: int = WIDTH) -> Iterator[str]:
        """Yield the lines below the answer."""
        yield from self.code
        yield from _wrapped(self.why, width)
        yield from _wrapped(self.advice, width)
        if level != "brief":
            yield from _wrapped((line.removeprefix("  ") for line in self.figures), width)
            yield from self.everything if level == "full" and self.everything else self.drift
            yield from _wrapped(self.circumstances, width)
        yield from self.repro

    def with_repro(self, told: str) -> CheckText:
        """Return the text with the lines that say where its repro is."""
        return replace(self, repro=tuple(f"  {line}" for line in told.splitlines()))


def _wrapped(sentences: Iterable[str], width: int) -> Iterator[str]:
    """Yield sentences as lines; leading spaces of a sentence are added to the usual indentation."""
    for sentence in sentences:
        indent = " " * (2 + len(sentence) - len(sentence.lstrip()))
        yield from wrap(
            sentence.strip(),
            width,
            initial_indent=indent,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )


def next_step(advice: str) -> Iterator[str]:
    """Yield the line ``Next: ...`` of every text; nothing if there is no advice."""
    if advice:
        yield f"Next: {advice[:1].lower()}{advice[1:]}"

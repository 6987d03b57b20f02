"""A failed check as Markdown for an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.check_record import CheckRecord, SourceText


def issue(check: CheckRecord, command: str) -> str:
    """Return a check as the text of an issue."""
    return "\n".join(_lines(check, command)) + "\n"


def _lines(check: CheckRecord, command: str) -> Iterator[str]:
    yield f"**{check.headline}**"
    culprit, forward = check.culprit, check.forward
    if culprit is not None and culprit.explanation:
        yield f"\n{culprit.explanation}"
    if check.diagnosis:
        yield f"\n{check.diagnosis}"
    for title, source in zip(("Here", "Reference"), forward.sources if forward else (), strict=False):
        if source is not None and source.marked is not None:
            yield from _code(f"{title}, `{source.marked}`", source, source.marked.first, source.marked.last)
    if culprit is not None and culprit.figures:
        yield f"\n{culprit.tensor}"
        yield from (f"- {figure}" for figure in culprit.figures)
    for title, lines in (
        ("Changed since the golden was recorded", check.changed),
        ("Weights that are not the recorded ones", check.weights),
    ):
        if lines:
            yield f"\n{title}: {', '.join(lines)}"
    yield f"\n```\n{command}\n```"


def _code(title: str, source: SourceText, first: int, last: int) -> Iterator[str]:
    text = source.text[first - source.first : last - source.first + 1]
    fence = "```" if not any("```" in line for line in text) else "~~~~"
    yield f"\n{title}\n"
    yield f"{fence}python"
    yield from text
    yield fence

"""A failed check as Markdown for an issue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


def issue(check: Mapping[str, Any], command: str) -> str:
    """Return a check as the text of an issue."""
    return "\n".join(_lines(check, command)) + "\n"


def _lines(check: Mapping[str, Any], command: str) -> Iterator[str]:
    yield f"**{check['headline']}**"
    culprit, forward = check["culprit"], check["forward"]
    if culprit and culprit["explanation"]:
        yield f"\n{culprit['explanation']}"
    if check["diagnosis"]:
        yield f"\n{check['diagnosis']}"
    for title, source in zip(("Here", "Reference"), forward["sources"] if forward else (), strict=False):
        if source and source["marked"]:
            yield from _code(title, source)
    if culprit and culprit["figures"]:
        yield f"\n{culprit['tensor']}"
        yield from (f"- {figure}" for figure in culprit["figures"])
    for title, lines in (
        ("Changed since the golden was recorded", check["changed"]),
        ("Weights that are not the recorded ones", check["weights"]),
    ):
        if lines:
            yield f"\n{title}: {', '.join(lines)}"
    yield f"\n```\n{command}\n```"


def _code(title: str, source: Mapping[str, Any]) -> Iterator[str]:
    marked = source["marked"]
    begin = marked["first"] - source["first"]
    text = source["text"][begin : begin + marked["last"] - marked["first"] + 1]
    fence = "```" if not any("```" in line for line in text) else "~~~~"
    yield f"\n{title}, `{source['file'].rpartition('/')[2]}:{marked['first']}`\n"
    yield f"{fence}python"
    yield from text
    yield fence

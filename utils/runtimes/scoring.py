"""What a report on arrays is worth, where the reference's line is known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

#: In an interval of at most eight statements; in a wider one; only in what is inferred; outside; or quiet.
Score = Literal["named", "wide", "before", "wrong", "missed"]
_NARROW = 8


def score(report: Any, is_truth: Callable[[str], bool]) -> tuple[Score, int]:  # noqa: ANN401 - of a lazy public name
    """Return the score of a report, and how many statements the reader has read when the truth comes.

    Args:
        report: The ``ArraysReport``.
        is_truth: Tells whether ``file.py:12 file.py:13 ...`` names the line that is wrong.
    """
    if report.ok:
        return "missed", 0
    seen = 0
    for strength in ("statement", "module", "latest", "before"):
        found = [statement for step in report.steps if step.strength == strength for statement in step.statements]
        seen += len(found) if strength != "before" else 0
        for statement in found:
            if any(is_truth(_told(lines)) for lines in (statement.lines, *statement.via)):
                if strength == "before":
                    return "before", len(found)
                return ("named" if seen <= _NARROW else "wide"), seen
    return "wrong", seen


def _told(lines: Any) -> str:  # noqa: ANN401 - a SourceRange
    name: str = lines.file.rpartition("/")[2]
    return f"{' '.join(f'{name}:{number}' for number in range(lines.first, lines.last + 1))} {lines.code}"

"""Random edits of ports to other runtimes: what a report on arrays is worth, and the table of many."""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any, Literal, NamedTuple

import command
from pytest_tfdebug import compare

#: In an interval of at most eight statements; in a wider one; only in what is inferred; outside; or quiet.
Score = Literal["named", "wide", "before", "wrong", "missed"]
_NARROW = 8


def score(report: Any, is_truth: Callable[[str], bool]) -> tuple[Score, int]:
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


def _told(lines: Any) -> str:
    name: str = lines.file.rpartition("/")[2]
    return f"{' '.join(f'{name}:{number}' for number in range(lines.first, lines.last + 1))} {lines.code}"


class Trial(NamedTuple):
    """An edit that changes an output: what it is, the reference, the arrays, and what names the reference's line."""

    told: str
    expected: Any
    found: Any
    is_truth: Callable[[str], bool]


def measure(draw: Callable[[random.Random], Trial | None], options: argparse.Namespace) -> None:
    """Print what becomes of ``--edits`` random edits, each as it is judged, and a table of them.

    ``draw`` gives None where no port comes of an edit, or it changes no output.
    """
    rng, scores, widths = random.Random(options.seed), Counter[str](), list[int]()  # noqa: S311 - the same edits every time
    while len(widths) < options.edits:
        trial = draw(rng)
        if trial is not None:
            got, width = score(compare(trial.expected, trial.found), trial.is_truth)
            scores[got] += 1
            widths.append(width)
            print(f"{got:8} {width:3} {trial.told}", flush=True)
    table = command.Table("random", "edits", "named", "wide", "before", "wrong", "missed", "median statements", "most")
    table.add("edits", {**scores, "edits": options.edits, "median statements": median(widths), "most": max(widths)})

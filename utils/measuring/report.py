"""Figures as tables."""

from __future__ import annotations

import datetime as dt
from importlib.metadata import version
from importlib.util import find_spec
from itertools import groupby
from typing import TYPE_CHECKING

from pytest_tfdebug.environment import environment, lines

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measuring.budgets import Verdict
    from measuring.figures import Figure

_NAMES = ("python", "torch", "transformers", "safetensors", "pytest_tfdebug", "cpu", "threads")


def machine() -> str:
    """Return what the figures depend on, in one line."""
    facts = [line for line in lines(environment()) if line.partition(":")[0] in _NAMES]
    peers = [f"{name}: {version(name)}" for name in ("pytest-torch", "torchlens") if find_spec(name.replace("-", "_"))]
    return "; ".join((*facts, *peers, dt.datetime.now(dt.timezone.utc).date().isoformat()))


def render(figures: Sequence[Figure], verdicts: Sequence[Verdict]) -> Iterator[str]:
    """Yield the lines of a Markdown table for each section: a row for each candidate, a column for each work."""
    judged = {each.figure.key: each for each in verdicts}
    for section, group in groupby(figures, key=lambda figure: figure.section):
        of_section = list(group)
        works = list(dict.fromkeys(figure.work for figure in of_section))
        units = {figure.name: figure.unit for figure in reversed(of_section)}
        cells = {(each.name, each.work): _cell(each, judged.get(each.key)) for each in of_section}
        names = dict.fromkeys(figure.name for figure in of_section)
        rows = [(name, *(cells.get((name, work), "") for work in works), units[name]) for name in names]
        yield from ("", f"## {section}", "", *_table([("", *works, "unit"), *rows]))


def _cell(figure: Figure, verdict: Verdict | None) -> str:
    """Return a figure with its quartiles, its time, and its budget if it has one."""
    if figure.value is None:
        return figure.note
    parts = [f"{figure.value:.2f}"]
    if figure.low is not None and figure.high is not None:
        parts.append(f"({figure.low:.2f} to {figure.high:.2f})")
    if figure.milliseconds is not None:
        parts.append(f"{figure.milliseconds:.1f} ms")
    if verdict is not None:
        parts.append(f"**{'<=' if verdict.ok else 'EXCEEDS'} {verdict.limit:.2f}**")
    return " ".join(parts)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for number, row in enumerate(rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"| {' | '.join(cells)} |"
        if number == 0:
            yield f"|{'|'.join('-' * (width + 2) for width in widths)}|"

"""Figures as tables, JSON and a chart."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measuring.figures import MILLISECONDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measuring.budgets import Verdict
    from measuring.figures import Figure

_PACKAGES = ("pytest-tfdebug", "torch", "transformers", "safetensors", "pytest", "pytest-torch", "torchlens")


def machine(threads: int) -> dict[str, Any]:
    """Return what the figures depend on."""
    return {
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "threads": threads,
        "python": platform.python_version(),
        "versions": {name: found for name in _PACKAGES if (found := _version(name))},
    }


def render_machine(facts: dict[str, Any]) -> str:
    """Return the machine in one line."""
    versions = ", ".join(f"{name} {number}" for name, number in facts["versions"].items())
    return (
        f"{facts['cores']} cores, {facts['cpu']}, {facts['threads']} threads of torch; Python {facts['python']}, "
        f"{versions}; {facts['date']}"
    )


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


def to_json(figures: Sequence[Figure], verdicts: Sequence[Verdict], facts: dict[str, Any]) -> str:
    """Return everything as a JSON document."""
    budgets = [{**asdict(each.budget), "value": each.value, "allowed": each.limit, "ok": each.ok} for each in verdicts]
    document = {"machine": facts, "figures": [asdict(figure) for figure in figures], "budgets": budgets}
    return json.dumps(document, indent=2) + "\n"


def _cell(figure: Figure, verdict: Verdict | None) -> str:
    """Return a figure with its quartiles, its time, and its budget if it has one."""
    if figure.value is None:
        return figure.note
    parts = [f"{figure.value:.2f}"]
    if figure.low is not None and figure.high is not None:
        parts.append(f"({figure.low:.2f} to {figure.high:.2f})")
    if figure.milliseconds is not None and figure.unit != MILLISECONDS:
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


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _cpu() -> str:
    """Return the name of the processor; Linux says it in a file."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

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

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from measuring.budgets import Verdict
    from measuring.figures import Figure

_PACKAGES = ("pytest-tfdebug", "torch", "transformers", "safetensors", "pytest", "pytest-torch", "torchlens")
_HEADER = ("", "", "median ms", "ratio", "quartiles", "budget")


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
    """Yield the lines of a Markdown table for each section."""
    limits = {(each.budget.section, each.budget.work, each.budget.name): each for each in verdicts}
    for section, group in groupby(figures, key=lambda figure: figure.section):
        rows = [_HEADER, *(_row(figure, limits.get(figure.key)) for figure in group)]
        yield from ("", f"## {section}", "", *_table(rows))


def to_json(figures: Sequence[Figure], verdicts: Sequence[Verdict], facts: dict[str, Any]) -> str:
    """Return everything as a JSON document."""
    budgets = [{**asdict(each.budget), "value": each.value, "allowed": each.limit, "ok": each.ok} for each in verdicts]
    document = {"machine": facts, "figures": [asdict(figure) for figure in figures], "budgets": budgets}
    return json.dumps(document, indent=2) + "\n"


def _row(figure: Figure, verdict: Verdict | None) -> tuple[str, ...]:
    value = figure.note if figure.value is None else f"{figure.value:.2f} {figure.unit}"
    spread = "" if figure.low is None or figure.high is None else f"{figure.low:.2f} to {figure.high:.2f}"
    time = "" if figure.milliseconds is None else f"{figure.milliseconds:.1f}"
    budget = "" if verdict is None else f"{verdict.limit:.2f}{'' if verdict.ok else ' EXCEEDED'}"
    return figure.work, figure.name, time, value, spread, budget


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

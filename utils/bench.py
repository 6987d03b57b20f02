"""Measure every claim about speed beside what a user would pick instead, in one run, as ratios.

    python utils/bench.py [--only core,goldens] [--check]

Candidates run in turns, in a new order each round, each beside a bare forward of its own; printed are the medians of
these pairs. ``--check`` exits with 1 and names each budget that is exceeded twice, the second time with
three times the rounds.
"""

from __future__ import annotations

import datetime as dt
import gc
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from itertools import groupby

import torch

import command
from measuring import forwards, processes
from measuring.figures import Figure
from pytest_tfdebug.environment import environment, lines

#: What measures each section.
SECTIONS: dict[str, Callable[[int], Iterable[Figure]]] = {
    **{name: partial(forwards.measure, name) for name in ("core", "goldens", "explaining", "overflow")},
    "padding": forwards.measure_padding,
    "step": forwards.measure_step,
    "idle": processes.measure_idle,
    "scanner": processes.measure_scanner,
    "growth": forwards.measure_growth,
    "memory": forwards.measure_memory,
    "weights": forwards.measure_weights,
}
_MORE_ROUNDS, _THREADS = 3, 2
_FACTS = ("python", "torch", "transformers", "safetensors", "pytest_tfdebug", "cpu", "threads")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a budget is exceeded and ``--check`` was given."""
    parser = command.parser(__doc__, "only", only=[*SECTIONS])
    parser.add_argument("--rounds", type=int, default=5, help="runs of each candidate (default 5)")
    parser.add_argument("--check", action="store_true", help="exit with 1 if a budget is exceeded")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.only if name not in SECTIONS]
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; known: {', '.join(SECTIONS)}")
    prepare()
    figures: list[Figure] = []
    for section in options.only:
        found = list(SECTIONS[section](options.rounds))
        show(found)
        if options.check and any(figure.is_exceeded for figure in found):
            print("\nOver budget at first, and measured again:")
            again = list(SECTIONS[section](_MORE_ROUNDS * options.rounds))
            show(again)
            found = [new if old.is_exceeded else old for old, new in zip(found, again, strict=True)]
        figures += found
    judged = [figure for figure in figures if figure.limit is not None]
    exceeded = [figure for figure in judged if figure.is_exceeded]
    print(f"\n{len(judged) - len(exceeded)} of {len(judged)} budgets hold.")
    for figure in exceeded:
        print(f"Over budget: {figure}.")
    return int(options.check and bool(exceeded))


def prepare() -> None:
    """Settle what every section shares, and print what the figures depend on."""
    command.quiet()
    torch.set_num_threads(_THREADS)
    gc.freeze()  # no garbage of before is collected again
    facts = [line for line in lines(environment()) if line.partition(":")[0] in _FACTS]
    peers = [f"{name}: {version(name)}" for name in ("pytest-torch", "torchlens") if find_spec(name.replace("-", "_"))]
    print("; ".join((*facts, *peers, dt.datetime.now(dt.timezone.utc).date().isoformat())))


def show(figures: Sequence[Figure]) -> None:
    """Print a table for each section: a row for each candidate, a column for each work."""
    for section, group in groupby(figures, key=lambda figure: figure.section):
        rows: dict[str, dict[str, str]] = {}
        for figure in group:
            rows.setdefault(figure.name, {"unit": figure.unit})[figure.work] = figure.cell
        works = dict.fromkeys(work for row in rows.values() for work in row if work != "unit")
        print(flush=True)
        table = command.Table(section, *(f"{work:40}" for work in works), f"{'unit':22}")
        for name, row in rows.items():
            table.add(name, [row.get(column, "") for column in (*works, "unit")])


if __name__ == "__main__":
    sys.exit(main())

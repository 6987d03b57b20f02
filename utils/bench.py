"""Measure every claim about speed beside what a user would pick instead, in one run, as ratios.

    python utils/bench.py [--only core,goldens] [--check]

Candidates run in turns, in a new order each round, each beside a bare forward of its own; printed are the medians and
quartiles of these pairs. ``--check`` exits with 1 and names each budget (``measuring/budgets.py``) that is exceeded
twice, the second time with three times the rounds.
"""

from __future__ import annotations

import argparse
import gc
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import command
from measuring import forwards, growth, padding, processes, scanner
from measuring.budgets import judge
from measuring.figures import Figure, Settings
from measuring.report import machine, render
from measuring.work import WORKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: What measures each section.
SECTIONS: dict[str, Callable[[Settings], Iterable[Figure]]] = {
    "core": partial(forwards.measure, "core"),
    "goldens": partial(forwards.measure, "goldens"),
    "explaining": partial(forwards.measure, "explaining"),
    "overflow": partial(forwards.measure, "overflow"),
    "padding": padding.measure,
    "idle": processes.measure_idle,
    "scanner": scanner.measure,
    "growth": growth.measure,
    "memory": growth.measure_memory,
}
_MORE_ROUNDS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a budget is exceeded and ``--check`` was given."""
    options = vars(_parser().parse_args(arguments))
    sections, is_checking = options.pop("only"), options.pop("check")
    settings = Settings(**options)
    prepare(settings.threads)
    print(machine())
    figures: list[Figure] = []
    for section in sections:
        found = list(SECTIONS[section](settings))
        print("\n".join(render(found, list(judge(found)))), flush=True)
        figures += again(section, found, settings) if is_checking else found
    verdicts = list(judge(figures))
    exceeded = [each for each in verdicts if not each.ok]
    print(f"\n{len(verdicts) - len(exceeded)} of {len(verdicts)} budgets hold.")
    for each in exceeded:
        print(f"Over budget: {each}.")
    return int(is_checking and bool(exceeded))


def prepare(threads: int) -> None:
    """Settle what every section shares: threads, a silent transformers, and garbage that is not collected again."""
    command.quiet()
    torch.set_num_threads(threads)
    gc.freeze()


def again(section: str, figures: list[Figure], settings: Settings) -> list[Figure]:
    """Return the figures of a section; those over their budgets are measured once more, with more rounds."""
    exceeded = [each.budget for each in judge(figures) if not each.ok]
    if not exceeded:
        return figures
    names = frozenset(
        name for budget in exceeded for name in (budget.name, budget.name.partition(":")[0], *budget.floor)
    )
    more = replace(
        settings, rounds=_MORE_ROUNDS * settings.rounds, patience=_MORE_ROUNDS * settings.patience, names=names
    )
    measured = {figure.key: figure for figure in SECTIONS[section](more)}
    figures = [measured.get(figure.key, figure) for figure in figures]
    print("\nOver budget at first, and measured again:")
    print("\n".join(render([figure for figure in figures if figure.key in measured], list(judge(figures)))), flush=True)
    return figures


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_names(SECTIONS), default=tuple(SECTIONS), help="sections, with commas")
    parser.add_argument("--models", type=_names(WORKS), default=tuple(WORKS), help="models, with commas")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each candidate (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument("--tree", type=Path, help="a repository to scan (default: a generated one)")
    parser.add_argument(
        "--scan-script", type=Path, help="transformers' scan_skipped_tests.py (default: the tree's, else ours)"
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 if a budget is exceeded")
    return parser


def _names(known: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        unknown = [name for name in names if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    sys.exit(main())

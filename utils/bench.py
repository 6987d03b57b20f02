"""Measure every claim about speed beside what a user would pick instead, in one run, as ratios.

    python utils/bench.py [--only core,goldens] [--json FILE] [--plot FILE] [--check]

Candidates run in turns, in a new order each round, each beside a bare forward of its own; printed are the medians and
quartiles of these pairs. ``--check`` exits with 1 and names each budget (``measuring/budgets.py``) that is exceeded.
"""

from __future__ import annotations

import argparse
import gc
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers.utils import logging

from measuring import forwards
from measuring.budgets import judge
from measuring.figures import Figure, Settings
from measuring.report import machine, render, render_machine, to_json
from measuring.work import WORKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: What measures each section.
SECTIONS: dict[str, Callable[[Settings], Iterable[Figure]]] = {
    name: partial(forwards.measure, name) for name in ("core", "goldens", "overflow")
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, and return 1 if a budget is exceeded and ``--check`` was given."""
    options = _parser().parse_args(arguments)
    settings = Settings(options.rounds, options.threads, options.models, options.tree, options.scan_script)
    torch.set_num_threads(options.threads)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    gc.freeze()
    facts = machine(options.threads)
    print(render_machine(facts))
    figures: list[Figure] = []
    for section in options.only:
        found = list(SECTIONS[section](settings))
        figures += found
        print("\n".join(render(found, list(judge(found)))), flush=True)
    verdicts = list(judge(figures))
    if options.json:
        options.json.write_text(to_json(figures, verdicts, facts), encoding="utf-8")
    exceeded = [each for each in verdicts if not each.ok]
    for each in exceeded:
        print(f"Over budget: {each}")
    return int(bool(exceeded) and options.check)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=_names(SECTIONS), default=tuple(SECTIONS), help="sections, with commas")
    parser.add_argument("--models", type=_names(WORKS), default=tuple(WORKS), help="models, with commas")
    parser.add_argument("--rounds", type=int, default=11, help="runs of each candidate (default 11)")
    parser.add_argument("--threads", type=int, default=2, help="threads of torch (default 2)")
    parser.add_argument("--tree", type=Path, help="a repository to scan (default: a generated one)")
    parser.add_argument("--scan-script", type=Path, help="transformers' scan_skipped_tests.py (default: the tree's)")
    parser.add_argument("--json", type=Path, help="write all figures there")
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

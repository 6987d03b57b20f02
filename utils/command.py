"""What the scripts share: their options, a quiet process, and tables of Markdown that grow as they run.

Importing it puts the folders of the tests' models and ports on the path.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "fixtures"), str(ROOT / "tests" / "ports")]

_OPTIONS: dict[str, dict[str, Any]] = {
    "dtype": {"default": "float32", "help": "of the port (default %(default)s)"},
    "edits": {"type": int, "default": 100, "help": "edits that change an output (default %(default)s)"},
    "look": {"type": lambda text: text.split(","), "metavar": "COLUMN,COLUMN", "help": "at these columns only"},
    "only": {"type": lambda text: text.split(","), "metavar": "NAME,NAME", "help": "these only"},
    "seed": {"type": int, "default": 0, "help": "of the random edits (default %(default)s)"},
    "traces": {"action": "store_true", "help": "compare two traces in place of tf_golden.check with a golden on disk"},
    "show": {"action": "store_true", "help": "print each report that does not name the line"},
}


def parser(doc: str | None, *options: str, **defaults: object) -> argparse.ArgumentParser:
    """Return a parser with some of the options that scripts share."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in options:
        settings = {"default": defaults[name]} if name in defaults else {}
        made.add_argument(f"--{name}", **{**_OPTIONS[name], **settings})
    return made


def quiet() -> None:
    """Run on one thread, and print nothing but what the script prints."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    transformers.logging.set_verbosity(transformers.logging.CRITICAL)
    transformers.logging.disable_progress_bar()


def only_work_counts() -> None:
    """Let a search for a proof wait as long as the machine has other work: what it works itself still counts."""
    from pytest_tfdebug.parity.proof import budget

    budget.WAITING = 100.0


class Table:
    """A table whose rows are printed as they are added; integers are summed.

    Args:
        title: Head of the first column.
        columns: Heads of the others, padded where their cells are wider.
    """

    def __init__(self, title: str, *columns: str) -> None:
        self._columns, self._total = [column.strip() for column in columns], Counter[str]()
        self._widths = [max(len(column), 6) for column in columns]
        self._print(title, self._columns)
        self._print("-" * 30, ["-" * width for width in self._widths])

    def add(self, name: str, cells: Mapping[str, Any] | Iterable[Any]) -> None:
        """Print a row; of a mapping, a column that has no cell counts nothing."""
        row = [cells.get(column, 0) for column in self._columns] if isinstance(cells, Mapping) else list(cells)
        self._total.update({name: cell for name, cell in zip(self._columns, row, strict=True) if isinstance(cell, int)})
        self._print(name, row)

    def total(self) -> None:
        """Print the sums of all rows."""
        self._print("all", [self._total.get(column, "") for column in self._columns])

    def _print(self, name: str, cells: Iterable[Any]) -> None:
        texts = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in cells]
        padded = [text.rjust(width) for text, width in zip(texts, self._widths, strict=True)]
        print(f"| {' | '.join([f'{name:30}', *padded])} |", flush=True)

"""The ports of the corpus: one file for each, with its bugs."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cases import Port


def all_ports() -> list[Port]:
    """Return every port, installed or not, in the order of the files' names."""
    names = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
    return [import_module(f"corpus.{name}").PORT for name in names]

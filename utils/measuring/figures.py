"""What is measured, as numbers."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Units. The first is that of a time beside the time of a bare forward; of growth, 1 is linear.
OF_BARE = "x bare forward"
OF_FORWARDS, MORE_FORWARDS = "x its forwards", "bare forwards more"
LAYERS = "layers of tensors"
OF_SCRIPT, OF_SCRIPT_FOR_ONE, MEGABYTES = "x regex script", "x regex script for it", "MB"
OF_PYTEST, OF_BARE_PEAK = "% of import pytest", "x peak of the bare forward"
OVER_SMALLEST, LINEAR = "x the ratio at the smallest", "x linear growth"


@dataclass(frozen=True)
class Figure:
    """One number of one run: of what, on which work, with the quartiles of its rounds where it has some.

    ``value`` is None where it could not be measured, and ``note`` says why.
    """

    section: str
    work: str
    name: str
    value: float | None
    unit: str
    low: float | None = None
    high: float | None = None
    milliseconds: float | None = None
    rounds: int = 1
    note: str = ""

    @property
    def key(self) -> tuple[str, str, str]:
        """Section, work and name: what tells it from the others of a run."""
        return self.section, self.work, self.name


@dataclass(frozen=True)
class Settings:
    """How much to measure.

    Args:
        rounds: Times that each candidate runs, if it is not a slow one.
        patience: Seconds after which a slow candidate stops, once it has run three times.
        threads: Threads of torch.
        models: Names of the work, see :data:`measuring.work.WORKS`.
        tree: A repository to scan; a generated one where it is None.
        scan_script: The regex script of transformers.
        names: What to measure; everything where it is None.
    """

    rounds: int = 5
    patience: float = 1.5
    threads: int = 2
    models: tuple[str, ...] = ("tiny", "llama", "minilm")
    tree: Path | None = None
    scan_script: Path | None = None
    names: frozenset[str] | None = None

    def wants(self, name: str) -> bool:
        """Tell whether something is to be measured."""
        return self.names is None or name in self.names


def of_rounds(
    section: str, work: str, name: str, values: Sequence[float], unit: str, *, seconds: Sequence[float] = ()
) -> Figure:
    """Return the figure of several rounds: the median, the quartiles, and the median time."""
    low, _, high = statistics.quantiles(values, method="inclusive") if len(values) > 1 else 3 * list(values)
    milliseconds = statistics.median(seconds) * 1e3 if seconds else None
    return Figure(section, work, name, statistics.median(values), unit, low, high, milliseconds, len(values))

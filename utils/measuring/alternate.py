"""Run candidates in turns, each beside a run of the floor, so that what else the machine does falls on all alike."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: A slow candidate runs at least so many times.
LEAST = 3


@dataclass
class Timed:
    """The seconds of each run of a candidate, and of the run of the floor just before it."""

    seconds: list[float] = field(default_factory=list)
    base: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """Each run over the run of the floor just before it."""
        return [mine / floor for mine, floor in zip(self.seconds, self.base, strict=True)]


def stopwatch(run: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    began = time.perf_counter()
    kept = run()
    took = time.perf_counter() - began
    del kept  # what it returned is let go outside the time
    return took


def alternate(
    base: Callable[[], object],
    candidates: Mapping[str, Callable[[], object]],
    rounds: int,
    *,
    settle: Callable[[], object] = lambda: None,
    timer: Callable[[Callable[[], object]], float] = stopwatch,
    patience: float = 2.5,
    warm: bool = True,
) -> dict[str, Timed]:
    """Run every candidate in every round, in a new order each time: settle, the floor, the candidate.

    What the candidate before it left behind (a grown heap, cold caches, garbage) falls on the settling, and the floor
    is as near in time as it can be. What runs for the first time is slow: run it before, or let ``warm`` do it. A
    candidate that took ``patience`` seconds runs no more, once it has run :data:`LEAST` times.
    """
    timed = {name: Timed() for name in candidates}
    shuffle = random.Random(0).shuffle  # noqa: S311 - the same orders every time
    names = list(candidates)
    for name in names if warm else ():
        settle()
        candidates[name]()
    for _ in range(rounds):
        shuffle(names)
        for name in names:
            times = timed[name]
            if len(times.seconds) >= LEAST and sum(times.seconds) > patience:
                continue
            settle()
            times.base.append(timer(base))
            times.seconds.append(timer(candidates[name]))
    return timed

"""A figure beside its budget, and how it is measured: in turns with a floor, and to the byte."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from _pytest.capture import FDCapture
from torch.profiler import ProfilerActivity, profile


@dataclass(frozen=True)
class Figure:
    """One number of one run."""

    section: str
    work: str  # on what it was measured
    name: str
    value: float | None  # None where it could not be measured
    unit: str
    limit: float | None = None  # its budget: the most that it may be
    reason: str = ""  # of the budget
    note: str = ""  # beside it: a time, or why it could not be measured

    @property
    def is_exceeded(self) -> bool:
        """Whether it has a budget, and is over it."""
        return self.limit is not None and self.value is not None and self.value > self.limit

    @property
    def cell(self) -> str:
        """The figure with its note, and its budget if it has one."""
        if self.value is None:
            return self.note
        budget = "" if self.limit is None else f"**{'EXCEEDS' if self.is_exceeded else '<='} {self.limit:.2f}**"
        return " ".join(filter(None, (f"{self.value:.2f}", self.note, budget)))

    def __str__(self) -> str:
        what = f"{self.section}: {self.name} ({self.work})"
        return f"{what} is {self.value:.2f} {self.unit}, {self.limit:.2f} allowed: {self.reason}"


@dataclass
class Timed:
    """The seconds of each run of a candidate, and of the run of the floor just before it."""

    seconds: list[float] = field(default_factory=list)
    base: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """The median of each run over the run of the floor just before it."""
        return median(mine / floor for mine, floor in zip(self.seconds, self.base, strict=True))

    @property
    def note(self) -> str:
        """The median time."""
        return f"{median(self.seconds) * 1e3:.1f} ms"


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
) -> dict[str, Timed]:
    """Run every candidate in every round, in a new order each time: settle, the floor, the candidate.

    What the candidate before it left behind (a grown heap, cold caches, garbage) falls on the settling, and the floor
    is as near in time as it can be. What runs for the first time is slow: run it before.
    """
    timed, names = {name: Timed() for name in candidates}, list(candidates)
    shuffle = random.Random(0).shuffle  # noqa: S311 - the same orders every time
    for _ in range(rounds):
        shuffle(names)
        for name in names:
            settle()
            timed[name].base.append(timer(base))
            timed[name].seconds.append(timer(candidates[name]))
    return timed


def peak(run: Callable[[], object]) -> int:
    """Return the most bytes of tensors alive at once during a call, beyond those alive before it.

    They are those that torch's own allocator hands out: the same on every run. What is mapped from a file is not
    counted: it is not allocated, and the system takes it back when it needs to.
    """
    gc.collect()
    silenced = FDCapture(2)  # the profiler of torch 2.13 writes to standard error whatever it is told
    silenced.start()
    try:
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
            run()
    finally:
        silenced.done()
    results: Any = profiler.profiler and profiler.profiler.kineto_results
    changes = sorted((event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]")
    alive = most = 0
    for _, change in changes:
        alive += change
        most = max(most, alive)
    return most

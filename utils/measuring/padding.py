"""What a passing padding check costs beyond the forwards that it repeats."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import torch

from measuring.alternate import alternate
from measuring.figures import MORE_FORWARDS, OF_FORWARDS, Figure, of_rounds
from measuring.ours import padding_check
from measuring.work import WORKS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measuring.figures import Settings
    from measuring.work import Work

BESIDE = "padding_invariant, beside its forwards"
#: A check is many forwards: it gets so much more time than others.
_MORE = 7


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield what the check adds, in bare forwards of the test's own call."""
    for name in settings.models:
        yield from _of_work(WORKS[name](), settings)


def _of_work(work: Work, settings: Settings) -> Iterator[Figure]:
    check, repeated = padding_check(work)
    beside: list[float] = []

    @torch.no_grad()
    def forwards() -> None:
        work.forward()
        for inputs in repeated:
            work.model(**inputs)

    watched, patience = {BESIDE: _watched(work, check, beside)}, _MORE * settings.patience
    times = alternate(forwards, watched, settings.rounds, settle=work.forward, patience=patience)[BESIDE]
    yield of_rounds("padding", work.name, "padding_invariant", times.ratios, OF_FORWARDS, seconds=times.seconds)
    yield of_rounds("padding", work.name, BESIDE, beside[1:], MORE_FORWARDS)  # the first run warmed up


def _watched(work: Work, run: Callable[[], object], beside: list[float]) -> Callable[[], None]:
    """Return a run that adds to ``beside`` what it takes beside the model's forwards, in forwards of the test's own."""
    began: list[float] = []
    took: list[float] = []

    def before(*_: object) -> None:
        began.append(perf_counter())

    def after(*_: object) -> None:
        took.append(perf_counter() - began.pop())

    def watched() -> None:
        handles = [
            work.model.register_forward_pre_hook(before, prepend=True),
            work.model.register_forward_hook(after),
        ]
        took.clear()
        start = perf_counter()
        run()
        beside.append((perf_counter() - start - sum(took)) / took[0])
        for handle in handles:
            handle.remove()

    return watched

"""What a passing padding check costs beyond the forwards that it repeats."""

from __future__ import annotations

import statistics
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from measuring.alternate import alternate, stopwatch
from measuring.figures import MORE_FORWARDS, OF_FORWARDS, Figure, of_rounds
from measuring.ours import padding_check
from measuring.work import ONLY_TRACED, WORKS
from pytest_tfdebug.tracing.leaves import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measuring.figures import Settings
    from measuring.work import Work

BESIDE = "padding_invariant, beside its forwards"
FLOOR = "subtracting the same outputs, and the sum of each"
#: A check is many forwards: it gets so much more time than others.
_MORE = 7


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield what the check adds, in bare forwards of the test's own call, and what reading outputs takes at least."""
    for name in settings.models:
        if name not in ONLY_TRACED:
            yield from _of_work(WORKS[name]("cpu"), settings)


def _of_work(work: Work, settings: Settings) -> Iterator[Figure]:
    check, repeated = padding_check(work)
    outside: list[float] = []

    @torch.no_grad()
    def forwards() -> None:
        work.forward()
        for inputs in repeated:
            work.model(**inputs)

    def timer(run: Callable[[], object]) -> float:
        with _watched(work.model) as forwards:
            seconds = stopwatch(run)
        outside.append(seconds - sum(forwards))
        return seconds

    patience = _MORE * settings.patience
    times = alternate(forwards, {"": check}, settings.rounds, settle=work.forward, timer=timer, patience=patience)[""]
    of_floor = alternate(work.forward, {"": _floor(work, len(repeated))}, 3 * settings.rounds, settle=work.forward)[""]
    bare = statistics.median(of_floor.base)
    added = [seconds / bare for seconds in outside[1::2]]  # of each pair the second is the check
    count = 1 + len(repeated)
    note = f"{count} forwards"
    yield of_rounds(
        "padding", work.name, "padding_invariant", times.ratios, OF_FORWARDS, seconds=times.seconds, note=note
    )
    yield of_rounds("padding", work.name, BESIDE, added, MORE_FORWARDS, note=note)
    yield of_rounds("padding", work.name, FLOOR, of_floor.ratios, MORE_FORWARDS, seconds=of_floor.seconds, note=note)


@contextmanager
def _watched(model: torch.nn.Module) -> Iterator[list[float]]:
    """Yield the seconds of every forward that the model makes in the block."""
    began: list[float] = []
    took: list[float] = []

    def before(*_: object) -> None:
        began.append(perf_counter())

    def after(*_: object) -> None:
        took.append(perf_counter() - began.pop())

    handles = [model.register_forward_pre_hook(before, prepend=True), model.register_forward_hook(after)]
    try:
        yield took
    finally:
        for handle in handles:
            handle.remove()


def _floor(work: Work, times: int) -> Callable[[], object]:
    """Return a subtraction of every output from its like, its extremes, and a sum that shows any nan."""
    expected = [leaf.tensor for leaf in walk(work.forward()) if leaf.tensor.is_floating_point()]
    actual = [tensor.clone() for tensor in expected]

    def subtract() -> None:
        for _ in range(times):
            for pair in zip(expected, actual, strict=True):
                torch.aminmax(torch.sub(*pair))
                pair[1].sum()

    return subtract

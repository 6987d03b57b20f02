"""What a passing padding check costs beyond the forwards that it repeats."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import torch

from measuring.alternate import alternate
from measuring.figures import MORE_FORWARDS, Figure, of_rounds
from measuring.ours import padding_check
from measuring.work import ONLY_TRACED, WORKS
from pytest_tfdebug.tracing.leaves import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measuring.figures import Settings
    from measuring.work import Work

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

    @torch.no_grad()
    def forwards() -> None:
        work.forward()
        for inputs in repeated:
            work.model(**inputs)

    patience = _MORE * settings.patience
    times = alternate(forwards, {"": check}, settings.rounds, settle=work.forward, patience=patience)[""]
    of_floor = alternate(work.forward, {"": _floor(work, len(repeated))}, 3 * settings.rounds, settle=work.forward)[""]
    bare = statistics.median(of_floor.base)
    note = f"beyond its {1 + len(repeated)} forwards"
    for kind, seconds, values in (
        ("padding_invariant", times.seconds, [each / bare for each in times.differences]),
        (FLOOR, of_floor.seconds, of_floor.ratios),
    ):
        yield of_rounds("padding", work.name, kind, values, MORE_FORWARDS, seconds=seconds, note=note)


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

"""What a passing padding check costs beyond the forwards that it repeats."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch

from measuring.alternate import alternate
from measuring.figures import MORE_FORWARDS, OF_FORWARDS, Figure, of_rounds
from measuring.ours import padding_check
from measuring.work import WORKS
from pytest_tfdebug.tracing.record.leaves import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measuring.figures import Settings
    from measuring.work import Work

BESIDE = "padding_invariant, beside its forwards"
FLOOR = "by hand: the same outputs subtracted, their extremes and their sums"
#: A check is many forwards: it gets so much more time than others.
_MORE = 7


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield what the check adds, in bare forwards of the test's own call, and what reading outputs takes at least."""
    for name in settings.models:
        yield from _of_work(WORKS[name]("cpu"), settings)


def _of_work(work: Work, settings: Settings) -> Iterator[Figure]:
    check, repeated = padding_check(work)
    beside: dict[str, list[float]] = {BESIDE: [], FLOOR: []}

    @torch.no_grad()
    def forwards() -> None:
        work.forward()
        for inputs in repeated:
            work.model(**inputs)

    candidates = {BESIDE: check, FLOOR: _by_hand(work, repeated)}
    watched = {name: _watched(work, run, beside[name]) for name, run in candidates.items()}
    patience = _MORE * settings.patience
    times = alternate(forwards, watched, settings.rounds, settle=work.forward, patience=patience)
    count = 1 + len(repeated)
    note = f"{count} forwards"
    checks = times[BESIDE]
    yield of_rounds(
        "padding", work.name, "padding_invariant", checks.ratios, OF_FORWARDS, seconds=checks.seconds, note=note
    )
    for name, added in beside.items():  # the first of each ran to warm up
        yield of_rounds("padding", work.name, name, added[1:], MORE_FORWARDS, note=note)


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


def _by_hand(work: Work, repeated: list[dict[str, Any]]) -> Callable[[], None]:
    """Return the same forwards, each output subtracted from the first one's, its extremes and a sum that shows nan.

    The forwards whose outputs are what others are held to (a row alone) are compared with nothing.
    """
    rows = len(work.inputs["input_ids"])

    @torch.no_grad()
    def by_hand() -> None:
        expected = _floats(work.forward())
        for inputs in repeated:
            actual = _floats(work.model(**inputs))
            if len(inputs["input_ids"]) < rows:
                continue
            for e, a in zip(expected, actual, strict=True):
                both = a[tuple(slice(size) for size in e.shape)]
                torch.stack(torch.aminmax(torch.sub(e, both))).tolist()
                bool(torch.isnan(a.sum()))

    return by_hand


def _floats(output: object) -> list[torch.Tensor]:
    return [leaf.tensor for leaf in walk(output) if leaf.tensor.is_floating_point()]

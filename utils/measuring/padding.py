"""What a passing padding check costs beyond the forwards that it repeats."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import torch

from measuring.alternate import alternate
from measuring.figures import MORE_FORWARDS, Figure, of_rounds
from measuring.ours import padding_check
from measuring.work import ONLY_TRACED, WORKS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.figures import Settings

#: A check is many forwards: it gets so much more time than others.
_MORE = 7


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield what the check adds, in bare forwards of the test's own call."""
    for name in settings.models:
        if name in ONLY_TRACED:
            continue
        work = WORKS[name]("cpu")
        check, repeated = padding_check(work)

        @torch.no_grad()
        def forwards() -> None:
            work.forward()  # noqa: B023 - it does not outlive the loop
            for inputs in repeated:  # noqa: B023
                work.model(**inputs)  # noqa: B023

        candidates = {"check": check, "bare": work.forward}
        timed = alternate(
            forwards, candidates, settings.rounds, settle=work.forward, patience=_MORE * settings.patience
        )
        bare = statistics.median(timed["bare"].seconds)
        added = [seconds / bare for seconds in timed["check"].differences]
        yield of_rounds(
            "padding",
            work.name,
            "padding_invariant",
            added,
            MORE_FORWARDS,
            seconds=timed["check"].seconds,
            note=f"beyond its {1 + len(repeated)} forwards",
        )

"""Time whatever is done to a forward, each as a ratio to the bare one: tracing, goldens, the watch for overflow."""

from __future__ import annotations

import gc
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from measuring.alternate import alternate, stopwatch
from measuring.figures import MISSING, OF_BARE, Figure, of_rounds
from measuring.kinds import Kind, Place
from measuring.ours import OURS
from measuring.peers import BARE, PEERS
from measuring.work import ONLY_TRACED, WORKS, Work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measuring.figures import Settings

KINDS = BARE + OURS + PEERS
#: Seconds of bare forwards before each pair: caches and clocks are then as they are in use.
_WARM = 0.02


def measure(section: str, settings: Settings) -> Iterator[Figure]:
    """Yield the figures of the candidates of a section, on every model."""
    kinds = [kind for kind in KINDS if kind.section == section and settings.wants(kind.name)]
    for name in settings.models:
        if name in ONLY_TRACED and section != "core":
            continue
        yield from of_work(section, WORKS[name]("cpu"), kinds, settings)


def of_work(
    section: str,
    work: Work,
    kinds: list[Kind],
    settings: Settings,
    timer: Callable[[Callable[[], object]], float] = stopwatch,
) -> Iterator[Figure]:
    """Yield the figures of candidates on one model."""
    with places() as place:
        candidates: dict[str, Callable[[], object]] = {}
        refusals: dict[str, str] = {}
        for kind in kinds:
            if not kind.is_installed:
                refusals[kind.name] = MISSING
                continue
            try:
                candidates[kind.name] = _ready(kind, work, place)
            except Exception as error:
                if kind not in PEERS:
                    raise
                refusals[kind.name] = f"raises {type(error).__name__}"

        def settle() -> None:
            for left in place.scratch.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            gc.collect()
            began = perf_counter()
            while perf_counter() - began < _WARM:
                work.forward()

        rounds, patience = settings.rounds, settings.patience
        timed = alternate(work.forward, candidates, rounds, settle=settle, timer=timer, patience=patience, warm=False)
    for kind in kinds:
        if kind.name in timed:
            times = timed[kind.name]
            yield of_rounds(section, work.name, kind.name, times.ratios, OF_BARE, seconds=times.seconds)
        else:
            yield Figure(section, work.name, kind.name, None, OF_BARE, note=refusals[kind.name])


def _ready(kind: Kind, work: Work, place: Place) -> Callable[[], object]:
    """Return a candidate that has run once: a peer that cannot do this model raises here."""
    candidate = kind.make(work, place)
    candidate()
    return candidate


@contextmanager
def places() -> Iterator[Place]:
    """Yield two directories that are gone afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        place = Place(Path(directory) / "kept", Path(directory) / "scratch")
        place.kept.mkdir()
        place.scratch.mkdir()
        yield place

"""Time whatever is done to a forward, each as a ratio to the bare one: tracing, goldens, the watch for overflow."""

from __future__ import annotations

import gc
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from measuring.alternate import alternate
from measuring.figures import OF_BARE, Figure, of_rounds
from measuring.ours import OURS
from measuring.peers import BARE, PEERS
from measuring.work import WORKS, Kind, Place, Work

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
        yield from of_work(section, WORKS[name](), kinds, settings)


def of_work(
    section: str,
    work: Work,
    kinds: list[Kind],
    settings: Settings,
) -> Iterator[Figure]:
    """Yield the figures of candidates on one model."""
    with places() as place:
        candidates: dict[str, Callable[[], object]] = {}
        refusals: dict[str, str] = {}
        for kind in kinds:
            try:
                candidates[kind.name] = kind.make(work, place)
                candidates[kind.name]()  # a peer that is not installed, or cannot do this model, raises here
            except Exception as error:  # noqa: PERF203 - few, and slow
                if kind not in PEERS:
                    raise
                candidates.pop(kind.name, None)
                missing = isinstance(error, ModuleNotFoundError)
                refusals[kind.name] = "not installed" if missing else f"raises {type(error).__name__}"

        def settle() -> None:
            for left in place.scratch.iterdir():
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            gc.collect()
            began = perf_counter()
            while perf_counter() - began < _WARM:
                work.forward()

        rounds, patience = settings.rounds, settings.patience
        timed = alternate(work.forward, candidates, rounds, settle=settle, patience=patience, warm=False)
    for kind in kinds:
        if kind.name in timed:
            times = timed[kind.name]
            yield of_rounds(section, work.name, kind.name, times.ratios, OF_BARE, seconds=times.seconds)
        else:
            yield Figure(section, work.name, kind.name, None, OF_BARE, note=refusals[kind.name])


@contextmanager
def places() -> Iterator[Place]:
    """Yield two directories that are gone afterwards."""
    with tempfile.TemporaryDirectory() as directory:
        place = Place(Path(directory) / "kept", Path(directory) / "scratch")
        place.kept.mkdir()
        place.scratch.mkdir()
        yield place

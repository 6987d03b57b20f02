"""How time and memory grow with the depth of a model and the length of its input, as ratios to the bare forward."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from measuring import allocations
from measuring.figures import OF_BARE_PEAK, OVER_SMALLEST, Figure
from measuring.forwards import KINDS, of_work, places
from measuring.ours import PADDING, STREAMING
from measuring.work import growing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.figures import Settings
    from measuring.kinds import Kind
    from measuring.work import Work

DEPTHS = (2, 4, 8, 16, 32)
LENGTHS = (32, 64, 128, 256, 512)
_NAMES = ("trace", "golden, update", "golden, check", "overflow_guard")


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield time and peak memory for each depth and length, and how the ratios at both ends compare."""
    yield from _curve("growth, depth", settings, {f"{depth} layers": (depth, 128) for depth in DEPTHS})
    yield from _curve("growth, length", settings, {f"{length} tokens": (4, length) for length in LENGTHS})


def _curve(section: str, settings: Settings, sizes: dict[str, tuple[int, int]]) -> Iterator[Figure]:
    timed = [kind for kind in (*KINDS, PADDING) if kind.name in (*_NAMES, PADDING.name) and settings.wants(kind.name)]
    held = [kind for kind in (*timed, *STREAMING) if kind.name != "golden, check" and settings.wants(kind.name)]
    held = list({kind.name: kind for kind in held}.values())
    ratios: dict[str, list[float]] = {}
    for size, (depth, length) in sizes.items():
        work = growing(size, layers=depth, shape=(1, length))
        rounds = replace(settings, rounds=settings.rounds // 2 + 1)
        for figure in (*of_work(section, work, timed, rounds), *_memory(section, work, held)):
            ratios.setdefault(figure.name, []).append(figure.value or 0.0)
            yield figure
    smallest, *_, largest = sizes
    for name, values in ratios.items():
        yield Figure(section, f"{largest} over {smallest}", name, values[-1] / values[0], OVER_SMALLEST)


def _memory(section: str, work: Work, kinds: list[Kind]) -> Iterator[Figure]:
    bare = allocations.peak(work.forward)
    for kind in kinds:
        with places() as place:
            most = allocations.peak(kind.make(work, place))
        note = f"{most / 1e6:.1f} MB"
        yield Figure(section, work.name, f"{kind.name}: memory", most / bare, OF_BARE_PEAK, note=note)

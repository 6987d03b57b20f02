"""The same candidates on a CUDA device, timed by its events, and how often each makes the host wait for it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from measuring.figures import Figure
from measuring.forwards import KINDS, of_work, places
from measuring.work import WORKS, growing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measuring.figures import Settings
    from measuring.kinds import Kind
    from measuring.work import Work

SECTION = "cuda"
_OURS = ("trace", "trace and compare", "golden, update", "golden, check", "overflow_guard", "overflow_guard, headroom")
_NAMES = (
    "bare forward",
    *_OURS,
    "hooks that clone",
    "transformers debugger, use_repr=True",
    "transformers DebugUnderflowOverflow",
    "pytest-torch localize_divergence",
)
#: Two depths tell what is paid for each module from what is paid once.
_SHALLOW, _DEEP = 2, 8


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield times and synchronisations, where there is a device; the first figure says so where there is none."""
    if not torch.cuda.is_available():
        yield Figure(SECTION, "", "every candidate", None, "", note="no CUDA device here")
        return
    kinds = [kind for kind in KINDS if kind.name in _NAMES and settings.wants(kind.name)]
    kinds = list({kind.name: kind for kind in kinds}.values())  # the bare forward stands in several sections
    for name in settings.models:
        yield from of_work(SECTION, WORKS[name]("cuda"), kinds, settings, timer=events)
    yield from _synchronisations(kinds)


def events(run: Callable[[], object]) -> float:
    """Return the seconds between two events of the device, one before and one after a call."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda.synchronize()
    start.record()
    kept = run()
    end.record()
    end.synchronize()
    del kept
    return float(start.elapsed_time(end)) / 1e3


def synchronisations(run: Callable[[], object]) -> int:
    """Return how often a call makes the host wait for the device, as far as torch itself can tell."""
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            run()
        finally:
            torch.cuda.set_sync_debug_mode(before)
    return sum("synchronizing CUDA operation" in str(warning.message) for warning in told)


def _synchronisations(kinds: list[Kind]) -> Iterator[Figure]:
    """Yield the waits of each candidate in one forward, and those that every further module costs."""
    shallow, deep = (
        growing(f"{depth} layers", layers=depth, shape=(2, 128), device="cuda") for depth in (_SHALLOW, _DEEP)
    )
    modules = _modules(deep) - _modules(shallow)
    bare = [synchronisations(work.forward) for work in (shallow, deep)]
    for kind in kinds:
        if not kind.is_installed:
            continue
        few, many = (_of_kind(kind, work) - floor for work, floor in zip((shallow, deep), bare, strict=True))
        yield Figure(SECTION, deep.name, f"{kind.name}: synchronisations", many, "in a forward")
        yield Figure(SECTION, "each module", f"{kind.name}: synchronisations", (many - few) / modules, "per module")


def _of_kind(kind: Kind, work: Work) -> int:
    with places() as place:
        candidate = kind.make(work, place)
        candidate()
        return synchronisations(candidate)


def _modules(work: Work) -> int:
    return sum(1 for _ in work.model.modules())

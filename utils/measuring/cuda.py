"""How often each candidate makes the host wait for a CUDA device, for every module more."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import torch

from measuring.figures import Figure
from measuring.forwards import KINDS, places
from measuring.work import growing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measuring.figures import Settings
    from measuring.work import Kind, Work

_NAMES = ("trace", "trace and compare", "golden, update", "golden, check", "overflow_guard", "hooks that clone")
#: Two depths tell what is paid for each module from what is paid once.
_SHALLOW, _DEEP = 2, 8


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield the waits per module, where there is a device; the one figure says so where there is none."""
    if not torch.cuda.is_available():
        yield Figure("cuda", "", "every candidate", None, "", note="no CUDA device here")
        return
    works = [growing(f"{depth} layers", layers=depth, shape=(2, 128), device="cuda") for depth in (_SHALLOW, _DEEP)]
    few, many = (sum(1 for _ in work.model.modules()) for work in works)
    for kind in (kind for kind in KINDS if kind.name in _NAMES and settings.wants(kind.name)):
        less, more = (_of_kind(kind, work) - synchronisations(work.forward) for work in works)
        waits = (more - less) / (many - few)
        yield Figure("cuda", "each module", f"{kind.name}: synchronisations", waits, "per module")


def _of_kind(kind: Kind, work: Work) -> int:
    with places() as place:
        candidate = kind.make(work, place)
        candidate()
        return synchronisations(candidate)


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

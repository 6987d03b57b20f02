"""Many checks in one process: neither memory nor handles nor time of a check may grow."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

from safety.left_as_it_was import CHECKS

#: Kilobytes and handles that a run may grow by after its first tenth, and how much longer a check may take.
KILOBYTES, HANDLES, SLOWER = 20_000, 5, 1.5


class Sample(NamedTuple):
    """What one check took of the processor, and the size and the handles of the process after it."""

    seconds: float
    kilobytes: int
    handles: int


class Growth(NamedTuple):
    """What a process has more at the end than after a tenth of its checks, and how much longer a check takes then."""

    kilobytes: int
    handles: int
    slower: float


def told_growth(found: list[Sample], turn: int = 1) -> list[str]:
    """Return in words what grew more than it may; ``turn`` as for :func:`growth`."""
    grown = growth(found, turn)
    problems = [f"the process grew by {grown.kilobytes:,} kB"] if grown.kilobytes > KILOBYTES else []
    problems += [f"{grown.handles} handles are left open"] if grown.handles > HANDLES else []
    problems += [f"a check takes {grown.slower:.2f} times as long at the end"] if grown.slower > SLOWER else []
    return problems


def growth(found: list[Sample], turn: int = 1) -> Growth:
    """Return what grew between a tenth of the checks and the last; so many different checks were made in turn."""
    seconds = [sum(each.seconds for each in found[start : start + turn]) for start in range(0, len(found), turn)]
    part, warm = max(1, len(seconds) // 10), found[max(1, len(found) // 10)]
    slower = median(seconds[-part:]) / median(seconds[1 : 1 + part])
    return Growth(found[-1].kilobytes - warm.kilobytes, found[-1].handles - warm.handles, slower)


def samples(count: int) -> list[Sample]:
    """Make so many checks of three kinds, in turn."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    inputs = {"src": torch.randn(2, 5, 16)}
    found = []
    with TemporaryDirectory() as folder:
        for number in range(count):
            started = time.process_time()
            CHECKS[("trace", "golden", "overflow")[number % 3]](model, inputs, Path(folder))
            found.append(sample(started))
    return found


def sample(started: float) -> Sample:
    """Return what a check leaves that began at this processor time."""
    handles = len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0
    return Sample(time.process_time() - started, _size(), handles)


def _size() -> int:
    """Return the kilobytes that the process has now; the most that it had where the system does not tell."""
    told = Path("/proc/self/statm")
    if not told.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(told.read_text(encoding="ascii").split()[1]) * resource.getpagesize() // 1024

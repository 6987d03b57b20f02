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


class Growth(NamedTuple):
    """What a process has more at the end than after a tenth of its checks, and how much longer a check takes then."""

    kilobytes: int
    handles: int
    slower: float


def play_long_run(count: int) -> tuple[int, list[str]]:
    """Make so many checks, and return their number and what grew."""
    found = growth(count)
    problems = [f"the process grew by {found.kilobytes:,} kB"] if found.kilobytes > KILOBYTES else []
    problems += [f"{found.handles} handles are left open"] if found.handles > HANDLES else []
    problems += [f"a check takes {found.slower:.2f} times as long at the end"] if found.slower > SLOWER else []
    return count, problems


def growth(count: int) -> Growth:
    """Make so many checks."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    inputs = {"src": torch.randn(2, 5, 16)}
    seconds, warm = [], max(1, count // 10)
    size = handles = 0
    with TemporaryDirectory() as folder:
        for number in range(count):
            started = time.process_time()
            CHECKS[("trace", "golden", "overflow")[number % 3]](model, inputs, Path(folder))
            seconds.append(time.process_time() - started)
            if number == warm:
                size, handles = _size(), _handles()
    turns = [sum(seconds[start : start + 3]) for start in range(0, count - 2, 3)]  # of all three checks
    part = max(1, len(turns) // 10)
    slower = median(turns[-part:]) / median(turns[1 : 1 + part])
    return Growth(_size() - size, _handles() - handles, slower)


def _size() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir())) if Path("/proc/self/fd").exists() else 0

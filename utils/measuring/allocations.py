"""The memory that torch's own allocator hands out during a call, to the byte: the same on every run."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def peak(run: Callable[[], object]) -> int:
    """Return the most bytes of tensors alive at once during a call, beyond those alive before it.

    What is mapped from a file is not counted: it is not allocated, and the system takes it back when it needs to.
    """
    gc.collect()
    with _silenced(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run()
    assert profiler.profiler is not None  # noqa: S101 - it is there after the block
    results = profiler.profiler.kineto_results
    assert results is not None  # noqa: S101
    changes = sorted((event.start_ns(), event.nbytes()) for event in results.events() if event.name() == "[memory]")
    alive = most = 0
    for _, change in changes:
        alive += change
        most = max(most, alive)
    return most


@contextmanager
def _silenced() -> Iterator[None]:
    """Run a block without its standard error: the profiler of torch 2.13 writes there whatever it is told."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)

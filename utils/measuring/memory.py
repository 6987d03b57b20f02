"""Peak memory of each candidate in a process of its own, and the tensors that it keeps alive, in layers.

python -m measuring.memory THREADS NAME ...     (in utils/; what the benchmark itself starts)
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch

import pytest_tfdebug
from measuring import allocations
from measuring.figures import LAYERS, MEGABYTES, MISSING, Figure
from measuring.forwards import KINDS, places
from measuring.ours import STREAMING
from measuring.work import WORKS, Work
from pytest_tfdebug.parity.metrics import compare_leaf
from pytest_tfdebug.parity.tolerance import DEFAULTS
from pytest_tfdebug.records import TensorRecord

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measuring.figures import Settings
    from measuring.kinds import Kind

_STATUS, _RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_NAMES = (
    "bare forward",
    "trace",
    "golden, update",
    "golden, check",
    "overflow_guard",
    "hooks that clone",
    "transformers debugger, use_repr=True",
    "transformers debugger, use_repr=False",
    "transformers DebugUnderflowOverflow",
    "pytest-torch localize_divergence",
    "torchlens trace",
)
_KEEPING = ("trace", "hooks that clone")
#: What is compared to see what a failure costs: the logits of 256 tokens and 32,000 words, 33 MB.
LOGITS, FAILURE = "logits, 8 million", "compare tensors that differ"


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield peak resident memory and retained tensors, on the 8-layer Llama, and what one large failure takes."""
    yield from _retained(settings)
    if settings.wants(FAILURE):
        yield Figure("memory", LOGITS, FAILURE, _of_a_failure() / 1e6, MEGABYTES)
    if settings.names is None:
        yield from _resident(settings)


def _retained(settings: Settings) -> Iterator[Figure]:
    work = WORKS["llama"]("cpu")
    layer, bare = _bytes_of_a_layer(work), allocations.peak(work.forward)
    for kind in (*STREAMING, *map(_kind, _KEEPING)):
        if settings.wants(kind.name):
            with places() as place:
                most = allocations.peak(kind.make(work, place))
            note = f"{(most - bare) / 1e6:.1f} MB beyond the forward's {bare / 1e6:.1f}; a layer is {layer / 1e6:.1f}"
            yield Figure("memory", work.name, kind.name, (most - bare) / layer, LAYERS, note=note)


def _of_a_failure() -> int:
    """Return the bytes of tensors that it takes to measure two large tensors that differ."""
    generator = torch.Generator().manual_seed(0)
    expected, actual = (torch.randn(256, 32_000, generator=generator) for _ in range(2))
    mine, theirs = (TensorRecord("", tuple(side.shape), "float32", side) for side in (actual, expected))

    def compare() -> None:
        assert compare_leaf("output", mine, theirs, DEFAULTS["float32"]).problem == "values"  # noqa: S101

    return allocations.peak(compare)


def _bytes_of_a_layer(work: Work) -> int:
    """Return the bytes of the distinct tensors that go in and out of the calls of the second layer."""
    calls = [
        call
        for call in pytest_tfdebug.trace(work.model, **work.inputs)
        if f"{call.path}.".startswith("model.layers.1.")
    ]
    records = (record for call in calls for record in (*call.inputs, *(call.outputs or ())))
    return sum(tensor.nbytes for tensor in {id(r.tensor): r.tensor for r in records if r.tensor is not None}.values())


def _resident(settings: Settings) -> Iterator[Figure]:
    """Yield the growth of each process's resident memory while its candidate runs for the first time."""
    if not _RESET.exists():
        yield Figure("memory", "", "peak resident memory", None, "MB", note="needs Linux's /proc")
        return
    installed = [name for name in _NAMES if _kind(name).is_installed]
    command = [sys.executable, "-m", "measuring.memory", str(settings.threads), *installed]
    done = subprocess.run(command, cwd=Path(__file__).parents[1], stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    grown = json.loads(done.stdout)
    for name in _NAMES:
        work = "Llama, 8 layers"
        if name in grown:
            yield Figure("memory", work, f"{name}: peak resident", grown[name] / 1e6, "MB more than at rest")
        else:
            yield Figure("memory", work, f"{name}: peak resident", None, "MB", note=MISSING)


def _kind(name: str) -> Kind:
    return next(kind for kind in KINDS if kind.name == name)


def _in_a_child(run: Callable[[], int]) -> int:
    """Return what a call returns in a copy of this process, which has not used torch's threads yet."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, str(run()).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return int(told)


def _grown(name: str, threads: int) -> int:
    """Return the bytes by which the resident memory grows at most while a candidate runs.

    It runs on the tiny model first, so that what it imports and sets up is not counted.
    """
    torch.set_num_threads(threads)
    sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: PTH123, SIM115 - what peers print
    with places() as place:
        _kind(name).make(WORKS["tiny"]("cpu"), place)()
        candidate = _kind(name).make(WORKS["llama"]("cpu"), place)
        gc.collect()
        before = _status("VmRSS")
        _RESET.write_text("5", encoding="utf-8")  # the peak begins here
        kept = candidate()
        most = _status("VmHWM")
        del kept
    return most - before


def _status(name: str) -> int:
    lines = _STATUS.read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    print(json.dumps({name: _in_a_child(lambda name=name: _grown(name, int(sys.argv[1]))) for name in sys.argv[2:]}))  # type: ignore[misc]

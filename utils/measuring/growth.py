"""What candidates keep alive, and how their time and memory grow with the depth of a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

import pytest_tfdebug
from measuring import allocations
from measuring.figures import LAYERS, MEGABYTES, OF_BARE_PEAK, OVER_SMALLEST, Figure
from measuring.forwards import KINDS, of_work, places
from measuring.ours import PADDING, STREAMING
from measuring.work import WORKS, growing
from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS
from pytest_tfdebug.records import TensorRecord

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.figures import Settings
    from measuring.work import Kind, Work

DEPTHS = (2, 32)
TIMED = ("trace", "golden, update", "golden, check", "overflow_guard", "padding_invariant")
_KEEPING = ("trace", "hooks that clone")
#: What is compared to see what a failure costs: the logits of 256 tokens and 32,000 words, 33 MB.
LOGITS, FAILURE = "logits, 8 million", "compare tensors that differ"


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield time and peak memory for each depth, and how the ratios at both ends compare."""
    section = "growth, depth"
    timed = [kind for kind in (*KINDS, PADDING) if kind.name in TIMED and settings.wants(kind.name)]
    streaming = [kind for kind in STREAMING if settings.wants(kind.name)]
    held = {kind.name: kind for kind in (*timed, *streaming) if kind.name != "golden, check"}
    rounds = replace(settings, rounds=settings.rounds // 2 + 1)
    ratios: dict[str, list[float]] = {}
    for depth in DEPTHS:
        size = f"{depth} layers"
        work = growing(size, layers=depth, shape=(1, 128))
        bare = allocations.peak(work.forward)
        memory = (
            Figure(section, size, f"{name}: memory", _peak(kind, work) / bare, OF_BARE_PEAK)
            for name, kind in held.items()
        )
        for figure in (*of_work(section, work, timed, rounds), *memory):
            ratios.setdefault(figure.name, []).append(figure.value or 0.0)
            yield figure
    ends = f"{DEPTHS[-1]} layers over {DEPTHS[0]} layers"
    for name, values in ratios.items():
        yield Figure(section, ends, name, values[-1] / values[0], OVER_SMALLEST)


def _peak(kind: Kind, work: Work) -> int:
    with places() as place:
        return allocations.peak(kind.make(work, place))


def measure_memory(settings: Settings) -> Iterator[Figure]:
    """Yield what is alive at most beyond the forward, on the 8-layer Llama, and what one large failure takes."""
    work = WORKS["llama"]()
    layer, bare = _bytes_of_a_layer(work), allocations.peak(work.forward)
    for kind in (*STREAMING, *(kind for kind in KINDS if kind.name in _KEEPING)):
        if settings.wants(kind.name):
            yield Figure("memory", work.name, kind.name, (_peak(kind, work) - bare) / layer, LAYERS)
    if settings.wants(FAILURE):
        yield Figure("memory", LOGITS, FAILURE, _of_a_failure() / 1e6, MEGABYTES)


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
    trace = pytest_tfdebug.trace(work.model, **work.inputs)
    calls = [call for call in trace if f"{call.path}.".startswith("model.layers.1.")]
    records = (record for call in calls for record in (*call.inputs, *(call.outputs or ())))
    return sum(tensor.nbytes for tensor in {id(r.tensor): r.tensor for r in records if r.tensor is not None}.values())

"""Time and memory of whatever is done to a forward, each beside the bare one, and how its time grows with depth."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter

import pytest_tfdebug
from measuring.candidates import KINDS, LLAMA, WORKS, Kind, Run, Work, growing, heavy, traced
from measuring.figures import Figure, alternate, peak
from pytest_tfdebug.steps.run import TrainedModel, plain_run

#: Seconds of bare forwards before each pair: caches and clocks are then as they are in use.
_WARM = 0.02
#: A floor may be exceeded by this factor where it lies above the budget.
_ABOVE_FLOOR = 1.2
DEPTHS = (2, 32)


def measure(section: str, rounds: int) -> Iterator[Figure]:
    """Yield the figures of the candidates of a section, on every model."""
    for work in WORKS.values():
        yield from of_work(work(), [kind for kind in KINDS if kind.section == section], rounds)


def of_work(work: Work, kinds: Iterable[Kind], rounds: int) -> Iterator[Figure]:
    """Yield the figures of candidates on one model."""
    candidates, refusals = dict[str, Run](), dict[str, str]()
    with tempfile.TemporaryDirectory() as folder:
        for kind in kinds:
            try:
                made = kind.make(work, Path(folder))
                made()  # a peer that is not installed, or cannot do this model, raises here
                candidates[kind.name] = made
            except Exception as error:  # noqa: PERF203 - few, and slow
                if kind.is_ours:
                    raise
                is_missing = isinstance(error, ModuleNotFoundError)
                refusals[kind.name] = "not installed" if is_missing else f"raises {type(error).__name__}"

        def settle() -> None:
            gc.collect()
            began = perf_counter()
            while perf_counter() - began < _WARM:
                work.forward()

        found = alternate(work.forward, candidates, rounds, settle=settle)
    for kind in kinds:
        times, limit = found.get(kind.name), kind.limit if work.name == LLAMA else None
        if limit is not None and kind.floor in found:
            limit = max(limit, _ABOVE_FLOOR * found[kind.floor].ratio)
        ratio, note = (None, refusals[kind.name]) if times is None else (times.ratio, times.note)
        yield Figure(kind.section, work.name, kind.name, ratio, "x bare forward", limit, kind.reason, note)


def measure_padding(rounds: int) -> Iterator[Figure]:
    """Yield what a passing padding check costs beyond the forwards that it repeats, in bare forwards."""
    for make in WORKS.values():
        work, took, beside = make(), list[float](), list[float]()
        work.model.register_forward_pre_hook(lambda *_, took=took: took.append(-perf_counter()), prepend=True)
        work.model.register_forward_hook(lambda *_, took=took: took.append(took.pop() + perf_counter()))
        for _ in range(rounds + 1):
            work.forward()
            took.clear()
            start = perf_counter()
            pytest_tfdebug.assert_padding_invariant(work.model, work.inputs)
            beside.append((perf_counter() - start - sum(took)) / took[0])
            assert len(took) > 1  # it must have repeated something
        name, reason = "padding_invariant, beside its forwards", "records nothing unless it fails, reads outputs once"
        yield Figure("padding", work.name, name, median(beside[1:]), "bare forwards more", 0.3, reason)


def measure_step(rounds: int) -> Iterator[Figure]:
    """Yield what recording a train step costs beside a bare forward and backward."""
    work = WORKS["llama"]()
    batch = {**work.inputs, "labels": work.inputs["input_ids"]}

    def bare() -> None:
        work.model(**batch).loss.backward()
        work.model.zero_grad()

    recorded = {"train step, recorded": TrainedModel(work.model, plain_run, batch, "reference").made}
    reason = "each value is weighed once for what it gets, and once for each of several users"
    for name, times in alternate(bare, recorded, rounds).items():
        yield Figure("step", work.name, name, times.ratio, "x forward and backward", 4.0, reason, times.note)


def measure_growth(rounds: int) -> Iterator[Figure]:
    """Yield how the ratios of times at the least and the greatest depth compare."""
    kinds = [kind for kind in KINDS if kind.section == "growth"]
    ends = []
    for depth in DEPTHS:
        work = growing(f"{depth} layers", layers=depth, shape=(1, 128))
        ends.append({figure.name: figure.value or 0.0 for figure in of_work(work, kinds, rounds // 2 + 1)})
    of, unit = f"{DEPTHS[-1]} layers over {DEPTHS[0]}", "x the ratio at the smallest"
    for kind in kinds:
        grown = ends[1][kind.name] / ends[0][kind.name]
        yield Figure("growth", of, kind.name, grown, unit, kind.limit, kind.reason)


def measure_memory(_rounds: int) -> Iterator[Figure]:
    """Yield what is alive at most beyond the forward, in layers of the 8-layer Llama."""
    work = WORKS["llama"]()
    calls = [call for call in traced(work) if f"{call.path}.".startswith("model.layers.1.")]
    records = [record for call in calls for record in (*call.inputs, *(call.outputs or ()))]
    tensors = {id(record.tensor): record.tensor.nbytes for record in records if record.tensor is not None}
    layer, bare = sum(tensors.values()), peak(work.forward)  # what goes in and out of the calls of one layer
    for kind in (kind for kind in KINDS if kind.section == "memory"):
        with tempfile.TemporaryDirectory() as folder:
            layers = (peak(kind.make(work, Path(folder))) - bare) / layer
        yield Figure("memory", work.name, kind.name, layers, "layers of tensors", kind.limit, kind.reason)


def measure_weights(_rounds: int) -> Iterator[Figure]:
    """Yield what is alive at most beyond a model in half precision, in what its largest weight takes."""
    work = heavy()
    layer = max(weight.nbytes for weight in work.model.parameters())
    for kind in (kind for kind in KINDS if kind.section == "weights"):
        with tempfile.TemporaryDirectory() as folder:
            layers = peak(kind.make(work, Path(folder))) / layer
        yield Figure("weights", work.name, kind.name, layers, "of its largest weight", kind.limit, kind.reason)

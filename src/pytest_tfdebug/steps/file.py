"""A recorded train step <-> a golden: fingerprints of values and gradients, and projections of parameters' rows.

What is kept does not grow with the width of the model but for the rows of its parameters: ten numbers for each value
and each edge of the graph, and for each row a key and five numbers. Files are untrusted: nothing is unpickled, and
every number of elements is checked before it is used.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import torch

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.steps.gradients import WEIGHINGS, GradientSums
from pytest_tfdebug.steps.rows import PROJECTIONS, ParameterRows, RowCut
from pytest_tfdebug.steps.table import Backward, Graph
from pytest_tfdebug.steps.training import Batch, Holder, OptimizerStep, Training, TrainingEnd
from pytest_tfdebug.tracing.file.codec import ADVICE, DAMAGED, KEY, opened, problem_of, with_checksums
from pytest_tfdebug.tracing.file.document import FORMAT, packed, unpacked
from pytest_tfdebug.tracing.file.values_file import decode_values, encode_values
from pytest_tfdebug.tracing.record.replacing import replace_atomically

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Name of the tensor that is the document.
_DOCUMENT = "#step.document"
#: Flags of a value, a bit each: the first fields of a ``Graph``.
_FLAGS = ("has_graph", "is_leaf", "is_grad_on", "is_recomputed", "is_unheard")

#: How parameters are cut into rows: name, elements, and each way with its number of rows.
_Layout = list[tuple[str, int, list[tuple[str, int]]]]


class _BatchEntry(msgspec.Struct):
    loss: float | None
    is_fresh: bool


class _GroupEntry(msgspec.Struct, frozen=True):
    optimizer: str
    module: str
    settings: dict[str, Any]  # hyperparameters


class _StepEntry(msgspec.Struct):
    batches: list[_BatchEntry]
    factor: float | None
    groups: list[_GroupEntry]  # each once
    members: dict[str, int]  # parameter -> place of its group
    twice: list[str]
    stale: list[str]
    is_rescaled: bool


class _StepDocument(msgspec.Struct):
    last: int | None
    loss: float | None
    frozen: list[str]
    parameters: _Layout
    buffers: _Layout
    steps: list[_StepEntry]
    extra: dict[str, Any] = {}


def write_step(path: Path, made: Backward | Training, extra: dict[str, Any]) -> int:
    """Write a recorded step; return the bytes that it takes."""
    from safetensors.torch import save_file

    steps = made.steps if isinstance(made, Training) else []
    backward = made.backward if isinstance(made, Training) else made
    tensors = {**encode_values(backward.values), **_encode_graph(backward.graph)}
    tensors |= _encode_rows("gradient", backward.rows, with_keys=True)
    for number, step in enumerate(steps):
        tensors |= _encode_rows(f"{number}.given", step.given)
        tensors |= _encode_rows(f"{number}.buffers", step.buffers, with_keys=number == 0)
        for name, rows in (("moved", step.moved), ("outside", step.outside)):
            tensors |= {} if rows is None else _encode_rows(f"{number}.{name}", rows)
        for place, batch in enumerate(step.batches):
            tensors |= _encode_rows(f"{number}.batch.{place}", batch.added)
    end = made.end if isinstance(made, Training) else None
    if end is not None:
        tensors |= _encode_rows("end.outside", end.outside) | _encode_rows("end.flowed", end.flowed)
    document = _StepDocument(
        backward.last,
        _finite(backward.loss),
        list(backward.frozen),
        _layout(backward.rows),
        _layout(steps[0].buffers) if steps else [],
        [_entry(step) for step in steps],
        extra,
    )
    tensors[_DOCUMENT] = packed(document)
    told = {key: value for key, value in extra.items() if isinstance(value, str)}
    header = with_checksums({"format": FORMAT, "extra": told}, tensors)
    replace_atomically(path, lambda temporary: save_file(tensors, temporary, metadata={KEY: header}))
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())


def _finite(number: float) -> float | None:
    return number if np.isfinite(number) else None


def _entry(step: OptimizerStep) -> _StepEntry:
    groups: list[_GroupEntry] = []
    members = {}
    for name, settings in step.settings.items():
        holder = step.holder(name)
        group = _GroupEntry(holder.name, holder.module, msgspec.to_builtins(settings, enc_hook=repr))
        if group not in groups:
            groups.append(group)
        members[name] = groups.index(group)
    batches = [_BatchEntry(_finite(batch.loss), batch.is_fresh) for batch in step.batches]
    return _StepEntry(batches, step.factor, groups, members, list(step.twice), list(step.stale), step.is_rescaled)


def _layout(rows: ParameterRows) -> _Layout:
    return [
        (name, rows.elements[name], [(cut.name, len(cut.keys)) for cut in cuts]) for name, cuts in rows.ways.items()
    ]


def _encode_rows(name: str, rows: ParameterRows, *, with_keys: bool = False) -> dict[str, torch.Tensor]:
    cuts = [cut for each in rows.ways.values() for cut in each]
    if not cuts:
        return {}
    found = {f"rows.{name}": torch.from_numpy(np.concatenate([cut.numbers for cut in cuts])).to(torch.float32)}
    if with_keys:
        found[f"keys.{name}"] = torch.from_numpy(np.concatenate([cut.keys for cut in cuts]))
    return found


def _encode_graph(graph: list[Graph]) -> dict[str, torch.Tensor]:
    flags = [sum(getattr(each, flag) << place for place, flag in enumerate(_FLAGS)) for each in graph]
    edges = [(index, made) for index, each in enumerate(graph) for made in each.sent]
    sent = [each.sent[made] for each in graph for made in each.sent]
    return {
        "graph.flags": torch.tensor(flags, dtype=torch.uint8),
        "graph.totals": _sums([each.total for each in graph]),
        "graph.edges": torch.tensor(edges, dtype=torch.int32).reshape(-1, 2),
        "graph.sent": _sums(sent),
    }


def _sums(sums: list[GradientSums]) -> torch.Tensor:
    if not sums:
        return torch.zeros(0, 2, WEIGHINGS)
    return torch.from_numpy(np.stack([np.stack(each) for each in sums])).to(torch.float32)


def read_step(path: Path) -> tuple[Backward | Training, dict[str, Any]]:
    """Read a recorded step, and what the writer added.

    Raises:
        GoldenError: If the file is no recorded step, or damaged.
    """
    text, tensors = opened(path)
    if text is None or _DOCUMENT not in tensors:
        raise GoldenError(f"{path} is no recorded train step: record it with check_step and --tf-golden=update.")
    try:
        problem = problem_of(json.loads(text), tensors)
        if problem:
            raise GoldenError(f"{path} is damaged: {problem} not what was written (checksum).\n{ADVICE}")
        document = unpacked(tensors.pop(_DOCUMENT), _StepDocument)
        return _decode(document, tensors), document.extra
    except DAMAGED as error:
        raise GoldenError(f"{path} is damaged: {type(error).__name__}: {error}.\n{ADVICE}") from error


def _decode(document: _StepDocument, tensors: dict[str, torch.Tensor]) -> Backward | Training:
    values = decode_values(tensors)
    if values is None:
        raise ValueError("it has no table of values")
    graph = _decode_graph(tensors, len(values.values))
    keys = _array(tensors, "keys.gradient", torch.int64)
    rows = _decode_rows(document.parameters, keys, _array(tensors, "rows.gradient"))
    if document.last is not None and not 0 <= document.last < len(graph):
        raise ValueError("the loss is no value of the table")
    loss = float("nan") if document.loss is None else document.loss
    backward = Backward(values, graph, loss, document.last, rows, [], tuple(document.frozen))
    if not document.steps:
        return backward
    flow = _array(tensors, "keys.0.buffers", torch.int64) if document.buffers else np.zeros(0, dtype=np.int64)
    steps = []
    for number, entry in enumerate(document.steps):
        batches = [
            Batch(
                float("nan") if batch.loss is None else batch.loss,
                batch.is_fresh,
                _decode_rows(document.parameters, keys, _array(tensors, f"rows.{number}.batch.{place}")),
                (),
            )
            for place, batch in enumerate(entry.batches)
        ]
        buffers = _array(tensors, f"rows.{number}.buffers") if document.buffers else np.zeros((0, PROJECTIONS + 1))
        holders = [Holder(group.optimizer, group.module) for group in entry.groups]
        steps.append(
            OptimizerStep(
                batches,
                _decode_rows(document.parameters, keys, _array(tensors, f"rows.{number}.given")),
                entry.factor,
                {},
                {name: holders[place] for name, place in entry.members.items()},
                {name: dict(entry.groups[place].settings) for name, place in entry.members.items()},
                tuple(entry.twice),
                tuple(entry.stale),
                _decode_rows(document.buffers, flow, buffers),
                (),
                _told_rows(document.parameters, keys, tensors, f"rows.{number}.moved"),
                _told_rows(document.parameters, keys, tensors, f"rows.{number}.outside"),
                is_rescaled=entry.is_rescaled,
            )
        )
    if "rows.end.outside" not in tensors:
        return Training(backward, steps)
    outside = _decode_rows(document.parameters, keys, _array(tensors, "rows.end.outside"))
    flowed = _array(tensors, "rows.end.flowed") if document.buffers else np.zeros((0, PROJECTIONS + 1))
    return Training(backward, steps, TrainingEnd(outside, _decode_rows(document.buffers, flow, flowed)))


def _array(tensors: dict[str, torch.Tensor], name: str, dtype: torch.dtype = torch.float32) -> Any:  # noqa: ANN401 - an array
    tensor = tensors[name]
    if tensor.dtype != dtype:
        raise TypeError(f"{name} has another dtype")
    return (tensor.double() if dtype == torch.float32 else tensor).numpy()


def _decode_graph(tensors: dict[str, torch.Tensor], count: int) -> list[Graph]:
    flags, totals = _array(tensors, "graph.flags", torch.uint8), _array(tensors, "graph.totals")
    edges, sent = _array(tensors, "graph.edges", torch.int32), _array(tensors, "graph.sent")
    if flags.shape != (count,) or totals.shape != (count, 2, WEIGHINGS) or sent.shape != (len(edges), 2, WEIGHINGS):
        raise ValueError("there are not as many gradients as values")
    if edges.shape != (len(edges), 2) or (edges.size and not 0 <= edges.min() <= edges.max() < count):
        raise ValueError("an edge leads to a value that is not there")
    graph = []
    for held, total in zip(flags.tolist(), totals, strict=True):
        graph.append(Graph(total=GradientSums(*total)))
        for place, flag in enumerate(_FLAGS):
            setattr(graph[-1], flag, bool(held >> place & 1))
    for (index, made), sums in zip(edges.tolist(), sent, strict=True):
        graph[index].sent[made] = GradientSums(*sums)
    return graph


def _told_rows(layout: _Layout, keys: Any, tensors: dict[str, torch.Tensor], name: str) -> ParameterRows | None:  # noqa: ANN401 - arrays
    return _decode_rows(layout, keys, _array(tensors, name)) if name in tensors else None


def _decode_rows(layout: _Layout, keys: Any, numbers: Any) -> ParameterRows:  # noqa: ANN401 - arrays
    counts = [count for _, _, cuts in layout for _, count in cuts]
    if min(counts, default=0) < 0 or keys.shape != (sum(counts),) or numbers.shape != (sum(counts), PROJECTIONS + 1):
        raise ValueError("there are not as many rows as parameters have")
    found, pieces = ParameterRows(), _pieces(counts, keys, numbers)
    for name, elements, cuts in layout:
        found.elements[name] = elements
        found.ways[name] = [RowCut(way, *next(pieces)) for way, _ in cuts]
    return found


def _pieces(counts: list[int], keys: Any, numbers: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - arrays
    first = 0
    for count in counts:
        yield keys[first : first + count], numbers[first : first + count]
        first += count

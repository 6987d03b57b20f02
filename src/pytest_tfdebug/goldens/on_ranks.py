"""Goldens of models that run on several ranks: each rank holds a part, and the whole is written once.

Every rank must call these functions, and rank 0 alone writes what they return.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch

from pytest_tfdebug.errors import GoldenError, TFDebugError
from pytest_tfdebug.goldens.weights import hash_of
from pytest_tfdebug.parity.pair.rename import Rename, renamed_tensors
from pytest_tfdebug.tracing.record.ranks import STACKED, Group, held_here, present_group, within
from pytest_tfdebug.tracing.record.wrappers import named_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_tfdebug.records import Part, TensorRecord
    from pytest_tfdebug.tracing.trace import Trace

_Result = TypeVar("_Result")


class _HeldByRank(NamedTuple):
    tensor: torch.Tensor
    part: Part | None

    @property
    def is_whole(self) -> bool:
        """Whether they are all of it, as far as is known."""
        return self.part is None or (self.part.shape == tuple(self.tensor.shape) and not self.part.is_summand)


def sharing_group(root: str | None) -> Group | None:
    """Return the group of ranks if all hold parts of one model; None if each holds a module of its own."""
    group = present_group()
    return group if group is not None and len(set(group.exchange(root))) == 1 else None


def once(group: Group | None, write: Callable[[], _Result]) -> _Result:
    """Write something on rank 0 alone; return its result, or raise its error, on every rank."""
    if group is None:
        return write()
    made: Any = None
    if group.rank == 0:
        try:
            made = write()
        except TFDebugError as error:
            made = error
    told: Any = group.exchange(made)[0]
    if isinstance(told, TFDebugError):
        raise told
    result: _Result = told
    return result


def fingerprint_on_ranks(
    model: torch.nn.Module,
    group: Group,
    recorded: Mapping[str, str] | None = None,
    rename: Rename = None,
) -> dict[str, str]:
    """Return a hash of every whole parameter and buffer by name.

    A plain tensor that differs from rank to rank may be a part of a whole along any axis. The hash in the golden tells
    which; without one, a tensor that may be a part of several wholes is left out.
    """
    held = _held(model)
    told = group.exchange({name: (hash_of(each.tensor), each.is_whole) for name, each in held.items()})
    found: dict[str, str] = {}
    names = renamed_tensors(rename, sorted({name for rank in told for name in rank}))
    for name, there in names.items():
        wanted = (recorded or {}).get(there)
        own = {rank[name] for rank in told if name in rank}
        made, is_whole = next(iter(own))
        if len(own) == 1 and is_whole and wanted in (None, made):
            found[name] = made
            continue
        parts = [each for each in group.exchange(held.get(name)) if each is not None]
        known = [hash_of(whole) for whole in _candidates(parts)]
        if wanted in known:
            found[name] = wanted
        elif len(known) == 1 or wanted is not None:
            found[name] = known[0]
    return found


def _held(model: torch.nn.Module) -> dict[str, _HeldByRank]:
    found = {}
    for name, given in named_tensors(model):
        if not torch.nn.parameter.is_lazy(given):
            tensor, part = held_here(given.detach())
            if tensor is not None:
                found[name] = _HeldByRank(tensor, part)
    return found


def _candidates(parts: Sequence[_HeldByRank]) -> list[torch.Tensor]:
    """Return the wholes that the parts may belong to; only one where each part says where it lies."""
    if parts[0].part is not None:
        return [_assembled(parts)[0]]
    tensors = [each.tensor.cpu() for each in parts]
    wholes = []
    for axis in range(tensors[0].dim()):
        others = {tuple(size for place, size in enumerate(each.shape) if place != axis) for each in tensors}
        if len(others) == 1:
            wholes.append(torch.cat(tensors, axis))
    return wholes or tensors[:1]


def sharded_too_often(model: torch.nn.Module, group: Group, name: str, shape: tuple[int, ...]) -> str:
    """Say that a parameter was sharded again after it had been, as tied weights are under their second name."""
    held = _held(model)[name]
    if held.part is not None or held.tensor.numel() * group.world_size >= prod(shape):
        return ""
    return (
        f"{group.world_size} ranks hold {tuple(held.tensor.shape)} each of {shape}, which does not add up: it was "
        "sharded more than once."
    )


def gathered(trace: Trace, group: Group) -> Trace:
    """Return a trace with the whole tensors of all ranks."""
    records = list(trace.records())
    outlines = group.exchange([(call.name, len(call.inputs), len(call.outputs or ())) for call in trace.calls])
    if any(outline != outlines[0] for outline in outlines):
        names = [[name for name, *_ in outline] for outline in outlines]
        raise GoldenError(
            "The ranks made different calls, but a golden holds one forward: "
            + "; ".join(f"rank {rank} made {len(each)}" for rank, each in enumerate(names))
            + ".\nRecord the model on one process, or give reference=."
        )
    tensors = {id(record.tensor): record.tensor for record in records if record.tensor is not None}
    hashes = {key: hash_of(tensor) for key, tensor in tensors.items()}
    told = group.exchange([(hashes.get(id(record.tensor), ""), record.part) for record in records])
    known: dict[tuple[tuple[str, Part | None], ...], tuple[torch.Tensor, str]] = {}
    wholes: list[TensorRecord] = []
    for record, key in zip(records, zip(*told, strict=True), strict=True):
        if record.tensor is None or (len(set(key)) == 1 and _HeldByRank(record.tensor, record.part).is_whole):
            wholes.append(replace(record, part=None))
            continue
        if key not in known:
            known[key] = _assembled(group.exchange(_HeldByRank(record.tensor, record.part)))
        tensor, placement = known[key]
        wholes.append(replace(record, tensor=tensor, shape=tuple(tensor.shape), part=None, placement=placement))
    found = iter(wholes)
    calls = [call.with_records(lambda _record, _role: next(found)) for call in trace.calls]
    return replace(trace, calls=calls, again=None)


def _assembled(parts: Sequence[_HeldByRank]) -> tuple[torch.Tensor, str]:
    """Return a whole tensor, and how it lay on the ranks."""
    tensors, first = [each.tensor.cpu() for each in parts], parts[0].part
    if first is not None and first.is_summand:
        return torch.stack(tensors).sum(0), "Partial"
    if first is not None:
        whole = tensors[0].new_zeros(first.shape)
        for each, tensor in zip(parts, tensors, strict=True):
            if each.part is not None:
                within(whole, each.part, tensor.shape).copy_(tensor)
        axes = [axis for axis, size in enumerate(first.shape) if size != tensors[0].shape[axis]]
        return whole, ", ".join(f"Shard({axis})" for axis in axes)
    shapes = [tuple(tensor.shape) for tensor in tensors]
    other = [axis for axis, sizes in enumerate(zip(*shapes, strict=True)) if len(set(sizes)) > 1]
    if len(other) == 1:
        return torch.cat(tensors, other[0]), f"Shard({other[0]})"
    if other:
        raise GoldenError(f"The ranks hold tensors of shapes {shapes}, which do not fit together.")
    return torch.stack(tensors), STACKED

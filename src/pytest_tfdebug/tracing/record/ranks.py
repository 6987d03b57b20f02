"""The ranks of a model that runs on several processes, and where what each of them holds lies in the whole."""

from __future__ import annotations

import io
import pickle
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.records import Part, TensorRecord
from pytest_tfdebug.tensors import readable, tensor_record

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pytest_tfdebug.tensors import Leaf

#: Placement of a tensor whose parts on the ranks are stacked along axis 0: nobody knows the axis that they share.
STACKED = "ranks"
_DISTRIBUTED = torch.distributed.is_available()


class Group(NamedTuple):
    """The processes of this forward."""

    rank: int  # number of this one
    world_size: int  # how many

    def exchange(self, value: Any, shared: Mapping[Any, object] = MappingProxyType({})) -> list[Any]:  # noqa: ANN401 - whatever can be pickled
        """Return what each rank gives, in their order; every rank must ask. Of what is shared only the name is sent."""
        packed = io.BytesIO()
        pickler = _Pickler(packed)
        pickler.names = {id(each): name for name, each in shared.items()}
        pickler.dump(value)
        found: list[Any] = [None] * self.world_size
        group = _own_group(torch.distributed.group.WORLD)
        torch.distributed.all_gather_object(found, packed.getvalue(), group=group)
        for rank, told in enumerate(found):
            unpickler = _Unpickler(io.BytesIO(told))
            unpickler.shared = shared
            found[rank] = value if rank == self.rank else unpickler.load()
        return found


class _Pickler(pickle.Pickler):
    """Pickles a value, and of what every rank has only the name."""

    names: dict[int, Any]

    def persistent_id(self, value: Any) -> Any:  # noqa: ANN401 - as of ``pickle``
        return self.names.get(id(value))


class _Unpickler(pickle.Unpickler):
    """Reads what a rank of this very run has pickled."""

    shared: Mapping[Any, object]

    def persistent_load(self, pid: Any) -> object:  # noqa: ANN401 - as of ``pickle``
        return self.shared[pid]


def present_group() -> Group | None:
    """Return the ranks that this process is one of; None where it is alone."""
    if not _DISTRIBUTED or not torch.distributed.is_initialized():
        return None
    count = torch.distributed.get_world_size()
    return Group(torch.distributed.get_rank(), count) if count > 1 else None


@lru_cache(maxsize=1)
def _own_group(_world: object) -> Any:  # noqa: ANN401 - a process group
    """Return a group of all ranks that no collective of the model can get mixed up with."""
    return torch.distributed.new_group(backend="gloo")


def held_here(
    tensor: torch.Tensor, read: Callable[[torch.Tensor], torch.Tensor | None] = readable
) -> tuple[torch.Tensor | None, Part | None]:
    """Return what this rank holds of a tensor, to be read, and where that lies in the whole."""
    if not hasattr(tensor, "full_tensor") or not hasattr(tensor, "device_mesh"):
        return read(tensor), None
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    with torch.no_grad():
        local = _as_it_came(tensor.to_local())  # type: ignore[attr-defined] # a DTensor
    mesh, placements = tensor.device_mesh, tensor.placements  # type: ignore[attr-defined] # likewise
    _, start = compute_local_shape_and_global_offset(tensor.shape, mesh, placements)
    is_summand = any(placement.is_partial() for placement in placements)
    return read(local), Part(tuple(tensor.shape), tuple(start), is_summand)


def _as_it_came(local: torch.Tensor) -> torch.Tensor:
    """Return what a DTensor was made from, one object for all DTensors of it: each of these holds a view."""
    came = local._base  # noqa: SLF001 - there is no other way to it
    is_same = came is not None and came.shape == local.shape and came.stride() == local.stride()
    return came if came is not None and is_same and came.dtype == local.dtype else local


def record_here(leaf: Leaf, read: Callable[[torch.Tensor], torch.Tensor | None] = readable) -> TensorRecord:
    """Return the record of what this rank holds of a leaf; see :func:`held_here`."""
    held, part = held_here(leaf.tensor, read)
    return replace(tensor_record(leaf, held), part=part)


def part_by_shape(shape: Sequence[int], whole: Sequence[int], group: Group) -> Part | None:
    """Return where a tensor lies in a whole that is larger along exactly one axis, by the number of ranks.

    Examples:
        >>> part_by_shape((2, 4), (2, 8), Group(rank=1, world_size=2))
        Part(shape=(2, 8), start=(0, 4), is_summand=False)
    """
    if len(shape) != len(whole):
        return None
    other = [axis for axis, (own, full) in enumerate(zip(shape, whole, strict=True)) if own != full]
    if len(other) != 1 or shape[other[0]] * group.world_size != whole[other[0]]:
        return None
    start = tuple(group.rank * size if axis == other[0] else 0 for axis, size in enumerate(shape))
    return Part(tuple(whole), start)


def within(whole: torch.Tensor, part: Part, shape: Sequence[int]) -> torch.Tensor:
    """Return the part of a whole tensor that begins at a place and has a shape."""
    return whole[tuple(slice(first, first + size) for first, size in zip(part.start, shape, strict=True))]

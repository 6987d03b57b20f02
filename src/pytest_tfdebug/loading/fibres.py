"""Which tensors of a checkpoint a tensor is put together from: by its fibres, the vectors along one of its axes.

A fibre is looked up by a hash of sixteen of its elements, exact and the same whatever the layout, in a table of all
fibres of that length, and then compared in full.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.loading.numbers import is_constant, same_bits, spans

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pytest_tfdebug.loading.checkpoint import Checkpoint
    from pytest_tfdebug.loading.held import HeldTensor

_SAMPLES = 16
#: Share of the fibres that must be found before a tensor counts as put together from them.
_LEAST = 0.2
#: Elements of the shortest vector that is looked for inside another.
_SHORTEST = 4
_BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Pieces(NamedTuple):
    """What a tensor is put together from."""

    sources: tuple[str, ...]  # names of tensors of the checkpoint, in the order in which they lie
    share: float  # of it that was found
    missing: str = ""  # which of its rows were not found
    is_part: bool = False  # it is a part of a larger one


@dataclass(frozen=True)
class _FibreTable:
    hashes: torch.Tensor  # of all fibres, sorted
    which: torch.Tensor  # tensor that each belongs to, as an index of ``parts``
    where: torch.Tensor  # its place there
    parts: tuple[tuple[str, int], ...]  # name, and axis along which the fibres lie


class Fibres:
    """The fibres of tensors of a checkpoint.

    Args:
        checkpoint: Where they are read from.
        shapes: Shape of each tensor that may be a source.
    """

    def __init__(self, checkpoint: Checkpoint, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._checkpoint = checkpoint
        self._shapes = shapes
        self._tables: dict[tuple[int, torch.dtype], _FibreTable] = {}

    def pieces_of(self, held: HeldTensor) -> Pieces | None:
        """Return what a tensor is put together from; None where too little of it is found."""
        tensor = held.tensor
        if is_constant(tensor):
            return None
        if tensor.ndim == 1:
            return self._of_vector(held)
        found: Pieces | None = None
        for axis in sorted(range(tensor.ndim), key=lambda each: (each != tensor.ndim - 1, each)):
            if tensor.shape[axis] > 1 and (found is None or found.share < 1):
                pieces = self._along(held, axis)
                found = pieces if found is None or pieces.share > found.share else found
        return found if found is not None and found.share > _LEAST else None

    def _along(self, held: HeldTensor, axis: int) -> Pieces:
        table = self._table(held, held.tensor.shape[axis])
        if not len(table.hashes):
            return Pieces((), 0.0)
        mine = _fibres(held.tensor, axis)
        hashes = _hashes(held.tensor, axis)
        at = torch.searchsorted(table.hashes, hashes).clamp(max=len(table.hashes) - 1)
        source = torch.where(table.hashes[at] == hashes, table.which[at], -1)
        for index in sorted(set(source.tolist())):
            if index >= 0:
                name, along = table.parts[index]
                rows = (source == index).nonzero().flatten()
                theirs = _fibres(held.cast(self._checkpoint.tensor(name)), along)
                source[rows[_differing(mine, rows, theirs, table.where[at[rows]])]] = -1
        found = source >= 0
        names = [table.parts[index][0] for index in source.tolist() if index >= 0]
        sources = tuple(dict.fromkeys(names))
        share = float(found.double().mean())
        missing = spans((~found).nonzero().flatten().tolist(), "row") if share < 1 else ""
        is_part = len(sources) == 1 and torch.Size(self._shapes[sources[0]]).numel() > held.tensor.numel()
        return Pieces(sources, share, missing, is_part)

    def _table(self, held: HeldTensor, length: int) -> _FibreTable:
        key = (length, held.tensor.dtype)
        if key not in self._tables:
            parts, hashes = [], []
            for name, shape in self._shapes.items():
                axes = [axis for axis, size in enumerate(shape) if size == length]
                if axes:
                    tensor = held.cast(self._checkpoint.tensor(name))
                    parts += [(name, axis) for axis in axes]
                    hashes += [_hashes(tensor, axis) for axis in axes]
            self._tables[key] = _sorted_table(parts, hashes)
        return self._tables[key]

    def _of_vector(self, held: HeldTensor) -> Pieces | None:
        """Return the vectors that a vector is joined from, or the one that it is cut from."""
        tensor, at, sources, missing = held.tensor, 0, [], 0
        vectors = {name: held.cast(self._checkpoint.tensor(name)).reshape(-1) for name in self._shapes}
        tells = {name: vector for name, vector in vectors.items() if vector.numel() and not is_constant(vector)}
        short = [name for name in tells if tells[name].numel() <= tensor.numel()]
        starts: dict[float, list[str]] = {}
        for name in short:
            starts.setdefault(float(tells[name][0]), []).append(name)
        while at < tensor.numel():
            fits = (name for name in starts.get(float(tensor[at]), ()) if _lies(tells[name], tensor, at))
            piece = next(fits, None)
            if piece is not None:
                sources.append(piece)
            else:
                missing += bool(tensor[at])  # zeros stand for a bias that one of the joined layers has not
            at += tells[piece].numel() if piece is not None else 1
        if sources and missing < (1 - _LEAST) * tensor.numel():
            told = f"{missing} of {tensor.numel()} numbers" if missing else ""
            return Pieces(tuple(sources), 1 - missing / tensor.numel(), told)
        longer = (name for name in tells if tells[name].numel() > tensor.numel() >= _SHORTEST)
        whole = next((name for name in longer if _is_cut_from(tensor, tells[name])), None)
        return None if whole is None else Pieces((whole,), 1.0, is_part=True)


def _sorted_table(parts: Sequence[tuple[str, int]], hashes: Sequence[torch.Tensor]) -> _FibreTable:
    if not hashes:
        nothing = torch.zeros(0, dtype=torch.int64)
        return _FibreTable(nothing, nothing, nothing, ())
    which = torch.cat([torch.full_like(each, index) for index, each in enumerate(hashes)])
    where = torch.cat([torch.arange(len(each), device=each.device) for each in hashes])
    ordered, order = torch.sort(torch.cat(list(hashes)), stable=True)
    return _FibreTable(ordered, which[order], where[order], tuple(parts))


def _fibres(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    return tensor.movedim(axis, -1).flatten(0, -2) if tensor.ndim > 1 else tensor[None]


def _hashes(tensor: torch.Tensor, axis: int) -> torch.Tensor:
    """Return a number for each fibre along an axis: an exact sum of its bits times odd weights."""
    size = tensor.shape[axis]
    picked = torch.linspace(0, size - 1, min(size, _SAMPLES), device=tensor.device).long()
    weights = torch.randint(1, 2**62, (len(picked),), generator=torch.Generator().manual_seed(size)) | 1
    some = tensor.index_select(axis, picked)
    some = _fibres(torch.view_as_real(some).flatten(-2) if some.is_complex() else some, axis).contiguous()
    bits = (some + 0.0 if some.is_floating_point() else some).view(_BITS[some.element_size()])  # -0.0 is 0.0
    hashed: torch.Tensor = (bits.long() * weights.to(tensor.device)[: bits.shape[-1]]).sum(1)
    return hashed


def _differing(mine: torch.Tensor, rows: torch.Tensor, theirs: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Tell for each pair of fibres whether they differ; runs of neighbours are compared without a copy."""
    count = len(rows)
    first, start = int(rows[0]), int(at[0])
    is_run = int(rows[-1]) - first == count - 1 and torch.equal(
        at, torch.arange(start, start + count, device=at.device)
    )
    if is_run and same_bits(mine[first : first + count], theirs[start : start + count]):
        return torch.zeros(count, dtype=torch.bool, device=rows.device)
    return (mine[rows] != theirs[at]).any(1)


def _lies(piece: torch.Tensor, tensor: torch.Tensor, at: int) -> bool:
    return at + piece.numel() <= tensor.numel() and torch.equal(tensor[at : at + piece.numel()], piece)


def _is_cut_from(tensor: torch.Tensor, whole: torch.Tensor) -> bool:
    starts: Iterable[int] = (whole[: whole.numel() - tensor.numel() + 1] == tensor[0]).nonzero().flatten().tolist()
    lies: Callable[[int], bool] = lambda start: torch.equal(whole[start : start + tensor.numel()], tensor)  # noqa: E731
    return any(map(lies, starts))

"""What a golden keeps of each tensor, and the tensors of a trace <-> those of a file.

Of a golden the inputs are kept whole, of the rest a fixed number of elements and the sums of all. A tensor is reduced
as it is seen, so a recording holds no more of a deep model than its file will. What the root is given is kept whole,
unless the forward made it (a cache that goes on to the next step), and so is what it returns, as far as that is small.

In the file whole tensors stand under names of their own, digests in one row for each dtype.

A tensor is ``[shape, dtype, where]`` in the document. ``where`` is None where nothing is kept, the name of a tensor of
the file, or, for a digest, a dict of places in the rows. It is read from files that anyone may have written: every
place is checked.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
import torch

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.records import Call, Digest, Direction, Statistics, TensorRecord, inputs_of, skeleton_ends
from pytest_tfdebug.tensors import dtype_name, storage_bytes, storage_id, tensor_record
from pytest_tfdebug.tracing.record.ranks import STACKED
from pytest_tfdebug.tracing.record.state import SeenTensors, captured, storages_of
from pytest_tfdebug.tracing.values.digest import BUCKETS, EXACT_BUCKETS, digest_of, statistics, top_places

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_tfdebug.data.trace import RecordedForward
    from pytest_tfdebug.tensors import Leaf

_Forward = TypeVar("_Forward", bound="RecordedForward")
#: Begins the names of what is no single tensor of a call.
ROW = "#row."
#: Dtypes that safetensors does not take, or not in every version, and that of the pairs that are stored for them.
COMPLEX = {"complex32": torch.float16, "complex64": torch.float32, "complex128": torch.float64}
#: A stacked tensor has an axis for the ranks and one that they share.
_STACKED_AXES = 2
#: Numbers of a tensor's statistics and norm.
_NUMBERS = 6


class DigestEntry(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """Where a digest's numbers stand in the rows: their dtype where it is not the tensor's, first place, and number."""

    kept: tuple[int, int]
    sums: tuple[str, int, int]
    numbers: int
    tops: tuple[int, int, int] = (0, 0, 0)


TensorEntry = tuple[tuple[int, ...], str, str | DigestEntry | None]


class TensorWriter:
    """Collects the distinct tensors of a trace."""

    def __init__(self) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self.entries: list[TensorEntry] = []
        self.floors: list[float | None] = []
        self.placements: dict[str, str] = {}
        self._places: dict[object, int] = {}
        self._owners: dict[int, str] = {}
        self._rows: dict[str, list[torch.Tensor]] = {}
        self._lengths: dict[str, int] = {}

    def place(self, record: TensorRecord, name: str) -> int:
        """Return which entry shows the tensor of a record, a new one under this name if none does."""
        held = record.held
        key = id(held) if held is not None else (record.shape, record.dtype)
        if key not in self._places:
            self._places[key] = len(self.entries)
            if record.placement:
                self.placements[str(len(self.entries))] = record.placement
            self.entries.append((record.shape, record.dtype, self._where(record, name)))
            self.floors.append(record.floor)
        return self._places[key]

    def finish(self) -> dict[str, torch.Tensor]:
        """Return the tensors of the file."""
        rows = {f"{ROW}{dtype}": torch.cat(parts) for dtype, parts in self._rows.items()}
        return self.tensors | rows

    def _where(self, record: TensorRecord, name: str) -> str | DigestEntry | None:
        digest = record.digest
        if digest is None:
            if record.tensor is None:
                return None
            self.tensors[name] = _storable(record.tensor, self._owners, name)
            return name
        statistics = record.statistics or Statistics(math.nan, math.nan, math.nan, math.nan, 0)
        where = DigestEntry(
            (self._put(digest.elements), len(digest.elements)),
            (dtype_name(digest.sums.dtype), self._put(digest.sums), len(digest.sums)),
            self._put(torch.tensor([*statistics, digest.norm], dtype=torch.float64)),
        )
        if len(digest.tops):
            where.tops = self._put(digest.tops), self._put(digest.top_places), len(digest.tops)
        return where

    def _put(self, tensor: torch.Tensor) -> int:
        dtype = dtype_name(tensor.dtype)
        start = self._lengths.get(dtype, 0)
        self._rows.setdefault(dtype, []).append(tensor.detach().reshape(-1).cpu())
        self._lengths[dtype] = start + tensor.numel()
        return start


class TensorReader:
    """Reads the tensors of a document."""

    def __init__(
        self,
        entries: Iterable[TensorEntry],
        tensors: dict[str, torch.Tensor],
        floors: Sequence[float | None],
        placements: dict[str, str],
    ) -> None:
        self._tensors, self._placements = tensors, placements
        self._read = [self._entry(*entry) for entry in entries]
        for record, floor in zip(self._read, floors or [None] * len(self._read), strict=True):
            if floor is not None and not 0 <= floor < math.inf:
                raise ValueError(f"{floor!r} is no floor")
            record.floor = floor

    def record(self, leaf: str, place: int) -> TensorRecord:
        """Return the record of a leaf that shows one of the tensors."""
        if not 0 <= place < len(self._read):
            raise GoldenError(f"the document names tensor {place} of {len(self._read)}.")
        read = self._read[place]
        placement = self._placements.get(str(place), "")
        if placement == STACKED and len(read.shape) < _STACKED_AXES:
            raise GoldenError(f"tensor {place} is said to be stacked and has no axis for that.")
        return replace(read, leaf=leaf, placement=placement)

    def _entry(self, shape: tuple[int, ...], dtype: str, where: str | DigestEntry | None) -> TensorRecord:
        record = TensorRecord("", shape, dtype, None)
        if isinstance(where, str):
            record.tensor = self._named(where, record)
        elif where is not None:
            record.digest, record.statistics = self._digest(record, where)
        return record

    def _named(self, name: str, record: TensorRecord) -> torch.Tensor:
        if name not in self._tensors:
            raise GoldenError(f"the metadata names a tensor {name!r} that the file does not hold.")
        tensor = self._tensors[name]
        if record.dtype in COMPLEX and tensor.dtype == COMPLEX[record.dtype] and tensor.shape[-1:] == (2,):
            tensor = torch.view_as_complex(tensor)
        said, held = f"{record.dtype}{list(record.shape)}", f"{dtype_name(tensor.dtype)}{list(tensor.shape)}"
        if said != held:
            raise GoldenError(f"the metadata says {said} for {name!r} and the file holds {held}.")
        return tensor

    def _digest(self, record: TensorRecord, where: DigestEntry) -> tuple[Digest, Statistics]:
        kind = COMPLEX.get(record.dtype, getattr(torch, record.dtype, None))
        if not isinstance(kind, torch.dtype):
            raise TypeError(f"{record.dtype!r} is no dtype")
        dtype, (_, count) = dtype_name(kind), where.kept
        sums = (("float32", BUCKETS), ("float64", BUCKETS)) if kind.is_floating_point else (("int64", EXACT_BUCKETS),)
        *numbers, non_finite, norm = self._part("float64", where.numbers, _NUMBERS).tolist()
        tops, places, rows = where.tops
        total = math.prod(record.shape) * (2 if record.dtype in COMPLEX else 1)
        top_places = self._part("int64", places, rows) if rows else torch.empty(0, dtype=torch.int64)
        if (
            total <= 0
            or count <= 0
            or (rows and not 0 <= int(top_places.min()) <= int(top_places.max()) < total)
            or (where.sums[0], where.sums[2]) not in sums
            or not (math.isfinite(norm) and norm >= 0 and math.isfinite(non_finite))
        ):
            raise ValueError(f"the digest of a tensor of shape {list(record.shape)} is not of its form")
        elements = self._part(dtype, *where.kept)
        if count > total:
            raise ValueError(f"a digest keeps {count} of {total} elements")
        digest = Digest(elements, self._part(*where.sums), norm, self._part(dtype, tops, rows), top_places)
        return digest, Statistics._make([*numbers, int(non_finite)])

    def _part(self, dtype: str, first: int, count: int) -> torch.Tensor:
        row = self._tensors.get(f"{ROW}{dtype}", torch.empty(0, dtype=getattr(torch, dtype)))
        if row.dim() != 1 or dtype_name(row.dtype) != dtype or not 0 <= first <= first + count <= len(row):
            raise GoldenError(f"the document names {count} elements from {first} of a row of {list(row.shape)}.")
        return row[first : first + count]


def _storable(tensor: torch.Tensor, owners: dict[int, str], name: str) -> torch.Tensor:
    """Return the tensor as safetensors takes it: on its own, contiguous storage; complex numbers as pairs."""
    dense = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor.resolve_neg()
    whole = dense.is_contiguous() and dense.numel() * dense.element_size() == storage_bytes(dense)
    if whole and owners.setdefault(storage_id(dense), name) == name:
        return dense
    return dense.contiguous().clone()


#: Elements that are kept of a tensor inside the model: a golden of an 8-layer Llama takes a third of a megabyte.
KEPT = 256
#: Elements that are kept of all that the root returns; what has no room any more is sampled.
OF_OUTPUTS = 2**16
#: Largest elements that are kept of a row of an output that is sampled: of logits, the likeliest tokens.
_TOPS = 8


class Samples:
    """Reduces the tensors of a forward as calls show them."""

    def __init__(self, owned: Iterable[torch.Tensor] = ()) -> None:
        self._owned = storages_of(owned)
        self._seen: SeenTensors[TensorRecord] = SeenTensors()
        self._left = OF_OUTPUTS

    def take(self, call: Call, leaf: Leaf, role: str) -> TensorRecord:
        """Return the record of a leaf."""
        seen = self._seen.of(leaf.tensor)
        is_result = call.parent is None and role == "output"
        if seen is not None and not (is_result and seen.digest is not None):
            return replace(seen, leaf=leaf.path)
        kept, shares = captured(leaf.tensor, self._owned)
        record = tensor_record(leaf, kept)
        if kept is None:
            return record
        record = self.reduced(record, is_input=call.parent is None and role == "input", is_result=is_result)
        return self._seen.note(leaf.tensor, record, shares=shares)

    def reduced(self, record: TensorRecord, *, is_input: bool, is_result: bool) -> TensorRecord:
        """Return the record of a tensor with what is kept of it."""
        tensor, count = record.tensor, math.prod(record.shape)
        if tensor is None or is_input or count <= KEPT:
            return replace(record, tensor=None if tensor is None else _alone(tensor))
        tops = (0, 0)
        kept = KEPT
        if is_result:
            if count <= self._left:
                self._left -= count
                return replace(record, tensor=_alone(tensor))
            kept = max(KEPT, self._left // 2)
            self._left = max(0, self._left - kept)
            tops = (min(count // record.shape[-1], max(1, kept // _TOPS**2)), _TOPS) if record.shape else tops
        digest = digest_of(tensor, kept, at=top_places(tensor, *tops))
        return replace(record, tensor=None, digest=digest, statistics=record.statistics or statistics(tensor))


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that does not keep all of what it is a view of."""
    is_part = storage_bytes(tensor) > 2 * tensor.numel() * tensor.element_size()
    return tensor.clone() if is_part else tensor


def sampled(trace: _Forward) -> _Forward:
    """Return a trace that holds all elements with what a golden keeps of each tensor."""
    samples = Samples()
    inner, results = dict[int, TensorRecord](), dict[int, TensorRecord]()

    def reduced(call: Call, record: TensorRecord, role: Direction) -> TensorRecord:
        key, is_root = id(record.held), call.parent is None
        if record.tensor is None:
            return record
        if key not in inner:
            inner[key] = samples.reduced(record, is_input=is_root and role == "input", is_result=False)
        kept = inner[key]
        if is_root and role == "output" and kept.digest is not None:
            if key not in results:
                results[key] = samples.reduced(record, is_input=False, is_result=True)
            kept = results[key]
        return replace(record, tensor=kept.tensor, digest=kept.digest, statistics=kept.statistics)

    wide = None if trace.wide is None else sampled(trace.wide)
    return replace(trace, calls=[call.with_records(partial(reduced, call)) for call in trace.calls], wide=wide)


_QUOTES = ("'", '"')


def string_inputs(trace: RecordedForward) -> list[str]:
    """Return the names of a model's inputs that hold texts."""
    given = (pair for call in trace.calls if call.parent is None for pair in inputs_of(call))
    texts = (name for name, bare in given if any(str(end).startswith(_QUOTES) for _, end in skeleton_ends(bare)))
    return list(dict.fromkeys(texts))

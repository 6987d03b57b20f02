"""The JSON document of a trace file: the call tree, with tensors by their place in a table.

It is read from files that anyone may have written: nothing is used that is not of the form below, and what is read
takes some seconds, and less than 1 GB of memory.
``docs/golden-format.md`` is its specification.
"""

from __future__ import annotations

import json
import os
import sys
import zlib
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar

import msgspec
import torch
from msgspec import UNSET, UnsetType, field

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.records import Call, Site, SourceRange, TensorRecord, Write, skeleton_ends
from pytest_tfdebug.tracing.file.stored_tensors import TensorEntry, TensorReader, TensorWriter

if TYPE_CHECKING:
    from pytest_tfdebug.data.trace import RecordedForward

#: Version of the document; a reader refuses another one.
FORMAT = 2
#: Bytes of a JSON document: as text they take up to four times as many.
LONGEST_DOCUMENT = 50_000_000
#: Marks before its values, each of which takes about 100 bytes; a forward of 100,000 operators has 3,000,000.
MOST_MARKS = 4_000_000
#: Bytes of the header of a safetensors file, which has about 60 for each tensor.
LONGEST_HEADER = 8_000_000
#: Calls that a file may hold: more take longer to read than anyone waits for a golden.
MOST_CALLS = 20_000

_Kind = TypeVar("_Kind")
_Forward = TypeVar("_Forward", bound="RecordedForward")
#: A leaf path, and the place of its tensor in the table.
_Leaf = tuple[str, int]
_Lines = tuple[str, int, int]


class _Skeleton(TypedDict, total=False):
    args: list[Any]
    kwargs: dict[str, Any]
    outputs: Any


class CallEntry(msgspec.Struct, omit_defaults=True):
    """A call as the document holds it; the fields are those of :class:`~pytest_tfdebug.records.Call`."""

    path: str
    class_name: str = field(name="class")
    index: int
    call: int
    parent: int | None
    site: Site | None
    inner_site: Site | None
    source: _Lines | None
    parameters: tuple[str, ...]
    has_children: bool
    skeleton: _Skeleton
    error: str | None
    inputs: list[_Leaf]
    outputs: list[_Leaf] | None
    writes: list[tuple[int | None, _Leaf]] = []  # most models have no cache
    training: bool = False


class Document(msgspec.Struct, kw_only=True):
    """What a file says beside its tensors; see docs/golden-format.md."""

    model_class: str
    notes: tuple[str, ...]
    aliases: dict[str, tuple[str, ...]]
    modules: tuple[str, ...]
    unrecorded: tuple[str, ...] = ()
    calls: list[CallEntry]
    tensors: list[TensorEntry]
    floors: list[float | None] | UnsetType = UNSET
    placements: dict[str, str] | UnsetType = UNSET
    extra: dict[str, Any]


class TooLargeError(ValueError):
    """A part of a file is larger than is read."""


def packed(document: object) -> torch.Tensor:
    """Return a document as compressed JSON, uint8."""
    text = json.dumps(msgspec.to_builtins(document), separators=(",", ":")).encode()
    _check_document(text)
    return torch.frombuffer(bytearray(zlib.compress(text, 9)), dtype=torch.uint8)


def unpacked(tensor: torch.Tensor, kind: type[_Kind]) -> _Kind:
    """Return the document of a kind that a tensor holds."""
    if tensor.dtype != torch.uint8:
        raise TypeError("a document has another dtype")
    text = zlib.decompressobj().decompress(tensor.numpy().tobytes(), LONGEST_DOCUMENT + 1)
    _check_document(text)
    return msgspec.convert(json.loads(text), kind)


def _check_document(text: bytes) -> None:
    if len(text) > LONGEST_DOCUMENT:
        raise TooLargeError(f"a document holds more than {LONGEST_DOCUMENT:,} bytes")
    if sum(map(text.count, (b",", b"[", b"{"))) > MOST_MARKS:
        raise TooLargeError(f"a document holds more than {MOST_MARKS:,} values")


def check_header(path: str | os.PathLike[str]) -> None:
    """Check that the header of a safetensors file is not larger than is read."""
    with Path(path).open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if LONGEST_HEADER < size < Path(path).stat().st_size:  # one that is said to be longer than the file is none
        raise TooLargeError(f"its header takes {size:,} bytes; up to {LONGEST_HEADER:,} are read")


def encode(trace: RecordedForward, extra: dict[str, Any] | None = None) -> tuple[dict[str, torch.Tensor], Document]:
    """Return the tensors of a file by name, and the document that describes a trace."""
    if len(trace.calls) > MOST_CALLS:
        raise GoldenError(
            f"The trace has {len(trace.calls):,} calls; a file holds up to {MOST_CALLS:,}.\n"
            'Record fewer modules (level="layers", include=, exclude=) or fewer forwards.'
        )
    writer = TensorWriter()
    document = Document(
        model_class=trace.model_class,
        notes=tuple(trace.notes),
        aliases=trace.aliases,
        modules=trace.modules,
        unrecorded=trace.unrecorded,
        calls=[_encode_call(call, writer) for call in trace.calls],
        tensors=writer.entries,
        floors=UNSET if writer.floors.count(None) == len(writer.floors) else writer.floors,
        placements=writer.placements or UNSET,  # of a forward on several ranks
        extra=extra or {},
    )
    return writer.finish(), document


def _encode_call(call: Call, writer: TensorWriter) -> CallEntry:
    def leaf(record: TensorRecord, direction: str) -> _Leaf:
        return record.leaf, writer.place(record, f"{call.path}#{call.call}.{direction}{record.leaf}")

    def at(site: Site | None) -> Any:  # noqa: ANN401 - a place
        return site and (portable(site.file), *site[1:6])

    own = {name: getattr(call, name) for name in CallEntry.__struct_fields__}
    told = {
        "site": at(call.site),
        "inner_site": at(call.inner_site),
        "source": call.source and (portable(call.source.file), call.source.first, call.source.last),
        "inputs": [leaf(record, "input") for record in call.inputs],
        "outputs": None if call.outputs is None else [leaf(record, "output") for record in call.outputs],
        "writes": [(write.before, leaf(write.record, "write ")) for write in call.writes],
    }
    return CallEntry(**{**own, **told})


def decode(document: Document, tensors: dict[str, torch.Tensor], kind: type[_Forward]) -> _Forward:
    """Return the trace that a document and its tensors describe."""
    if len(document.calls) > MOST_CALLS:
        raise GoldenError(f"it holds {len(document.calls):,} calls; up to {MOST_CALLS:,} are read.")
    reader = TensorReader(document.tensors, tensors, document.floors or (), document.placements or {})
    calls = [_decode_call(entry, reader) for entry in document.calls]
    for position, call in enumerate(calls):
        if call.index != position or (call.parent is not None and not 0 <= call.parent < position):
            raise GoldenError(f"the call tree is not in order at call {position}.")
        call.depth = 0 if call.parent is None else calls[call.parent].depth + 1
    own = document.notes, document.aliases, document.modules, document.unrecorded
    return kind(document.model_class, calls, *own)


def _decode_call(entry: CallEntry, reader: TensorReader) -> Call:
    outputs = None if entry.outputs is None else tuple(reader.record(*leaf) for leaf in entry.outputs)
    inputs = tuple(reader.record(*leaf) for leaf in entry.inputs)
    for key, bare in entry.skeleton.items():
        count = len((outputs or ()) if key == "outputs" else inputs)
        for _, end in skeleton_ends(bare):
            if isinstance(end, int) and not 0 <= end < count:
                raise ValueError(f"there is no leaf {end} among {count}")
    read = {
        "depth": 0,
        "source": entry.source and SourceRange(*entry.source),
        "inputs": inputs,
        "outputs": outputs,
        "writes": tuple(Write(reader.record(*leaf), before) for before, leaf in entry.writes),
    }
    return Call(**{**msgspec.structs.asdict(entry), **read})


@lru_cache(maxsize=4096)
def portable(file: str) -> str:
    """Name a source file as it is imported, not by the machine's folders."""
    if not os.path.isabs(file):  # noqa: PTH117
        return file
    folders = sorted((folder for folder in {*sys.path, os.getcwd()} if folder), key=len, reverse=True)  # noqa: PTH109
    for folder in folders:
        if file.startswith(folder.rstrip(os.sep) + os.sep):
            return os.path.relpath(file, folder).replace(os.sep, "/")
    return os.path.basename(file)  # noqa: PTH119

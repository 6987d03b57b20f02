"""Trace <-> safetensors file.

A file holds each distinct tensor once, under the name of the first leaf that showed it; ``__metadata__`` has one entry,
``tfdebug``, a JSON document with the call tree, the statistics and whatever the caller adds. The same trace gives the
same bytes. Files are untrusted: nothing is unpickled, and the document is checked against the tensors it names.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.records import Call, Site, SourceRange, Statistics, TensorRecord
from pytest_tfdebug.tracing.statistics import summarize
from pytest_tfdebug.tracing.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable

#: Version of the document; a reader refuses a newer one.
FORMAT = 1
_KEY = "tfdebug"
#: Dtypes that safetensors does not take, or not in every version, and that of the pairs that are stored for them.
_COMPLEX = {"complex32": torch.float16, "complex64": torch.float32, "complex128": torch.float64}
_DIRECTIONS = (("inputs", "input"), ("outputs", "output"))


@dataclass
class TraceFile:
    """What a file holds.

    Args:
        trace: The trace; its tensors are mapped from the file.
        extra: What the writer added: provenance, fingerprints, tolerances.
    """

    trace: Trace
    extra: dict[str, Any] = field(default_factory=dict)


def write(path: str | os.PathLike[str], trace: Trace, extra: dict[str, Any] | None = None) -> None:
    """Write a trace, in one step: the file is the old one or the new one, never a part.

    Raises:
        GoldenError: If the file cannot be written.
    """
    from safetensors.torch import save_file

    tensors, document = encode(trace)
    text = json.dumps({**document, "extra": extra or {}}, separators=(",", ":"), sort_keys=True, allow_nan=True)
    replace_atomically(Path(path), lambda temporary: save_file(tensors, temporary, metadata={_KEY: text}))


def read(path: str | os.PathLike[str]) -> TraceFile:
    """Read a trace.

    Raises:
        GoldenError: If the file is missing, damaged, written by another program or by a newer version of this one, or
            its document disagrees with its tensors.
    """
    file = Path(path)
    text, tensors = _open(file)
    if text is None:
        raise GoldenError(f"{file} is a safetensors file of another program: it has no {_KEY!r} metadata.")
    try:
        document = json.loads(text)
        version = document["format"]
    except (ValueError, KeyError, TypeError) as error:
        raise GoldenError(f"{file} has damaged {_KEY!r} metadata: {error}.") from error
    if not isinstance(version, int) or version > FORMAT:
        raise GoldenError(
            f"{file} has format version {version!r}; this version of pytest-tfdebug reads up to {FORMAT}.\n"
            "Upgrade pytest-tfdebug, or record the file again with the version in use."
        )
    try:
        return TraceFile(decode(document, tensors), document["extra"])
    except GoldenError as error:
        raise GoldenError(f"{file}: {error}") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise GoldenError(f"{file} has damaged {_KEY!r} metadata: {type(error).__name__}: {error}.") from error


def read_extra(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return what the writer of a file added, without its tensors; None if the file is no trace of ours."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as opened:
            extra = json.loads((opened.metadata() or {}).get(_KEY, "null"))["extra"]
    except (SafetensorError, OSError, ValueError, KeyError, TypeError):
        return None
    return extra if isinstance(extra, dict) else None


def encode(trace: Trace) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the distinct tensors of a trace by name, and the document that describes it."""
    summarize(trace.records())
    names: dict[int, str] = {}
    tensors: dict[str, torch.Tensor] = {}
    owners: dict[int, str] = {}

    def name_of(call: Call, direction: str, record: TensorRecord) -> str | None:
        if record.tensor is None:
            return None
        if id(record.tensor) not in names:
            name = f"{call.path}#{call.call}.{direction}{record.leaf}"
            names[id(record.tensor)] = name
            tensors[name] = _storable(record.tensor, owners, name)
        return names[id(record.tensor)]

    calls = [_encode_call(call, name_of) for call in trace.calls]
    document = {
        "format": FORMAT,
        "model_class": trace.model_class,
        "notes": list(trace.notes),
        "aliases": trace.aliases,
        "modules": trace.modules,
        "calls": calls,
    }
    return tensors, document


def decode(document: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Trace:
    """Return the trace that a document and its tensors describe.

    Raises:
        GoldenError: If they disagree.
    """
    calls = [_decode_call(entry, tensors) for entry in document["calls"]]
    for position, call in enumerate(calls):
        if call.index != position or (call.parent is not None and not 0 <= call.parent < position):
            raise GoldenError(f"the call tree is not in order at call {position}.")
        call.depth = 0 if call.parent is None else calls[call.parent].depth + 1
    aliases = {path: tuple(others) for path, others in document["aliases"].items()}
    return Trace(document["model_class"], calls, tuple(document["notes"]), aliases, tuple(document["modules"]))


def replace_atomically(path: Path, fill: Callable[[str], object]) -> None:
    """Let ``fill`` write a temporary file beside ``path``, then put it in its place.

    Raises:
        GoldenError: If the directory or the file cannot be written; the old file is then untouched.
    """
    temporary: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.", suffix=".tmp")
        os.close(handle)
        fill(temporary)
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101 - mkstemp makes files private
        os.replace(temporary, path)  # noqa: PTH105
        temporary = None
    except OSError as error:
        raise GoldenError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)  # noqa: PTH108


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _open(file: Path) -> tuple[str | None, dict[str, torch.Tensor]]:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="pt") as opened:
            text = (opened.metadata() or {}).get(_KEY)
            return text, {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise GoldenError(f"{file} does not exist.") from error
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        size = file.stat().st_size if file.is_file() else None
        what = "is a directory" if size is None else f"({size:,} bytes) is empty, truncated or not a safetensors file"
        raise GoldenError(f"{file} {what}: {error}.") from error


def _storable(tensor: torch.Tensor, owners: dict[int, str], name: str) -> torch.Tensor:
    """Return the tensor as safetensors takes it: on its own, contiguous storage; complex numbers as pairs."""
    dense = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor.resolve_neg()
    pointer = dense.untyped_storage()._cdata  # noqa: SLF001 - identity without touching the (shared) data
    whole = dense.is_contiguous() and dense.numel() * dense.element_size() == dense.untyped_storage().nbytes()
    if whole and owners.setdefault(pointer, name) == name:
        return dense
    return dense.contiguous().clone()


def _encode_call(call: Call, name_of: Callable[[Call, str, TensorRecord], str | None]) -> dict[str, Any]:
    leaves = {
        attribute: None
        if getattr(call, attribute) is None
        else [
            [record.leaf, list(record.shape), record.dtype, name_of(call, direction, record), record.statistics]
            for record in getattr(call, attribute)
        ]
        for attribute, direction in _DIRECTIONS
    }
    return {
        "path": call.path,
        "class": call.class_name,
        "index": call.index,
        "call": call.call,
        "parent": call.parent,
        "site": call.site and (_portable(call.site.file), *call.site[1:]),
        "inner_site": call.inner_site and (_portable(call.inner_site.file), *call.inner_site[1:]),
        "source": call.source and (_portable(call.source.file), call.source.first, call.source.last),
        "parameters": call.parameters,
        "has_children": call.has_children,
        "skeleton": call.skeleton,
        "error": call.error,
        **leaves,
    }


@lru_cache(maxsize=4096)
def _portable(file: str) -> str:
    """Name a source file as it is imported, not by the machine's folders."""
    if not os.path.isabs(file):  # noqa: PTH117
        return file
    folders = sorted((folder for folder in {*sys.path, os.getcwd()} if folder), key=len, reverse=True)  # noqa: PTH109
    for folder in folders:
        if file.startswith(folder.rstrip(os.sep) + os.sep):
            return os.path.relpath(file, folder).replace(os.sep, "/")
    return os.path.basename(file)  # noqa: PTH119


def _decode_call(entry: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Call:
    return Call(
        index=entry["index"],
        path=str(entry["path"]),
        class_name=str(entry["class"]),
        call=entry["call"],
        parent=entry["parent"],
        depth=0,
        site=Site(*entry["site"]) if entry["site"] else None,
        inner_site=Site(*entry["inner_site"]) if entry["inner_site"] else None,
        source=SourceRange(*entry["source"]) if entry["source"] else None,
        parameters=tuple(entry["parameters"]),
        has_children=bool(entry["has_children"]),
        inputs=_decode_leaves(entry["inputs"], tensors),
        outputs=None if entry["outputs"] is None else _decode_leaves(entry["outputs"], tensors),
        skeleton=entry["skeleton"],
        error=entry["error"],
    )


def _decode_leaves(entries: list[list[Any]], tensors: dict[str, torch.Tensor]) -> tuple[TensorRecord, ...]:
    return tuple(_decode_leaf(entry, tensors) for entry in entries)


def _decode_leaf(entry: list[Any], tensors: dict[str, torch.Tensor]) -> TensorRecord:
    leaf, shape, dtype, name, summary = entry
    record = TensorRecord(
        leaf, tuple(shape), dtype, None, Statistics._make([*summary[:4], int(summary[4])]) if summary else None
    )
    if name is None:
        return record
    if name not in tensors:
        raise GoldenError(f"the metadata names a tensor {name!r} that the file does not hold.")
    tensor = tensors[name]
    if dtype in _COMPLEX and tensor.dtype == _COMPLEX[dtype] and tensor.shape[-1:] == (2,):
        tensor = torch.view_as_complex(tensor)
    held = str(tensor.dtype).removeprefix("torch.")
    if tuple(tensor.shape) != record.shape or held != dtype:
        raise GoldenError(
            f"the metadata says {dtype}{list(shape)} for {name!r} and the file holds {held}{list(tensor.shape)}."
        )
    record.tensor = tensor
    return record

"""The JSON document of a trace file: the call tree, with tensors by name.

It is read from files that anyone may have written: every value is checked to be of its kind before it is used.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.records import Call, Site, SourceRange, Statistics, TensorRecord, Write
from pytest_tfdebug.tracing.capture import dtype_name
from pytest_tfdebug.tracing.statistics import summarize

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.tracing.trace import Trace

_T = TypeVar("_T")
#: Version of the document; a reader refuses a newer one.
FORMAT = 1
#: Dtypes that safetensors does not take, or not in every version, and that of the pairs that are stored for them.
_COMPLEX = {"complex32": torch.float16, "complex64": torch.float32, "complex128": torch.float64}


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
    if trace.unrecorded:
        document["unrecorded"] = trace.unrecorded
    return tensors, document


def decode(document: dict[str, Any], tensors: dict[str, torch.Tensor], kind: type[Trace]) -> Trace:
    """Return the trace that a document and its tensors describe.

    Raises:
        GoldenError: If they disagree.
        KeyError, TypeError, ValueError, OverflowError, RecursionError: If the document is not of its form.
    """
    calls = [_decode_call(typed(dict, entry), tensors) for entry in typed(list, document["calls"])]
    for position, call in enumerate(calls):
        if call.index != position or (call.parent is not None and not 0 <= call.parent < position):
            raise GoldenError(f"the call tree is not in order at call {position}.")
        call.depth = 0 if call.parent is None else calls[call.parent].depth + 1
    aliases = {path: _texts(others) for path, others in typed(dict, document["aliases"]).items()}
    model_class = typed(str, document["model_class"])
    unrecorded = _texts(document.get("unrecorded", []))
    return kind(model_class, calls, _texts(document["notes"]), aliases, _texts(document["modules"]), unrecorded)


def _storable(tensor: torch.Tensor, owners: dict[int, str], name: str) -> torch.Tensor:
    """Return the tensor as safetensors takes it: on its own, contiguous storage; complex numbers as pairs."""
    dense = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor.resolve_neg()
    pointer = dense.untyped_storage()._cdata  # noqa: SLF001 - identity without touching the (shared) data
    whole = dense.is_contiguous() and dense.numel() * dense.element_size() == dense.untyped_storage().nbytes()
    if whole and owners.setdefault(pointer, name) == name:
        return dense
    return dense.contiguous().clone()


def _encode_call(call: Call, name_of: Callable[[Call, str, TensorRecord], str | None]) -> dict[str, Any]:
    def leaf(record: TensorRecord, direction: str) -> list[Any]:
        return [record.leaf, list(record.shape), record.dtype, name_of(call, direction, record), record.statistics]

    entry = {
        "path": call.path,
        "class": call.class_name,
        "index": call.index,
        "call": call.call,
        "parent": call.parent,
        "site": call.site and (portable(call.site.file), *call.site[1:6]),
        "inner_site": call.inner_site and (portable(call.inner_site.file), *call.inner_site[1:6]),
        "source": call.source and (portable(call.source.file), call.source.first, call.source.last),
        "parameters": call.parameters,
        "has_children": call.has_children,
        "skeleton": call.skeleton,
        "error": call.error,
        "inputs": [leaf(record, "input") for record in call.inputs],
        "outputs": None if call.outputs is None else [leaf(record, "output") for record in call.outputs],
    }
    if call.writes:  # most models have no cache
        entry["writes"] = [[write.before, leaf(write.record, "write ")] for write in call.writes]
    return entry


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


def _decode_call(entry: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Call:
    inputs = _decode_leaves(entry["inputs"], tensors)
    outputs = None if entry["outputs"] is None else _decode_leaves(entry["outputs"], tensors)
    return Call(
        index=typed(int, entry["index"]),
        path=typed(str, entry["path"]),
        class_name=typed(str, entry["class"]),
        call=typed(int, entry["call"]),
        parent=optional(int, entry["parent"]),
        depth=0,
        site=_decode_site(entry["site"]),
        inner_site=_decode_site(entry["inner_site"]),
        source=SourceRange(*each((str, int, int), entry["source"])) if entry["source"] is not None else None,
        parameters=_texts(entry["parameters"]),
        has_children=typed(bool, entry["has_children"]),
        inputs=inputs,
        outputs=outputs,
        skeleton=_decode_skeleton(typed(dict, entry["skeleton"]), inputs, outputs),
        writes=tuple(_decode_write(typed(list, write), tensors) for write in typed(list, entry.get("writes", []))),
        error=optional(str, entry["error"]),
    )


def _decode_site(entry: object) -> Site | None:
    return None if entry is None else Site(*each((str, int, int, str, int, int), entry))


def _decode_skeleton(
    entry: dict[str, Any], inputs: tuple[TensorRecord, ...], outputs: tuple[TensorRecord, ...] | None
) -> dict[str, Any]:
    for key, bare in entry.items():
        if key in ("args", "kwargs", "outputs"):
            _check_skeleton(bare, len((outputs or ()) if key == "outputs" else inputs))
    for key, kind in (("args", list), ("kwargs", dict)):
        typed(kind, entry.get(key, kind()))
    return entry


def _check_skeleton(bare: object, leaves: int) -> None:
    if isinstance(bare, list):
        for child in bare:
            _check_skeleton(child, leaves)
    elif isinstance(bare, dict) and "items" in bare:
        for child in typed(dict, bare["items"]).values():
            _check_skeleton(child, leaves)
    elif isinstance(bare, dict):
        if not 0 <= typed(int, bare["leaf"]) < leaves:
            raise ValueError(f"there is no leaf {bare['leaf']} among {leaves}")
    else:
        typed(str, bare)


def _decode_leaves(entries: object, tensors: dict[str, torch.Tensor]) -> tuple[TensorRecord, ...]:
    return tuple(_decode_leaf(typed(list, entry), tensors) for entry in typed(list, entries))


def _decode_write(entry: list[Any], tensors: dict[str, torch.Tensor]) -> Write:
    before, leaf = entry
    return Write(_decode_leaf(typed(list, leaf), tensors), optional(int, before))


def _decode_leaf(entry: list[Any], tensors: dict[str, torch.Tensor]) -> TensorRecord:
    leaf, shape, dtype, name, summary = entry
    record = TensorRecord(
        typed(str, leaf), tuple(typed(int, size) for size in typed(list, shape)), typed(str, dtype), None
    )
    if summary is not None:
        *numbers, non_finite = each((float, float, float, float, int), summary)
        record.statistics = Statistics._make([*map(float, numbers), non_finite])
    if name is None:
        return record
    if typed(str, name) not in tensors:
        raise GoldenError(f"the metadata names a tensor {name!r} that the file does not hold.")
    tensor = tensors[name]
    if dtype in _COMPLEX and tensor.dtype == _COMPLEX[dtype] and tensor.shape[-1:] == (2,):
        tensor = torch.view_as_complex(tensor)
    held = dtype_name(tensor.dtype)
    if tuple(tensor.shape) != record.shape or held != dtype:
        raise GoldenError(
            f"the metadata says {dtype}{list(shape)} for {name!r} and the file holds {held}{list(tensor.shape)}."
        )
    record.tensor = tensor
    return record


def typed(kind: type[_T], value: object) -> _T:
    """Return a value that is of its kind; a whole number may stand for a float, a truth value for no number."""
    accepted = (int, float) if kind is float else kind
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise TypeError(f"{str(value)[:40]!r} is not of type {kind.__name__}")
    return cast("_T", value)


def optional(kind: type[_T], value: object) -> _T | None:
    """Return a value that is of its kind, or None."""
    return None if value is None else typed(kind, value)


def each(kinds: tuple[type, ...], values: object) -> list[Any]:
    """Return the entries of a list, each of its own kind."""
    return [typed(kind, value) for kind, value in zip(kinds, typed(list, values), strict=True)]


def _texts(values: object) -> tuple[str, ...]:
    return tuple(typed(str, value) for value in typed(list, values))

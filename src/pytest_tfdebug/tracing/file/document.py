"""The JSON document of a trace file: the call tree, with tensors by their place in a table.

It is read from files that anyone may have written: every value is checked to be of its kind before it is used.
``docs/golden-format.md`` is its specification.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.records import Call, Site, SourceRange, TensorRecord, Write
from pytest_tfdebug.tracing.file.stored_tensors import TensorReader, TensorWriter
from pytest_tfdebug.tracing.file.typed import each, optional, texts, typed

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pytest_tfdebug.tracing.trace import Trace

#: Version of the document; a reader refuses another one.
FORMAT = 2
#: Calls that a file may hold: more take longer to read than anyone waits for a golden.
MOST_CALLS = 20_000


def encode(trace: Trace) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors of a file by name, and the document that describes a trace.

    Raises:
        GoldenError: If the trace has more than :data:`MOST_CALLS` calls.
    """
    if len(trace.calls) > MOST_CALLS:
        raise GoldenError(
            f"The trace has {len(trace.calls):,} calls; a file holds up to {MOST_CALLS:,}.\n"
            'Record fewer modules (level="layers", include=, exclude=) or fewer forwards.'
        )
    writer = TensorWriter()
    document = {**outline(trace, writer.place), "tensors": writer.entries}
    if any(floor is not None for floor in writer.floors):
        document["floors"] = writer.floors
    if writer.placements:  # of a forward on several ranks
        document["placements"] = writer.placements
    return writer.finish(), document


def outline(trace: Trace, place: Callable[[TensorRecord, str], int] = lambda _record, _name: 0) -> dict[str, Any]:
    """Return a document without the table of tensors.

    Args:
        trace: The trace.
        place: Gives the place of a tensor in that table.
    """
    return {
        "model_class": trace.model_class,
        "notes": list(trace.notes),
        "aliases": trace.aliases,
        "modules": trace.modules,
        "unrecorded": trace.unrecorded,
        "calls": [_encode_call(call, place) for call in trace.calls],
    }


def decode(document: dict[str, Any], tensors: dict[str, torch.Tensor], kind: type[Trace]) -> Trace:
    """Return the trace that a document and its tensors describe.

    Args:
        document: That of a file.
        tensors: Those of the file, by name.
        kind: The class ``Trace``.

    Raises:
        GoldenError: If they disagree.
        KeyError, TypeError, ValueError, OverflowError, RecursionError: If the document is not of its form.
    """
    entries = typed(list, document["calls"])
    if len(entries) > MOST_CALLS:
        raise GoldenError(f"it holds {len(entries):,} calls; up to {MOST_CALLS:,} are read.")
    reader = _leaf_reader(document, tensors)
    calls = [_decode_call(typed(dict, entry), reader) for entry in entries]
    for position, call in enumerate(calls):
        if call.index != position or (call.parent is not None and not 0 <= call.parent < position):
            raise GoldenError(f"the call tree is not in order at call {position}.")
        call.depth = 0 if call.parent is None else calls[call.parent].depth + 1
    aliases = {path: texts(others) for path, others in typed(dict, document["aliases"]).items()}
    model_class = typed(str, document["model_class"])
    unrecorded = texts(document.get("unrecorded", []))
    return kind(model_class, calls, texts(document["notes"]), aliases, texts(document["modules"]), unrecorded)


def _leaf_reader(document: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Callable[[list[Any]], TensorRecord]:
    floors = optional(list, document.get("floors"))
    placements = typed(dict, document.get("placements", {}))
    reader = TensorReader(typed(list, document["tensors"]), tensors, floors, placements)

    def read(entry: list[Any]) -> TensorRecord:
        leaf, place = entry
        return reader.record(typed(str, leaf), place)

    return read


def _encode_call(call: Call, place: Callable[[TensorRecord, str], int]) -> dict[str, Any]:
    def leaf(record: TensorRecord, direction: str) -> list[Any]:
        return [record.leaf, place(record, f"{call.path}#{call.call}.{direction}{record.leaf}")]

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


def _decode_call(entry: dict[str, Any], read: Callable[[list[Any]], TensorRecord]) -> Call:
    inputs = _decode_leaves(entry["inputs"], read)
    outputs = None if entry["outputs"] is None else _decode_leaves(entry["outputs"], read)
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
        parameters=texts(entry["parameters"]),
        has_children=typed(bool, entry["has_children"]),
        inputs=inputs,
        outputs=outputs,
        skeleton=_decode_skeleton(typed(dict, entry["skeleton"]), inputs, outputs),
        writes=tuple(_decode_write(typed(list, write), read) for write in typed(list, entry.get("writes", []))),
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


def _decode_leaves(entries: object, read: Callable[[list[Any]], TensorRecord]) -> tuple[TensorRecord, ...]:
    return tuple(read(typed(list, entry)) for entry in typed(list, entries))


def _decode_write(entry: list[Any], read: Callable[[list[Any]], TensorRecord]) -> Write:
    before, leaf = entry
    return Write(read(typed(list, leaf)), optional(int, before))

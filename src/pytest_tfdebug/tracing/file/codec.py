"""Trace <-> safetensors file, and a trace as the two JSON files of transformers' debugger.

``__metadata__`` has one entry, ``tfdebug``: the version of the format, the texts that the caller adds and the
checksums. The call tree and whatever else the caller adds are a compressed JSON document, a tensor among the others.
The same trace gives the same bytes. Files are untrusted: nothing is unpickled, and the document is checked against the
tensors it names. ``docs/golden-format.md`` is the specification.

The JSON files are those of ``model_addition_debugger_context`` (``model_debugging_utils.py``), for a comparison by eye:
their keys, the text of the values and the pruning of inner outputs follow that tool, so that a file made here differs
from one made there only where the tensors do.
"""

from __future__ import annotations

import json
import zlib
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from zlib import crc32

import torch
from torch._tensor_str import printoptions

from pytest_tfdebug.errors import GoldenError, TFDebugError
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.file.document import (
    FORMAT,
    Document,
    TooLargeError,
    check_header,
    decode,
    encode,
    packed,
    unpacked,
)
from pytest_tfdebug.tracing.file.values_file import decode_values, encode_values
from pytest_tfdebug.tracing.record.replacing import replace_atomically
from pytest_tfdebug.tracing.values.rerun import Recorded

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping, Sequence

    from pytest_tfdebug.data.trace import RecordedForward
    from pytest_tfdebug.records import Call, TensorRecord
    from pytest_tfdebug.values import Values


#: Key of what a file of ours says of itself in its header.
KEY = "tfdebug"
#: Name of the tensor that is the document; no call's path begins like this.
_DOCUMENT = "#document"
#: Begins the names of the tensors of the same forward in float32, its document among them.
_WIDE = "#float32."
#: What a document that is not of its form leads to.
DAMAGED = (KeyError, TypeError, ValueError, OverflowError, RecursionError, IndexError, StopIteration, zlib.error)


_Forward = TypeVar("_Forward", bound="RecordedForward")


@dataclass
class TraceFile(Generic[_Forward]):
    """What a file holds."""

    trace: _Forward  # the trace; its tensors are mapped from the file
    extra: dict[str, Any] = field(default_factory=dict)  # what the writer added: provenance, fingerprints, tolerances


def write(
    path: str | os.PathLike[str],
    trace: RecordedForward,
    extra: dict[str, Any] | None = None,
    values: Values | None = None,
    *,
    max_size: int | None = None,
) -> int:
    """Write a trace and its values, in one step: the file is the old one or the new one, never a part.

    Nothing is written that would not be read.
    """
    from safetensors.torch import save_file

    def fill(temporary: str) -> None:
        save_file(tensors, temporary, metadata={KEY: header})
        check_header(temporary)

    try:
        tensors, document = encode(trace, extra)
        tensors[_DOCUMENT] = packed(document)
        tensors |= {} if values is None else encode_values(values)
        if trace.wide is not None:
            wide, own = encode(trace.wide)
            tensors |= {f"{_WIDE}{name}": tensor for name, tensor in (wide | {_DOCUMENT: packed(own)}).items()}
        told = {key: value for key, value in (extra or {}).items() if isinstance(value, str)}
        header = with_checksums({"format": FORMAT, "extra": told}, tensors)
        size = len(header) + sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
        if max_size is not None and size > max_size:
            raise GoldenError(
                f"{path} would take {shown_size(size)}, and tf_golden_max_size is {shown_size(max_size)}.\n"
                'Record less (a smaller input, level="layers", no store="full"), or raise tf_golden_max_size.'
            )
        replace_atomically(Path(path), fill)
    except TooLargeError as error:
        raise GoldenError(
            f"{path} cannot be written: {error}.\n"
            'Record fewer modules (level="layers", include=, exclude=) or fewer forwards.'
        ) from error
    return size


def shown_size(size: int) -> str:
    """Return a number of bytes as people write it: ``83 kB``, ``1.8 GB``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{max(1, round(size / 1000))} kB"


def read(path: str | os.PathLike[str], kind: type[_Forward]) -> TraceFile[_Forward]:
    """Read a trace; its kind is the class ``Trace``, which stands above this file."""
    file = Path(path)
    text, tensors = opened(file)
    _check_header(file, text, tensors)
    try:
        wide = {name[len(_WIDE) :]: tensors.pop(name) for name in [*tensors] if name.startswith(_WIDE)}
        document = unpacked(tensors.pop(_DOCUMENT), Document)
        values = decode_values(tensors)
        trace = decode(document, tensors, kind)
        trace.again = None if values is None else Recorded(values)
        if wide:
            trace.wide = decode(unpacked(wide.pop(_DOCUMENT), Document), wide, kind)
            trace.wide.again = trace.again
        return TraceFile(trace, document.extra)
    except GoldenError as error:
        raise GoldenError(f"{file}: {error}") from error
    except DAMAGED as error:
        raise GoldenError(f"{file} has damaged {KEY!r} metadata: {type(error).__name__}: {error}.") from error


def _check_header(file: Path, text: str | None, tensors: dict[str, torch.Tensor]) -> None:
    if text is None and _DOCUMENT in tensors:
        raise GoldenError(f"{file} is damaged: it has no {KEY!r} metadata.\n{ADVICE}")
    if text is None:
        raise GoldenError(f"{file} is a safetensors file of another program: it has no {KEY!r} metadata.")
    try:
        header = json.loads(text)
        version = header["format"]
    except DAMAGED as error:
        raise GoldenError(f"{file} has damaged {KEY!r} metadata: {error}.") from error
    if version != FORMAT or type(version) is not int:
        raise GoldenError(
            f"{file} has format version {version!r}; this version of pytest-tfdebug reads up to {FORMAT}.\n"
            "Upgrade pytest-tfdebug, or record the file again with the version in use."
        )
    problem = problem_of(header, tensors)
    if problem:
        raise GoldenError(f"{file} is damaged: {problem} not what was written (checksum).\n{ADVICE}")


def read_extra(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """Return the texts among what the writer of a file added, its test say; None if the file is no trace of ours.

    Only the header is read, and one that is too long for a golden is not.
    """
    from safetensors import SafetensorError, safe_open

    try:
        check_header(path)
        with safe_open(path, framework="numpy") as opened:
            extra = json.loads((opened.metadata() or {}).get(KEY, "null"))["extra"]
    except (SafetensorError, OSError, *DAMAGED):
        return None
    return extra if isinstance(extra, dict) else None


def opened(file: Path) -> tuple[str | None, dict[str, torch.Tensor]]:
    """Return what a safetensors file says of itself, None where that is not ours, and its tensors."""
    from safetensors import SafetensorError, safe_open

    if file.exists() and not file.is_file():  # opening a FIFO waits until somebody writes to it
        raise GoldenError(f"{file} is not a file.")
    try:
        check_header(file)
        with safe_open(file, framework="pt") as opened:
            text = (opened.metadata() or {}).get(KEY)
            return text, {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except FileNotFoundError as error:
        raise GoldenError(f"{file} does not exist.") from error
    except TooLargeError as error:
        raise GoldenError(f"{file} is not read: {error}.") from error
    except (SafetensorError, OSError, ValueError, RuntimeError) as error:
        if isinstance(error, PermissionError):
            raise GoldenError(f"{file} cannot be read: {error.strerror}.") from error
        size = f"{file.stat().st_size:,} bytes"
        raise GoldenError(f"{file} ({size}) is empty, truncated or not a safetensors file: {error}.") from error


#: What to do about a file that is damaged.
ADVICE = "Restore it from version control."
_SUMS, _OWN = "checksums", "checksum"


def with_checksums(header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the text of a header with the checksums (CRC-32) of the tensors and its own."""
    whole = {**header, _SUMS: [_checksum(name, tensor) for name, tensor in sorted(tensors.items())]}
    return _text({**whole, _OWN: crc32(_text(whole).encode())})


def problem_of(header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> str:
    """Return what is, by the checksums of a file, not what was written; empty where all is."""
    whole = {key: value for key, value in header.items() if key != _OWN}
    known = header.get(_SUMS)
    if header.get(_OWN) != crc32(_text(whole).encode()) or not isinstance(known, list):
        return "its header is"
    if len(known) != len(tensors):
        return f"{len(known)} tensors were written, and {len(tensors)} are"
    pairs = zip(sorted(tensors.items()), known, strict=True)
    damaged = (name for (name, tensor), checksum in pairs if checksum != _checksum(name, tensor))
    return next((f"the bytes of its tensor {name!r} are" for name in damaged), "")


def _checksum(name: str, tensor: torch.Tensor) -> int:
    form = f"{name}{dtype_name(tensor.dtype)}{list(tensor.shape)}".encode()
    return crc32(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, crc32(form))


def _text(header: Mapping[str, Any]) -> str:
    return json.dumps(header, separators=(",", ":"), sort_keys=True)


#: Dtypes whose summary the debugger writes.
_SUMMARIZED = (torch.float16, torch.float32, torch.bfloat16)


def export_json(trace: RecordedForward, directory: str | os.PathLike[str]) -> tuple[str, str]:
    """Write the summary and the full file; see ``Trace.export_json``."""
    if not trace.calls:
        raise TFDebugError("The trace has no calls: there is nothing to export.")
    name = trace.model_class.replace("/", "_").replace("\\", "_")  # it may come from a file
    base = Path(directory) / f"{name}_debug_tree"
    paths = (f"{base}_SUMMARY.json", f"{base}_FULL_TENSORS.json")
    with printoptions(sci_mode=True, linewidth=120):  # as the debugger
        trees = [_tree(trace, shown) for shown in (_summary, _full)]
    try:
        Path(directory).mkdir(parents=True, exist_ok=True)
        for path, tree in zip(paths, trees, strict=True):
            Path(path).write_text(json.dumps(tree, indent=2), encoding="utf-8")
    except OSError as error:
        raise TFDebugError(f"{directory} cannot be written: {error.strerror or error}.") from error
    return paths


def _tree(trace: RecordedForward, shown: Callable[[TensorRecord], dict[str, Any]]) -> dict[str, Any]:
    """Return the first root with the calls inside it; what these return is left out where they have calls inside."""
    inside: dict[int | None, list[Call]] = defaultdict(list)
    for call in trace.calls:
        inside[call.parent].append(call)

    def filled(bare: Any, records: Sequence[TensorRecord]) -> Any:  # noqa: ANN401 - a skeleton
        if isinstance(bare, list):
            return [filled(child, records) for child in bare]
        if isinstance(bare, dict) and "items" in bare:
            return {key: filled(child, records) for key, child in bare["items"].items()}
        return shown(records[bare["leaf"]]) if isinstance(bare, dict) else bare

    def node(call: Call) -> dict[str, Any]:
        is_root, path = call.parent is None, trace.model_class
        inputs = {key: filled(call.skeleton.get(key), call.inputs) for key in ("args", "kwargs")}
        told: dict[str, Any] = {
            "module_path": path if is_root else f"{path}.{call.path}",
            "inputs": inputs if is_root else {key: value for key, value in inputs.items() if value},
        }
        if inside[call.index]:
            return told | {"children": [node(child) for child in inside[call.index]]}
        is_shown = call.outputs is not None and (is_root or not call.has_children)
        return told | {"outputs": filled(call.skeleton.get("outputs"), call.outputs or ()) if is_shown else None}

    return {key: value for key, value in node(trace.calls[0]).items() if value}


def _summary(record: TensorRecord) -> dict[str, Any]:
    """Return a tensor as the debugger sums it up: its own reductions, in the tensor's dtype, so that digits agree."""
    tensor = record.tensor
    written = {"shape": f"torch.Size({list(record.shape)})", "dtype": f"torch.{record.dtype}"}
    if tensor is not None and tensor.dtype in _SUMMARIZED and tensor.numel():
        written |= {name: repr(getattr(tensor, name)()) for name in ("mean", "std", "min", "max")}
    return written


def _full(record: TensorRecord) -> dict[str, Any]:
    written: dict[str, Any] = _summary(record)
    form = {"shape": written.pop("shape"), "dtype": written.pop("dtype")}
    value = {} if record.tensor is None else {"value": str(record.tensor).splitlines()}
    return form | value | written

"""Trace <-> safetensors file.

``__metadata__`` has one entry, ``tfdebug``: the version of the format, the texts that the caller adds and the
checksums. The call tree and whatever else the caller adds are a compressed JSON document, a tensor among the others.
The same trace gives the same bytes. Files are untrusted: nothing is unpickled, and the document is checked against the
tensors it names. ``docs/golden-format.md`` is the specification.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zlib import crc32

import msgspec

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.file.document import (
    FORMAT,
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
    from collections.abc import Mapping

    import torch

    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.values import Values


_KEY = "tfdebug"
#: Name of the tensor that is the document; no call's path begins like this.
_DOCUMENT = "#document"
#: What a document that is not of its form leads to.
_DAMAGED = (KeyError, TypeError, ValueError, OverflowError, RecursionError, IndexError, StopIteration, zlib.error)


@dataclass
class TraceFile:
    """What a file holds."""

    trace: Trace  # the trace; its tensors are mapped from the file
    extra: dict[str, Any] = field(default_factory=dict)  # what the writer added: provenance, fingerprints, tolerances


def write(
    path: str | os.PathLike[str],
    trace: Trace,
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
        save_file(tensors, temporary, metadata={_KEY: header})
        check_header(temporary)

    try:
        tensors, document = encode(trace, extra)
        tensors[_DOCUMENT] = packed(msgspec.to_builtins(document))
        tensors |= {} if values is None else encode_values(values)
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


def read(path: str | os.PathLike[str], kind: type[Trace]) -> TraceFile:
    """Read a trace; its kind is the class ``Trace``, which stands above this file."""
    file = Path(path)
    text, tensors = _open(file)
    _check_header(file, text, tensors)
    try:
        document = unpacked(tensors.pop(_DOCUMENT))
        values = decode_values(tensors)
        trace, extra = decode(document, tensors, kind)
        trace.again = None if values is None else Recorded(values)
        return TraceFile(trace, extra)
    except GoldenError as error:
        raise GoldenError(f"{file}: {error}") from error
    except _DAMAGED as error:
        raise GoldenError(f"{file} has damaged {_KEY!r} metadata: {type(error).__name__}: {error}.") from error


def _check_header(file: Path, text: str | None, tensors: dict[str, torch.Tensor]) -> None:
    if text is None and _DOCUMENT in tensors:
        raise GoldenError(f"{file} is damaged: it has no {_KEY!r} metadata.\n{ADVICE}")
    if text is None:
        raise GoldenError(f"{file} is a safetensors file of another program: it has no {_KEY!r} metadata.")
    try:
        header = json.loads(text)
        version = header["format"]
    except _DAMAGED as error:
        raise GoldenError(f"{file} has damaged {_KEY!r} metadata: {error}.") from error
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
            extra = json.loads((opened.metadata() or {}).get(_KEY, "null"))["extra"]
    except (SafetensorError, OSError, *_DAMAGED):
        return None
    return extra if isinstance(extra, dict) else None


def _open(file: Path) -> tuple[str | None, dict[str, torch.Tensor]]:
    from safetensors import SafetensorError, safe_open

    if file.exists() and not file.is_file():  # opening a FIFO waits until somebody writes to it
        raise GoldenError(f"{file} is not a file.")
    try:
        check_header(file)
        with safe_open(file, framework="pt") as opened:
            text = (opened.metadata() or {}).get(_KEY)
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
    import torch

    form = f"{name}{dtype_name(tensor.dtype)}{list(tensor.shape)}".encode()
    return crc32(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, crc32(form))


def _text(header: Mapping[str, Any]) -> str:
    return json.dumps(header, separators=(",", ":"), sort_keys=True)

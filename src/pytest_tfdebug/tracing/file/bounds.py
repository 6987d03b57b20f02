"""JSON <-> a tensor of bytes, and how much is read of a file that anyone may have written.

What is read takes some seconds, and less than 1 GB of memory.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    import os

#: Bytes of a JSON document: as text they take up to four times as many.
LONGEST_DOCUMENT = 50_000_000
#: Marks before its values, each of which takes about 100 bytes; a forward of 100,000 operators has 3,000,000.
MOST_MARKS = 4_000_000
#: Bytes of the header of a safetensors file, which has about 60 for each tensor.
LONGEST_HEADER = 8_000_000


class TooLargeError(ValueError):
    """A part of a file is larger than is read."""


def packed(document: object) -> torch.Tensor:
    """Return a document as compressed JSON, uint8."""
    text = json.dumps(document, separators=(",", ":")).encode()
    _check_document(text)
    return torch.frombuffer(bytearray(zlib.compress(text, 9)), dtype=torch.uint8)


def unpacked(tensor: torch.Tensor) -> Any:  # noqa: ANN401 - JSON
    """Return the document that a tensor holds."""
    if tensor.dtype != torch.uint8:
        raise TypeError("a document has another dtype")
    text = zlib.decompressobj().decompress(tensor.numpy().tobytes(), LONGEST_DOCUMENT + 1)
    _check_document(text)
    return json.loads(text)


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

"""JSON <-> a tensor of bytes: compressed, and read with a limit."""

from __future__ import annotations

import json
import zlib
from typing import Any

import torch

#: A table of 100,000 values takes about 20 MB; more than this is refused.
LARGEST = 200_000_000


def packed(document: dict[str, Any]) -> torch.Tensor:
    """Return a document as compressed JSON, uint8."""
    text = json.dumps(document, separators=(",", ":")).encode()
    return torch.frombuffer(bytearray(zlib.compress(text, 9)), dtype=torch.uint8)


def unpacked(tensor: torch.Tensor, largest: int | None = None) -> dict[str, Any]:
    """Return the document that a tensor holds.

    Args:
        tensor: Its compressed JSON.
        largest: Bytes that it may have; :data:`LARGEST` unless told otherwise.

    Raises:
        TypeError, ValueError, RecursionError, zlib.error: If it holds none, or one that is too large to be read.
    """
    if tensor.dtype != torch.uint8:
        raise TypeError("a document has another dtype")
    limit = LARGEST if largest is None else largest
    unpack = zlib.decompressobj()
    text = unpack.decompress(tensor.numpy().tobytes(), limit)
    if unpack.unconsumed_tail:
        raise ValueError(f"a document holds more than {limit} bytes")
    document = json.loads(text)
    if not isinstance(document, dict):
        raise TypeError(f"a document is {type(document).__name__}")
    return document

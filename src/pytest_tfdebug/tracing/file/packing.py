"""JSON <-> a tensor of bytes: compressed, and read with a limit."""

from __future__ import annotations

import json
import zlib
from typing import Any

import torch

from pytest_tfdebug.tracing.file import bounds


def packed(document: dict[str, Any]) -> torch.Tensor:
    """Return a document as compressed JSON, uint8.

    Raises:
        TooLargeError: If it is larger than is read.
    """
    text = json.dumps(document, separators=(",", ":")).encode()
    bounds.check_document(text)
    return torch.frombuffer(bytearray(zlib.compress(text, 9)), dtype=torch.uint8)


def unpacked(tensor: torch.Tensor) -> dict[str, Any]:
    """Return the document that a tensor holds.

    Args:
        tensor: Its compressed JSON.

    Raises:
        TypeError, ValueError, RecursionError, zlib.error: If it holds none, or one that is too large to be read.
    """
    if tensor.dtype != torch.uint8:
        raise TypeError("a document has another dtype")
    text = zlib.decompressobj().decompress(tensor.numpy().tobytes(), bounds.LONGEST_DOCUMENT + 1)
    document = bounds.parsed(text)
    if not isinstance(document, dict):
        raise TypeError(f"a document is {type(document).__name__}")
    return document

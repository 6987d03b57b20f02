"""How much is read of a file that anyone may have written: what takes some seconds, and less than 1 GB of memory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

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


def parsed(text: bytes) -> Any:  # noqa: ANN401 - JSON
    """Return what a JSON document holds.

    Raises:
        ValueError: If it is none.
        TooLargeError: If it is larger than is read.
        RecursionError: If it is nested too deeply.
    """
    check_document(text)
    return json.loads(text)


def check_document(text: bytes) -> None:
    """Check that a JSON document is not larger than is read.

    Raises:
        TooLargeError: If it is.
    """
    if len(text) > LONGEST_DOCUMENT:
        raise TooLargeError(f"a document holds more than {LONGEST_DOCUMENT:,} bytes")
    if sum(map(text.count, (b",", b"[", b"{"))) > MOST_MARKS:
        raise TooLargeError(f"a document holds more than {MOST_MARKS:,} values")


def check_header(path: str | os.PathLike[str]) -> None:
    """Check that the header of a safetensors file is not larger than is read.

    Raises:
        TooLargeError: If it is.
        OSError: If the file cannot be read.
    """
    with Path(path).open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
    if LONGEST_HEADER < size < Path(path).stat().st_size:  # one that is said to be longer than the file is none
        raise TooLargeError(f"its header takes {size:,} bytes; up to {LONGEST_HEADER:,} are read")

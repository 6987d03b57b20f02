"""Reads files that may be anything, and replaces files atomically."""

from __future__ import annotations

import os
import stat
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_tfdebug.scan.errors import BadSourceError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Values of JSON that are read; many small values take a hundred times their bytes.
_VALUES = 2_000_000
#: Bytes that are compared at a time.
_CHUNK = 1 << 16
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


def read(path: str | os.PathLike[str], most: int) -> bytes:
    """Return the bytes of a regular file, of at most so many; OSError for any other. A pipe is never waited for."""
    with open(path, "rb", buffering=0, opener=lambda name, _: os.open(name, _FLAGS)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not a regular file")
        if status.st_size > most:
            raise OSError(f"{status.st_size:,} bytes, more than the {most:,} that are read")
        return file.read()


def check_json(text: bytes) -> bytes:
    """Return the bytes of a JSON document; ValueError if it may hold more values than there is memory for."""
    if (values := sum(map(text.count, (b",", b"[", b"{")))) > _VALUES:
        raise ValueError(f"{values:,} values, more than the {_VALUES:,} that are read")
    return text


def stamp(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the length and the checksum of a file; zeros if there is no such file."""
    if not os.path.isfile(path):
        return 0, 0
    size = checksum = 0
    with open(path, "rb", buffering=0) as file:
        while part := file.read(_CHUNK):
            size, checksum = size + len(part), zlib.crc32(part, checksum)
    return size, checksum


def replace(path: str | os.PathLike[str], parts: Iterable[bytes]) -> tuple[int, int]:
    """Write a file atomically, and its directory where there is none, and return its :func:`stamp`."""
    directory, name = os.path.split(os.fspath(path))
    os.makedirs(directory or ".", exist_ok=True)
    temporary = os.path.join(directory, f".{name}.{os.urandom(8).hex()}")
    size = checksum = 0
    try:
        with open(temporary, "xb") as file:
            for part in parts:
                file.write(part)
                size, checksum = size + len(part), zlib.crc32(part, checksum)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    return size, checksum


def decode(content: bytes) -> str:
    r"""Return the text of a Python file, with ``\n`` for every line end; BadSourceError if it is none, or not UTF-8."""
    if b"\0" in content:
        raise BadSourceError("holds a null byte")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeError as error:
        raise BadSourceError(f"not UTF-8: {error}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text

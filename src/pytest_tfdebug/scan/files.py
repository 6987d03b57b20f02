"""Files that are either all there or as they were, and files that may be anything."""

from __future__ import annotations

import os
import stat
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Bytes that are compared at a time.
_CHUNK = 1 << 18


class NoFileError(OSError):
    """What stands in a file's place is none: a pipe, a socket or a device."""


def read(path: str | os.PathLike[str], most: int | None = None) -> bytes:
    """Return the bytes of a regular file; a pipe is never waited for.

    Raises:
        NoFileError: If it is no regular file, or has more bytes than ``most``.
        OSError: If it cannot be read.
    """
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    file = os.open(path, flags)
    try:
        status = os.fstat(file)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(f"{os.fspath(path)!r} is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise NoFileError("not a regular file")
        if most is not None and status.st_size > most:
            raise NoFileError(f"{status.st_size:,} bytes, more than the {most:,} that are read")
        content = os.read(file, status.st_size + 1)
        while len(content) < status.st_size and (more := os.read(file, status.st_size)):
            content += more
        return content
    finally:
        os.close(file)


def stamp(path: str | os.PathLike[str]) -> tuple[int, int]:
    """Return the length and the checksum of a file; nothing of one that is none.

    Raises:
        OSError: If it cannot be read.
    """
    if not os.path.isfile(path):
        return 0, 0
    size = checksum = 0
    room = memoryview(bytearray(_CHUNK))  # used again: fresh memory takes longer than the reading
    with open(path, "rb", buffering=0) as file:
        while count := file.readinto(room):
            size, checksum = size + count, zlib.crc32(room[:count], checksum)
    return size, checksum


def replace(path: str | os.PathLike[str], parts: Iterable[bytes]) -> tuple[int, int]:
    """Write a file, and its directory where there is none, atomically.

    Returns:
        Its :func:`stamp`.

    Raises:
        OSError: If it cannot be written.
    """
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

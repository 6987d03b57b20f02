"""Files that are either all there or as they were."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

#: Bytes from which a file's place on the disk is asked for at once: ext4 then need not find one while it replaces
#: the old file, which takes twice as long as to write 50 MB.
_LARGE = 1 << 20
#: Pieces that every system takes in one call.
_PIECES = 1000
#: Bytes that are compared at a time.
_CHUNK = 1 << 18


def replace(path: str | os.PathLike[str], pieces: Iterable[Buffer]) -> None:
    """Write a file, and its directory where there is none, atomically; one that holds the same already is left alone.

    Raises:
        OSError: If it cannot be written.
    """
    views = [memoryview(piece) for piece in pieces]
    if _holds(path, views):
        return
    directory, name = os.path.split(os.fspath(path))
    os.makedirs(directory or ".", exist_ok=True)
    temporary = os.path.join(directory, f".{name}.{os.urandom(8).hex()}")
    try:
        with open(temporary, "xb") as file:
            size = sum(view.nbytes for view in views)
            if size >= _LARGE and hasattr(os, "posix_fallocate"):
                with suppress(OSError):  # not every file system can
                    os.posix_fallocate(file.fileno(), 0, size)
            _write(file, views)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _write(file: IO[bytes], views: list[memoryview]) -> None:
    """Write pieces, many in one call where the system can: a call for each takes twice as long."""
    if not hasattr(os, "writev"):
        file.writelines(views)
        return
    for at in range(0, len(views), _PIECES):
        batch = views[at : at + _PIECES]
        written = os.writev(file.fileno(), batch)
        if written < sum(view.nbytes for view in batch):  # the disk is full, or a signal came
            file.write(b"".join(batch)[written:])
            file.flush()


def _holds(path: str | os.PathLike[str], views: list[memoryview]) -> bool:
    """Tell whether a file holds these bytes and no others."""
    with suppress(OSError), open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size != sum(view.nbytes for view in views):
            return False
        room = bytearray(_CHUNK)  # used again: fresh memory for each chunk takes six times as long
        for part in (view[at : at + _CHUNK] for view in views for at in range(0, view.nbytes, _CHUNK)):
            found = room if len(part) == _CHUNK else bytearray(len(part))
            if file.readinto(found) != len(part) or found != part:
                return False
        return True
    return False

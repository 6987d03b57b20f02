"""Two pieces of work at once, each in a process."""

from __future__ import annotations

import mmap
import os
import pickle
from typing import IO, TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

#: Whether a second process can be had, and a processor for it.
HAS_SECOND = hasattr(os, "fork") and (os.cpu_count() or 1) > 1


def beside(mine: Callable[[], _T], theirs: Callable[[], _T]) -> tuple[_T, _T]:
    """Return what two functions return, the second run by a process of its own; it must not have threads.

    If that process fails, this one does its work.
    """
    with _between() as room:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                pickle.dump(theirs(), room, protocol=5)
                room.flush()
                status = 0
            finally:
                os._exit(status)  # nothing of the parent's is cleaned up twice
        found = mine()
        _, status = os.waitpid(child, 0)
        if status:
            return found, theirs()
        with mmap.mmap(room.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return found, pickle.loads(content)  # noqa: S301 - from the process that this one forked


def _between() -> IO[bytes]:
    """Return a file that only this process and those that it forks have; a pipe would hold up who writes much."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("scan"), "w+b")
    from tempfile import TemporaryFile

    return TemporaryFile()

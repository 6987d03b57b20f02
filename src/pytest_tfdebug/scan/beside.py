"""Two pieces of work at once, each in a process."""

from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

#: Whether a second process can be had, and a processor for it.
HAS_SECOND = hasattr(os, "fork") and (os.cpu_count() or 1) > 1


def beside(mine: Callable[[], _T], theirs: Callable[[], _T]) -> tuple[_T, _T]:
    """Return what two functions return, the second run by a process of its own; it must not have threads.

    If that process fails, this one does its work.
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(theirs(), pipe, protocol=5)
            status = 0
        finally:
            os._exit(status)  # nothing of the parent's is cleaned up twice
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        found = mine()
        content = pipe.read()
    _, status = os.waitpid(child, 0)
    return found, theirs() if status else pickle.loads(content)  # noqa: S301 - from the process that this one forked

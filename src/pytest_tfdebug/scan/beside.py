"""One list of work for two processes, which meet where both together are through with it."""

from __future__ import annotations

import mmap
import os
import pickle
from typing import IO, TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_I = TypeVar("_I")
_T = TypeVar("_T")

#: Whether a second process can be had, and a processor for it.
HAS_SECOND = hasattr(os, "fork") and (os.cpu_count() or 1) > 1
#: Shares that this process works on while the other hands over what it found.
_LAST = 4
#: Bytes that a pipe holds on every system.
_CLAIMS = 4096


def beside(items: Sequence[_I], work: Callable[[int, Iterable[_I]], _T]) -> tuple[_T, _T]:
    """Return what a function makes of items in two processes, which must not have threads.

    This process (0) takes the items from the front, the other (1) from the back, each the next one when it is through
    with its last, so that a slow processor takes fewer. If the other process fails, this one does its work.
    """
    size = -(-len(items) // _CLAIMS) or 1
    shares = [items[at : at + size] for at in range(0, len(items), size)]
    last = min(_LAST, len(shares))
    claims, sink = os.pipe()
    os.write(sink, bytes(len(shares) - last))
    os.close(sink)
    with _between() as room, os.fdopen(claims, "rb", buffering=0) as left:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                _hand_over(work(1, _claimed(reversed(shares), left, 0, [])), room)
                status = 0
            finally:
                os._exit(status)  # nothing of the parent's is cleaned up twice
        mine: list[_I] = []
        found = work(0, _claimed(shares, left, last, mine))
        _, status = os.waitpid(child, 0)
        return found, work(1, items[len(mine) :]) if status else _handed_over(room)


def _claimed(shares: Iterable[Sequence[_I]], left: IO[bytes], last: int, mine: list[_I]) -> Iterator[_I]:
    """Yield the items of shares, each for a byte that is left in a pipe which two processes read, and some more."""
    for share in shares:
        if not left.read(1):
            if last == 0:
                return
            last -= 1
        mine.extend(share)
        yield from share


def _hand_over(found: object, room: IO[bytes]) -> None:
    """Write what was found, its buffers apart so that nobody copies them."""
    buffers: list[pickle.PickleBuffer] = []
    pieces: list[bytes | memoryview] = [pickle.dumps(found, protocol=5, buffer_callback=buffers.append)]
    pieces += [buffer.raw() for buffer in buffers]
    pickle.dump([len(piece) for piece in pieces], room)
    room.writelines(pieces)
    room.flush()


def _handed_over(room: IO[bytes]) -> Any:  # noqa: ANN401 - what the other process found
    room.seek(0)
    sizes = pickle.load(room)  # noqa: S301 - from the process that this one forked
    content = memoryview(mmap.mmap(room.fileno(), 0, access=mmap.ACCESS_READ))
    pieces, at = [], room.tell()
    for size in sizes:
        pieces.append(content[at : at + size])
        at += size
    return pickle.loads(pieces[0], buffers=pieces[1:])  # noqa: S301


def _between() -> IO[bytes]:
    """Return a file that only this process and those that it forks have; a pipe would hold up who writes much."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("scan"), "w+b")
    from tempfile import TemporaryFile

    return TemporaryFile()

"""What earlier runs answered, in the user's cache directory.

An answer is kept with everything that the work tree replied on the way to it, so that it stands as long as the tree
would reply as before. It is one file, replaced atomically: of concurrent runs the last one wins, and every one of them
reads a whole file.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import mmap
import os
import sys
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING

from pytest_tfdebug.scan.answer import Answer
from pytest_tfdebug.scan.files import replace
from pytest_tfdebug.scan.tree import Record, digest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from typing_extensions import Buffer

    from pytest_tfdebug.scan.tree import DiskTree


def directory() -> str:
    """Return the user's cache directory of this package.

    Source:
        https://specifications.freedesktop.org/basedir-spec/latest/ and its equivalents on macOS and Windows.
    """
    home = os.path.expanduser("~")
    default = {"darwin": f"{home}/Library/Caches", "win32": f"{home}/AppData/Local"}.get(sys.platform, f"{home}/.cache")
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    return os.path.join(os.environ.get(variable) or default, "pytest-tfdebug", "scan")


class Cache:
    """The cache of one repository.

    Args:
        root: The repository.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        name = digest(f"{os.path.realpath(root)}\0{_version()}".encode(errors="surrogateescape"))
        self._directory = os.path.join(directory(), name)

    def path(self, name: str) -> str:
        """Return where something is kept."""
        return os.path.join(self._directory, name)

    def keep(self, name: str, pieces: Iterable[Buffer]) -> None:
        """Keep something; a cache that cannot be written is no error."""
        with suppress(OSError):
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            replace(self.path(name), pieces)

    def answer(self, name: str, tree: DiskTree) -> Answer | None:
        """Return an earlier answer if the tree still replies to all its questions as before.

        Args:
            name: The name of the answer.
            tree: The tree.
        """
        try:
            with open(self.path(f"{name}.answer"), "rb") as file:
                head = json.loads(file.readline())
                if not Record(*head["record"]).holds(tree):
                    return None
                report = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[file.tell() :]
            return Answer(name, [report], *head["about"]) if zlib.crc32(report) == head["sum"] else None
        except (OSError, ValueError, LookupError, TypeError):
            return None

    def keep_answer(self, answer: Answer, record: Record) -> None:
        """Keep an answer with the questions that it rests on."""
        total = functools.reduce(lambda found, piece: zlib.crc32(piece, found), answer.json, 0)
        head = {"record": record, "about": answer[2:], "sum": total}
        self.keep(f"{answer.name}.answer", [json.dumps(head, separators=(",", ":")).encode(), b"\n", *answer.json])


def _version() -> str:
    """Return what changes whenever this package, libcst or Python does."""
    here = os.path.dirname(__file__)
    with os.scandir(here) as entries:
        sources = sorted((entry.name, entry.stat().st_mtime_ns) for entry in entries if entry.name.endswith(".py"))
    libcst = importlib.util.find_spec("libcst")
    stamp = os.stat(libcst.origin).st_mtime_ns if libcst is not None and libcst.origin is not None else 0
    return f"{sources}{stamp}{sys.version_info}"

"""What the last scans of a repository found, in one file of the user's cache directory.

The file is replaced, never added to, and holds the last few answers: a checksum and JSON. What is read is treated as
untrusted input: a file that is not whole, or an answer that is not of the right types, is ignored, and the scan starts
cold.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import zlib
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.read.files import check_json, read, replace
from pytest_tfdebug.scan.read.tree import digest

if TYPE_CHECKING:
    from pytest_tfdebug.scan.read.tree import Record

#: Answers that are kept, and bytes of all together; one of transformers takes 100 kB.
_ANSWERS, _MOST = 8, 17_000_000
_MARK = "pytest-tfdebug scan 2"
#: The errors that may come of reading what this package did not write.
MISTAKES = (ValueError, TypeError, LookupError, AttributeError, OverflowError, RecursionError, MemoryError)


class Head(NamedTuple):
    """What is kept of an answer.

    It is valid as long as the work tree says the same as ``record``. ``size`` and ``checksum`` are those of the report.
    """

    record: Record
    bad: dict[str, str]
    unresolved: list[str]
    summary: str
    size: int
    checksum: int


class Cache:
    """The cache of one repository, with a models directory that the user named or an empty one."""

    def __init__(self, root: str | os.PathLike[str], models_dir: str) -> None:
        name = digest(f"{os.path.realpath(root)}\n{models_dir}".encode(errors="surrogateescape"))
        self._path = os.path.join(directory(), f"{name}.answers")
        self._version, self._heads = [_MARK, _version()], dict[str, Any]()
        with suppress(OSError, *MISTAKES):
            version, heads = json.loads(_whole(read(self._path, _MOST)))
            self._heads = dict(heads) if version == self._version else {}

    def head(self, name: str) -> Head | None:
        """Return what is kept of an answer; None where there is none, or it is not what it should be."""
        with suppress(*MISTAKES):
            return _head(self._heads[name])
        return None

    def keep(self, name: str, head: Head) -> None:
        """Keep an answer in place of what was kept under its name; a cache that cannot be written is no error."""
        others = {other: kept for other in self._heads if other != name and (kept := self.head(other)) is not None}
        self._heads = dict(islice({name: head, **others}.items(), _ANSWERS))
        text = _text([self._version, self._heads])
        if len(text) <= _MOST:
            with suppress(OSError):
                os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
                replace(self._path, [text])


def _text(value: object) -> bytes:
    """Return the text of the file: a checksum and JSON."""
    text = json.dumps(value, separators=(",", ":")).encode()
    return b"%08x %b" % (zlib.crc32(text), text)


def _whole(content: bytes) -> bytes:
    """Return the JSON of the file; a ValueError says that its checksum is wrong, or that it holds too many values."""
    if content[:9] != b"%08x " % zlib.crc32(check_json(content)[9:]):
        raise ValueError("not whole")
    return content[9:]


def _head(found: Any) -> Head:
    """Return a head from what JSON holds; a ValueError says that something in it is of another type."""
    record, bad, unresolved, summary, size, checksum = found
    texts = (*record.values(), *bad.values(), *unresolved, summary)
    if not all(isinstance(text, str) for text in texts) or isinstance(unresolved, str):
        raise ValueError("not a head")
    return Head(record, bad, unresolved, summary, int(size), int(checksum))


def directory() -> str:
    """Return the user's cache directory of this package.

    Source:
        https://specifications.freedesktop.org/basedir-spec/latest/ and its equivalents on macOS and Windows.
    """
    home = os.path.expanduser("~")
    default = {"darwin": f"{home}/Library/Caches", "win32": f"{home}/AppData/Local"}.get(sys.platform, f"{home}/.cache")
    variable = "LOCALAPPDATA" if sys.platform == "win32" else "XDG_CACHE_HOME"
    return os.path.join(os.environ.get(variable) or default, "pytest-tfdebug", "scan")


def _version() -> str:
    """Return what changes whenever this package, libcst or Python does."""
    here = os.path.dirname(__file__)
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(here) for name in names)
    sources = sorted((path, os.stat(path).st_mtime_ns) for path in paths if path.endswith(".py"))
    libcst = importlib.util.find_spec("libcst")
    stamp = os.stat(libcst.origin).st_mtime_ns if libcst is not None and libcst.origin is not None else 0
    return digest(f"{sources}{stamp}{sys.version_info}".encode())

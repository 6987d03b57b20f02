"""Where one golden is kept: in a directory of this machine, or behind a URL: a bucket, a repository of the hub, memory.

A golden that was read from a URL is kept on this machine under what the server says of it, so each version is read
only once.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.marker_arguments import several
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.tracing.record.replacing import replace_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
#: What is no file, by the first letter of its mode as ``ls`` writes it.
_KINDS = {"d": "a directory", "p": "a FIFO", "s": "a socket"}


@dataclass(frozen=True)
class GoldenPlace:
    """Where one golden is kept."""

    directory: Path | RemoteDirectory  # the directory that keeps it, of this machine or behind a URL
    name: str  # its name there

    def __str__(self) -> str:
        return str(self._fetch()) if isinstance(self.directory, Path) else self.directory.named(self.name)

    def _fetch(self) -> Path:
        return self.directory / self.name if isinstance(self.directory, Path) else self.directory.fetch(self.name)

    def exists(self) -> bool:
        """Tell whether there is a golden, and that it can be read."""
        return is_readable_golden(self._fetch()) if isinstance(self.directory, Path) else self.directory.has(self.name)

    def read(self, reader: Callable[[Path], T]) -> T:
        """Return what a reader makes of the golden; a copy of this machine that is damaged is fetched once more."""
        try:
            return self._read(reader)
        except GoldenError:
            if isinstance(self.directory, Path):
                raise
            self.directory.forget(self.name)
            return self._read(reader)

    def _read(self, reader: Callable[[Path], T]) -> T:
        file = self._fetch()
        with self.names(file):
            return reader(file)

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """Give a file of this machine to write to; it begins as a copy of the golden, if there is one.

        At the end the file is put in this place, unless nothing was written to it. A golden of this machine needs no
        copy: the block gets the golden itself.
        """
        if isinstance(self.directory, Path):
            yield self._fetch()
            return
        with tempfile.TemporaryDirectory(prefix="tfdebug-") as folder:
            file = Path(folder) / "golden"
            before = self._fetch().read_bytes() if self.exists() else b""
            if before:
                file.write_bytes(before)
            with self.names(file):
                yield file
            if file.exists() and file.read_bytes() != before:
                self.directory.put(self.name, file)

    @contextmanager
    def names(self, file: Path) -> Iterator[None]:
        """Call a file of this machine by the golden's own name in errors."""
        try:
            yield
        except GoldenError as error:
            raise type(error)(str(error).replace(str(file), str(self))) from error


def is_readable_golden(path: Path) -> bool:
    """Tell whether a path is a file that can be read.

    It opens nothing that is not a regular file: opening a FIFO waits until somebody writes to it.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise GoldenError(f"{path} is {_KINDS.get(stat.filemode(mode)[0], 'a device')}, not a golden.")
        with path.open("rb") as file:
            if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise GoldenError(
                    f"{path} is a git-lfs pointer: the golden itself was not downloaded.\n"
                    "To download it, run: git lfs pull"
                )
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            raise GoldenError(f"{path} is a symlink to {os.readlink(path)}, which does not exist.") from error  # noqa: PTH115 - as it is written
        return False
    except OSError as error:
        raise GoldenError(f"{path} cannot be read: {error.strerror}.") from error
    return True


#: File systems that have directories; in a store of objects, to make one may be to make a bucket.
_WITH_DIRECTORIES = frozenset({"file", "local", "ftp", "sftp", "ssh", "smb", "hdfs", "arrow_hdfs", "webhdfs"})


class RemoteDirectory:
    """Goldens behind a URL."""

    def __init__(self, url: str, cache: Path | None = None) -> None:
        self._url = url.rstrip("/")
        self._cache = (cache or cache_directory()) / sha256(self._url.encode()).hexdigest()[:16]
        self._entries: dict[str, dict[str, Any]] = {}
        import fsspec

        with _Told(self._url, "reached"):
            self._files, self._root = fsspec.core.url_to_fs(self._url)

    def named(self, name: str) -> str:
        """Return the golden's URL, without credentials."""
        return redact(f"{self._url}/{name}")

    def has(self, name: str) -> bool:
        """Tell whether there is such a golden."""
        return bool(self._entry(name))

    def fetch(self, name: str) -> Path:
        """Return a copy of the golden on this machine, and forget those of its earlier versions."""

        def download(temporary: str) -> None:
            with _Told(self.named(name), "read"):  # what the server raises is no fault of the copy
                self._files.get_file(self._at(name), temporary)

        copy = self._copy(name)
        if not copy.exists():
            replace_atomically(copy, download)
            for other in copy.parent.iterdir():
                with suppress(OSError):  # another run is writing there
                    if other != copy:
                        other.unlink()
        with _Told(self.named(name), "read"), GoldenPlace(self, name).names(copy):
            is_readable_golden(copy)
        return copy

    def forget(self, name: str) -> None:
        """Delete the copy of a golden on this machine: one that was damaged on its way is not read for ever."""
        self._copy(name).unlink(missing_ok=True)

    def _copy(self, name: str) -> Path:
        version = repr(sorted(self._entry(name).items()))
        return self._cache / name / sha256(version.encode()).hexdigest()[:32]

    def put(self, name: str, file: Path) -> None:
        """Put a copy of a file in the place of a golden; until then, others read the whole old golden."""
        self._entries.pop(name, None)
        with _Told(self.named(name), "written"), self._files.transaction:
            if not _WITH_DIRECTORIES.isdisjoint(several(self._files.protocol)):
                self._files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
            with file.open("rb") as source, self._files.open(self._at(name), "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"

    def _entry(self, name: str) -> dict[str, Any]:
        """Return what the server says of a golden, which changes with its versions; nothing where there is none."""
        if name not in self._entries:
            with _Told(self.named(name), "read"):
                self._files.invalidate_cache()
                try:
                    entry = self._files.info(self._at(name))
                except FileNotFoundError as error:
                    if getattr(error.__cause__, "status", 404) != 404:  # noqa: PLR2004 - aiohttp's, of a broken server
                        raise OSError(str(error.__cause__)) from error
                    entry = {}
            self._entries[name] = entry if entry.get("type") == "file" else {}
        return self._entries[name]


class _Told:
    """Turns what a file system raises into a GoldenError; a generator would leave lines of contextlib in a report."""

    def __init__(self, url: str, done: str) -> None:
        self._url, self._done = url, done

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, GoldenError):  # every file system has its own
            why = redact(str(error).strip() or type(error).__name__)
            raise GoldenError(f"{redact(self._url)} cannot be {self._done}: {why}") from error


def cache_directory() -> Path:
    """Return where goldens behind URLs are kept on this machine."""
    home = Path.home()
    default = {"darwin": home / "Library/Caches", "win32": home / "AppData/Local"}.get(sys.platform, home / ".cache")
    return Path(os.environ.get("XDG_CACHE_HOME") or default) / "pytest-tfdebug" / "goldens"

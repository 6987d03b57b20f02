"""Where one golden is kept: in a directory of this machine, or behind a URL."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_tfdebug.errors import GoldenError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.goldens.store.remote import RemoteDirectory

T = TypeVar("T")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
#: What is no file, by the first letter of its mode as ``ls`` writes it.
_KINDS = {"d": "a directory", "p": "a FIFO", "s": "a socket"}


@dataclass(frozen=True)
class LocalDirectory:
    """A directory of this machine."""

    root: Path

    def named(self, name: str) -> str:
        """Return the golden's path."""
        return str(self.fetch(name))

    def has(self, name: str) -> bool:
        """Tell whether there is such a golden, and that it can be read."""
        return is_readable_golden(self.root / name)

    def fetch(self, name: str) -> Path:
        """Return the golden's path."""
        return self.root / name


@dataclass(frozen=True)
class GoldenPlace:
    """Where one golden is kept."""

    directory: LocalDirectory | RemoteDirectory  # the directory that keeps it
    name: str  # its name there

    def __str__(self) -> str:
        return self.directory.named(self.name)

    def exists(self) -> bool:
        """Tell whether there is a golden, and that it can be read."""
        return self.directory.has(self.name)

    def read(self, reader: Callable[[Path], T]) -> T:
        """Return what a reader makes of the golden; a copy of this machine that is damaged is fetched once more."""
        try:
            return self._read(reader)
        except GoldenError:
            if isinstance(self.directory, LocalDirectory):
                raise
            self.directory.forget(self.name)
            return self._read(reader)

    def _read(self, reader: Callable[[Path], T]) -> T:
        file = self.directory.fetch(self.name)
        with self.names(file):
            return reader(file)

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """Give a file of this machine to write to; it begins as a copy of the golden, if there is one.

        At the end the file is put in this place, unless nothing was written to it. A golden of this machine needs no
        copy: the block gets the golden itself.
        """
        if isinstance(self.directory, LocalDirectory):
            yield self.directory.fetch(self.name)
            return
        with tempfile.TemporaryDirectory(prefix="tfdebug-") as folder:
            file = Path(folder) / "golden"
            before = self.directory.fetch(self.name).read_bytes() if self.exists() else b""
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

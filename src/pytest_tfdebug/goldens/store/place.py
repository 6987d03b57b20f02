"""Where one golden is kept: in a directory of this machine, or behind a URL."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.tracing.file.codec import ADVICE
from pytest_tfdebug.tracing.record.replacing import replace_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"
_LFS_ADVICE = "To download it, run: git lfs pull"
#: What to do about a golden behind a URL, in place of what helps where it is a file of a repository.
_ADVICE_AT_URL = {
    ADVICE: "Restore it, or record it again with --tf-golden=update.",
    _LFS_ADVICE: "Restore its target; git lfs pull downloads it.",
}


class Directory(Protocol):
    """What keeps goldens by names such as ``test_port/test_port.safetensors``."""

    def named(self, name: str) -> str:
        """Return what a golden is called in messages: a path or a URL."""

    def has(self, name: str) -> bool:
        """Tell whether there is such a golden."""

    def fetch(self, name: str) -> Path:
        """Return the file of a golden on this machine."""

    def put(self, name: str, file: Path) -> None:
        """Put a copy of a file in the place of a golden, in one step."""

    def forget(self, name: str) -> bool:
        """Delete the copy of a golden on this machine; return whether there was one, so that it can be fetched anew."""


@dataclass(frozen=True)
class LocalDirectory:
    """A directory of this machine."""

    root: Path

    def named(self, name: str) -> str:
        """Return the golden's path."""
        return str(self.root / name)

    def has(self, name: str) -> bool:
        """Tell whether there is such a golden, and that it can be read."""
        return is_readable_golden(self.root / name)

    def fetch(self, name: str) -> Path:
        """Return the golden's path."""
        return self.root / name

    def put(self, name: str, file: Path) -> None:
        """Put a copy of a file in the place of a golden."""
        replace_atomically(self.root / name, lambda temporary: shutil.copyfile(file, temporary))

    def forget(self, name: str) -> bool:  # noqa: ARG002 - the golden itself is here
        """Return False: there are no copies."""
        return False


@dataclass(frozen=True)
class GoldenPlace:
    """Where one golden is kept."""

    directory: Directory  # the directory that keeps it
    name: str  # its name there

    def __str__(self) -> str:
        return self.directory.named(self.name)

    def exists(self) -> bool:
        """Tell whether there is a golden, and that it can be read."""
        return self.directory.has(self.name)

    def fetch(self) -> Path:
        """Return the golden's file on this machine."""
        return self.directory.fetch(self.name)

    def read(self, reader: Callable[[Path], T]) -> T:
        """Return what a reader makes of the golden; a copy of this machine that is damaged is fetched once more."""
        is_again = False
        while True:
            file = self.fetch()
            try:
                with self.names(file):
                    return reader(file)
            except GoldenError:
                if not self.directory.forget(self.name) or is_again:
                    raise
            is_again = True

    @contextmanager
    def staged(self) -> Iterator[Path]:
        """Give a file of this machine to write to; it begins as a copy of the golden, if there is one.

        At the end the file is put in this place, unless nothing was written to it. A golden of this machine needs no
        copy: the block gets the golden itself.
        """
        if isinstance(self.directory, LocalDirectory):
            yield self.fetch()
            return
        with tempfile.TemporaryDirectory(prefix="tfdebug-") as folder:
            file = Path(folder) / "golden"
            if self.exists():
                shutil.copyfile(self.fetch(), file)
            before = _identity(file)
            with self.names(file):
                yield file
            if _identity(file) != before:
                self.directory.put(self.name, file)

    @contextmanager
    def names(self, file: Path) -> Iterator[None]:
        """Call a file of this machine by the golden's own name in errors."""
        try:
            yield
        except GoldenError as error:
            told = str(error).replace(str(file), str(self))
            advice = {} if isinstance(self.directory, LocalDirectory) else _ADVICE_AT_URL
            for here, there in advice.items():
                told = told.replace(here, there)
            raise type(error)(told) from error


def is_readable_golden(path: Path) -> bool:
    """Tell whether a path is a file that can be read.

    It opens nothing that is not a regular file: opening a FIFO waits until somebody writes to it.
    """
    try:
        mode = path.stat().st_mode
        if not stat.S_ISREG(mode):
            raise GoldenError(f"{path} is {_kind(mode)}, not a golden.")
        with path.open("rb") as file:
            if file.read(len(_LFS_POINTER)) == _LFS_POINTER:
                raise GoldenError(f"{path} is a git-lfs pointer: the golden itself was not downloaded.\n{_LFS_ADVICE}")
    except (FileNotFoundError, NotADirectoryError) as error:
        if path.is_symlink():
            raise GoldenError(f"{path} is a symlink to {os.readlink(path)}, which does not exist.") from error  # noqa: PTH115 - as it is written
        return False
    except OSError as error:
        raise GoldenError(f"{path} cannot be read: {error.strerror}.") from error
    return True


def _kind(mode: int) -> str:
    kinds = (
        (stat.S_ISDIR, "a directory"),
        (stat.S_ISFIFO, "a FIFO"),
        (stat.S_ISSOCK, "a socket"),
    )
    return next((text for is_kind, text in kinds if is_kind(mode)), "a device")


def _identity(file: Path) -> tuple[int, int, int] | None:
    try:
        known = file.stat()
    except FileNotFoundError:
        return None
    return known.st_ino, known.st_size, known.st_mtime_ns

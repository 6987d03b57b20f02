"""Where a test's goldens lie, and whether they are checked or written.

A golden is kept in a directory of this machine, or behind a URL by fsspec: a bucket, a repository of the hub, memory.
One behind a URL is read once in a run; what is kept between runs is the business of fsspec (``filecache::``).
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import tempfile
import weakref
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from http import HTTPStatus
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_tfdebug.errors import GoldenError, TFDebugError
from pytest_tfdebug.marker_arguments import several
from pytest_tfdebug.options import Options
from pytest_tfdebug.redaction import ci_server, printable, redact
from pytest_tfdebug.running import told
from pytest_tfdebug.tracing.record.replacing import replace_atomically

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest
    import torch

#: Characters that every file system takes; others become ``_`` and the name gets a hash, so that it stays unique.
_UNSAFE = re.compile(r"[^\w\-\[\]=,+.@ ]")
#: Longest file name without its ending, in bytes; file systems take 255.
_LONGEST = 150
SUFFIX = ".safetensors"


def directory_of(file: Path, config: pytest.Config, golden_dir: str | None) -> Path:
    """Return the golden directory of a test file: ``goldens/`` beside it, or the one asked for."""
    if golden_dir is not None:
        return (config.invocation_params.dir / golden_dir).resolve()
    return file.parent / "goldens"


def folder_of_file(file: Path, config: pytest.Config, golden_dir: str | None) -> Path:
    """Return the folder in the golden directory that holds the goldens of a test file."""
    return directory_of(file, config, golden_dir) / _safe(file.stem)


def golden_name(item: pytest.Item, name: str | None, *, variant: str = "") -> str:
    """Return ``<test file stem>/<test name with parameter id>[.<name>][@<variant>].safetensors``.

    Tests of a class are named ``Class.test``. Nothing that a parameter id holds leads out of the directory.
    """
    if name is not None and not (isinstance(name, str) and is_file_name(name)):
        raise TFDebugError(f"name={name!r} of a golden is made of letters, digits and -_=,+@[] (no path separators).")
    test = label_of(item)
    label = _safe(f"{test}.{name}" if name else test)
    return f"{_safe(item.path.stem)}/{label}{f'@{variant}' if variant else ''}{SUFFIX}"


def is_file_name(text: str) -> bool:
    """Tell whether a text can stand in the name of a golden as it is."""
    return bool(text) and not _UNSAFE.search(text) and text[0] != "."


def is_url(golden_dir: str | None) -> bool:
    """Tell whether a golden directory is a URL."""
    return golden_dir is not None and "://" in golden_dir


def label_of(item: pytest.Item) -> str:
    """Return the test's name within its file: ``Class.test[parameter id]``."""
    classes = item.nodeid.removesuffix(item.name).partition("::")[2].split("::")
    return ".".join([*filter(None, classes), item.name])  # a parameter id may hold "::" as well


def _safe(text: str) -> str:
    cleaned = _UNSAFE.sub("_", text)
    if cleaned == text and len(text.encode()) <= _LONGEST and not text.startswith("."):
        return text
    short = cleaned.lstrip(".").encode()[:_LONGEST].decode("utf-8", "ignore")
    return f"{short}-{blake2b(text.encode('utf-8', 'replace'), digest_size=4).hexdigest()}"


def shown(path: Path | str, config: pytest.Config) -> str:
    """Return a path as a user would type it from where pytest was started; a URL as it is."""
    if not is_url(str(path)):
        with suppress(ValueError):  # it lies elsewhere
            path = Path(path).relative_to(config.invocation_params.dir)
    return printable(str(path))


def variants(model: torch.nn.Module, chosen: str | None) -> tuple[str, ...]:
    """Return the variants that may hold a model, the most special one first; the plain golden is tried after them."""
    from pytest_tfdebug.tensors import dtype_name

    tensors = [*model.parameters(), *model.buffers()]
    device = tensors[0].device.type if tensors else "cpu"
    dtype = next((dtype_name(tensor.dtype) for tensor in tensors if tensor.is_floating_point()), "float32")
    if chosen is None:
        return (f"{device}-{dtype}", device, dtype)
    if not isinstance(chosen, str) or not is_file_name(chosen) or "@" in chosen:
        raise TFDebugError(
            f"variant={chosen!r} of a golden is not 'device', 'dtype' or a name of letters, digits and characters of "
            "-_=,+."
        )
    return ({"device": device, "dtype": dtype}.get(chosen, chosen),)


#: Modes that write.
RECORDING = frozenset({"update", "missing"})
_FLAG = "--tf-golden"
#: Where a worker of pytest-xdist finds whether the flag was typed.
TYPED = "tfdebug_typed"


def golden_mode(config: pytest.Config) -> str:
    """Return the mode of a run: that of the flag or the ini key; ``check`` where that would record unasked on CI.

    Nobody reads what a CI server writes because of an ini file, so a golden that is missing there would pass for ever.
    """
    mode = Options.of(config).golden
    return "check" if mode in RECORDING and ci_server() and not is_typed(config) else mode


def is_typed(config: pytest.Config) -> bool:
    """Tell whether the flag stands on the command line itself, not in ``addopts`` or ``PYTEST_ADDOPTS``.

    A worker of pytest-xdist is told by the process that started it.
    """
    typed: bool | None = told(config, TYPED)
    arguments = map(str, config.invocation_params.args)
    return any(it == _FLAG or it.startswith(f"{_FLAG}=") for it in arguments) if typed is None else typed


def missing(item: pytest.Item, place: GoldenPlace) -> str:
    """Say that a test has no golden yet, and what to type."""
    mode, asked = golden_mode(item.config), Options.of(item.config).golden
    told = f"{item.nodeid} has no golden yet: {shown(str(place), item.config)} does not exist.\n"
    if asked != mode:
        name = ci_server() or "CI"
        told += f"  On a CI server ({name}={os.environ.get(name)}) {_FLAG}={asked} counts only on the command line.\n"
    places = {flag: item.config.getoption(flag) for flag in ("--tf-golden-dir", "--tf-golden-variant")}
    typed = "".join(f" {quote(f'{flag}={redact(value)}')}" for flag, value in places.items() if value)
    return f"{told}To record it, run: pytest {quote(item.nodeid)} {_FLAG}=missing{typed}"


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
        """Return what a reader makes of the golden."""
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

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        self._is_there: dict[str, bool] = {}
        import fsspec

        with _Told(self._url, "reached"):
            self._files, self._root = fsspec.core.url_to_fs(self._url)

    def named(self, name: str) -> str:
        """Return the golden's URL, without credentials."""
        return redact(f"{self._url}/{name}")

    def has(self, name: str) -> bool:
        """Tell whether there is such a golden."""
        if name not in self._is_there:
            with _Told(self.named(name), "read"):
                self._files.invalidate_cache()
                try:
                    self._is_there[name] = self._files.info(self._at(name))["type"] == "file"
                except FileNotFoundError as error:
                    if not _is_answer(error.__cause__):
                        raise OSError(str(error.__cause__)) from error
                    self._is_there[name] = False
        return self._is_there[name]

    def fetch(self, name: str) -> Path:
        """Return a copy of the golden on this machine, which lasts as long as this object."""

        def download(temporary: str) -> None:
            told = _Told(self.named(name), "read")  # what the server raises is no fault of the copy
            with told, self._files.open(self._at(name), "rb") as source, Path(temporary).open("wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)

        copy = self._copies / name
        if not copy.exists():
            replace_atomically(copy, download)
        with _Told(self.named(name), "read"), GoldenPlace(self, name).names(copy):
            is_readable_golden(copy)
        return copy

    @cached_property
    def _copies(self) -> Path:
        folder = tempfile.mkdtemp(prefix="tfdebug-")
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return Path(folder)

    def put(self, name: str, file: Path) -> None:
        """Put a copy of a file in the place of a golden; until then, others read the whole old golden."""
        self._is_there.pop(name, None)
        (self._copies / name).unlink(missing_ok=True)
        with _Told(self.named(name), "written"), self._files.transaction:
            if not _WITH_DIRECTORIES.isdisjoint(several(self._files.protocol)):
                self._files.makedirs(self._at(name).rpartition("/")[0], exist_ok=True)
            with file.open("rb") as source, self._files.open(self._at(name), "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)

    def _at(self, name: str) -> str:
        return f"{self._root}/{name}"


def _is_answer(cause: BaseException | None) -> bool:
    """Tell whether a server that was asked for a file has said that there is none; fsspec says so of any failure."""
    status = getattr(cause, "status", None)  # aiohttp's, of a server that answers
    if status is not None:
        return bool(status == HTTPStatus.NOT_FOUND)
    return isinstance(cause, FileNotFoundError) or not isinstance(cause, OSError)


class _Told(AbstractContextManager[Any]):
    """Turns what a file system raises into a GoldenError; a generator would leave lines of contextlib in a report."""

    def __init__(self, url: str, done: str) -> None:
        self._url, self._done = url, done

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, GoldenError):  # every file system has its own
            why = redact(str(error).strip() or type(error).__name__)
            raise GoldenError(f"{redact(self._url)} cannot be {self._done}: {why}") from error

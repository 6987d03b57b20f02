"""Put a file in its place in one step, and sweep what killed writers left behind."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
import time
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import GoldenError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Ending of the directories in which files are written: ``.<machine>-<process>-<random>`` and this.
PARTIAL = ".tfdebug-partial"
_WRITER = re.compile(rf"\.(?P<machine>[0-9a-f]{{8}})-(?P<process>\d+)-\w+{re.escape(PARTIAL)}")
#: What safetensors itself writes to before it renames.
_OF_SAFETENSORS = re.compile(r"\.tmp[0-9A-Za-z]{6}")
#: Seconds after which a partial file is abandoned where it cannot be known whether its writer lives.
_ABANDONED_AFTER = 3600.0


def replace_atomically(path: Path, fill: Callable[[str], object]) -> None:
    """Let ``fill`` write a file in a directory of its own beside ``path``, then put it in the place of ``path``."""
    from safetensors import SafetensorError

    folder: str | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(dir=path.parent, prefix=f".{_machine()}-{os.getpid()}-", suffix=PARTIAL)
        temporary = os.path.join(folder, path.name)  # noqa: PTH118 - a text, as fill takes it
        fill(temporary)
        os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101 - safetensors makes files private
        os.replace(temporary, path)  # noqa: PTH105
    except OSError as error:
        raise GoldenError(f"{path} cannot be written: {error.strerror or error}.") from error
    except SafetensorError as error:
        raise GoldenError(f"{path} cannot be written: {error}.") from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def sweep(directory: Path) -> None:
    """Delete what processes that were killed while they wrote have left in a directory."""
    try:
        entries = list(os.scandir(directory))
    except OSError:  # there is none yet, or it cannot be read, which whoever uses it will say
        return
    for entry in entries:
        with suppress(OSError):  # another process may have swept it
            if not _is_abandoned(entry):
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()


def _is_abandoned(entry: os.DirEntry[str]) -> bool:
    is_ours = entry.name.startswith(".") and entry.name.endswith(PARTIAL)
    if not is_ours and not (_OF_SAFETENSORS.fullmatch(entry.name) and entry.is_file(follow_symlinks=False)):
        return False
    writer = _WRITER.fullmatch(entry.name)
    if writer is not None and writer["machine"] == _machine() and not _is_alive(int(writer["process"])):
        return True
    return time.time() - entry.stat(follow_symlinks=False).st_mtime > _ABANDONED_AFTER


def _is_alive(process: int) -> bool:
    if os.name == "nt":  # where signal 0 is Ctrl-C
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # another user's process
        return True
    return True


@cache
def _machine() -> str:
    """Name the machine, and the container in it, whose process numbers are those of this process."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")  # noqa: PTH115
    except OSError:
        namespace = ""
    return blake2b(f"{platform.node()}{namespace}".encode(), digest_size=4).hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

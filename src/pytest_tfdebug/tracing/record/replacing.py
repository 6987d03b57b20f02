"""Put a file in its place in one step."""

from __future__ import annotations

import os
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import GoldenError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Ending of the directories in which files are written.
PARTIAL = ".tfdebug-partial"


def replace_atomically(path: Path, fill: Callable[[str], object]) -> None:
    """Let ``fill`` write a file in a directory of its own beside ``path``, then put it in the place of ``path``."""
    from safetensors import SafetensorError

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".", suffix=PARTIAL, dir=path.parent, ignore_cleanup_errors=True) as folder:
            temporary = os.path.join(folder, path.name)  # noqa: PTH118 - a text, as fill takes it
            fill(temporary)
            os.chmod(temporary, 0o666 & ~_umask())  # noqa: PTH101 - safetensors makes files private
            os.replace(temporary, path)  # noqa: PTH105
    except (OSError, SafetensorError) as error:
        raise GoldenError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}.") from error


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

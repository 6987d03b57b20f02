"""What reading a repro's file raises: one error that names it, whatever the bytes in it made of its reader."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Name the file that is read in the block.

    Raises:
        TFDebugError: If the block raises.
    """
    try:
        yield
    except Exception as error:
        brief = str(error).strip().partition("\n")[0]
        raise TFDebugError(f"{file} cannot be read: {type(error).__name__}: {brief}") from error

"""One error for every repro's file that cannot be read, whatever its bytes make the reader raise."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def reading(file: Path) -> Iterator[None]:
    """Turn whatever the block raises into an error that names the file.

    Raises:
        TFDebugError: If the block raises.
    """
    try:
        yield
    except Exception as error:
        brief = str(error).strip().partition("\n")[0]
        raise TFDebugError(f"{file} cannot be read: {type(error).__name__}: {brief}") from error

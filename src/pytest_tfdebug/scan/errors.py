"""What the scanner raises when it cannot answer."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Library -> the extra of this package that installs it.
_EXTRAS = {"libcst": "scan", "tqdm": "scan", "pandas": "tables"}


class ScanError(Exception):
    """The scan has no answer to give; the message is one line and says what to do instead."""


class BadSourceError(Exception):
    """A file that is not a readable Python module; the message is the reason, for the list of skipped files."""


@contextmanager
def naming_the_extra() -> Iterator[None]:
    """Say what to install where a library is missing that only an extra brings.

    Raises:
        ScanError: If such a library is missing.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get(error.name or "")
        if extra is None:
            raise
        raise ScanError(f"{error.name} is not installed. Type: pip install 'pytest-tfdebug[{extra}]'") from error

"""What the scanner raises when it cannot answer, and what it says of bases that it does not know."""

from __future__ import annotations

from typing import NamedTuple


class ScanError(Exception):
    """The scan has no answer to give; the message is one line and says what to do instead."""


class BadSourceError(Exception):
    """A file that is not a readable Python module; the message is the reason, for the list of skipped files."""


class Unresolved(NamedTuple):
    """A base class that is neither in the repository nor known by name."""

    base: str
    cls: str
    path: str
    line: int

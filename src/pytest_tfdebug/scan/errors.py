"""What the scanner raises when it cannot answer."""

from __future__ import annotations


class ScanError(Exception):
    """The scan has no answer to give; the message is one line and says what to do instead."""


class BadSourceError(Exception):
    """A file that is not a readable Python module; the message is the reason, for the list of skipped files."""

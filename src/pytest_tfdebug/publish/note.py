"""Where every check that has ended leaves its record, until the report of its test is made."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from pytest_tfdebug.check_record import CheckRecord, Lines
from pytest_tfdebug.options import Options

if TYPE_CHECKING:
    from collections.abc import Callable

    from _pytest._code.code import ExceptionChainRepr, ReprExceptionInfo

    _Shown = ReprExceptionInfo | ExceptionChainRepr

#: Records of the running test whose report has not been made yet.
NOTED: pytest.StashKey[list[CheckRecord]] = pytest.StashKey()
#: Name of the plugin that takes the records, where a page, a file or annotations are asked for.
PUBLISHER = "tfdebug-publisher"


def note(item: pytest.Item, record: CheckRecord) -> None:
    """Leave the record of a check that has ended."""
    item.stash.setdefault(NOTED, []).append(record)


def wants_details(config: pytest.Config) -> bool:
    """Tell whether somebody reads more of a check than its verdict: a page or a file."""
    chosen = Options.of(config)
    return bool(chosen.html or chosen.json)


def calling_line(is_own: Callable[[str], bool]) -> Lines | None:
    """Return the line of the user's code that is running now, innermost first; None where there is none.

    Args:
        is_own: Tells of a file whether it is a library's, whose lines nobody means.
    """
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller's frame
    while frame is not None and is_own(frame.f_code.co_filename):
        frame = frame.f_back  # type: ignore[assignment] # None ends the loop
    return None if frame is None else Lines(frame.f_code.co_filename, frame.f_lineno, frame.f_lineno)


def at_line(shown: _Shown, at: Lines | None) -> _Shown:
    """Return the report of an exception with the user's line in the place of the one that raised it."""
    if shown.reprcrash is not None and at is not None:
        shown.reprcrash.path, shown.reprcrash.lineno = at.file, at.first
    return shown

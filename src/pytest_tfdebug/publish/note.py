"""Keeps the records of finished checks until the report of their test is made."""

from __future__ import annotations

import os
import sys
import sysconfig
from functools import cache
from typing import TYPE_CHECKING

import pytest

from pytest_tfdebug.options import Options

if TYPE_CHECKING:
    from types import FrameType

    from pytest_tfdebug.check_record import CheckRecord
    from pytest_tfdebug.errors import CheckError
    from pytest_tfdebug.records import SourceRange

#: Packages that are often installed from a checkout; their lines are never the user's.
_LIBRARIES = frozenset({"pytest_tfdebug", "torch", "transformers"})
#: Packages that call every test.
_RUNNERS = frozenset({"_pytest", "pluggy"})
#: Records of the running test whose report has not been made yet.
NOTED: pytest.StashKey[list[CheckRecord]] = pytest.StashKey()
#: The error that one of our markers failed a test with, and the user's line to show it at.
RAISED: pytest.StashKey[tuple[CheckError, SourceRange | None]] = pytest.StashKey()
#: Name of the plugin that takes the records if pages, a JSON file or annotations are asked for.
PUBLISHER = "tfdebug-publisher"


def note(node: pytest.Item | pytest.Collector, record: CheckRecord) -> None:
    """Keep the record of a finished check, or of a failure that triage explains."""
    node.stash.setdefault(NOTED, []).append(record)


def raised(item: pytest.Item, error: CheckError, at: SourceRange | None) -> CheckError:
    """Return an error that a marker raises; its report will show the user's line and none of ours."""
    item.stash[RAISED] = error, at
    return error


def wants_details(config: pytest.Config) -> bool:
    """Tell whether somebody reads more of a check than its verdict: a page or a file."""
    chosen = Options.of(config)
    return bool(chosen.html or chosen.json)


def calling_line() -> SourceRange | None:
    """Return the innermost line of the user's code that is running now; None if there is none."""
    from pytest_tfdebug.records import SourceRange

    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to a caller's frame
    while frame is not None and _package(frame) not in _RUNNERS:
        if not is_library(frame):
            return SourceRange(frame.f_code.co_filename, frame.f_lineno, frame.f_lineno)
        frame = frame.f_back
    return None


def _package(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__")).partition(".")[0]


def is_library(frame: FrameType) -> bool:
    """Tell whether a frame runs an installed package, or one of ``_LIBRARIES`` wherever its source is."""
    return _package(frame) in _LIBRARIES or frame.f_code.co_filename.startswith(_installed())


@cache
def _installed() -> tuple[str, ...]:
    """Return the beginnings of the paths of installed files, and ``<`` for code that is in no file."""
    folders = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    return (*(f"{folder}{os.sep}" for folder in folders), "<")

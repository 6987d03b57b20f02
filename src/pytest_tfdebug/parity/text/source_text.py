"""The text of some lines of source with the function around them, also of a file that was recorded elsewhere."""

from __future__ import annotations

import linecache
import sys
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfdebug.check_record import SourceText

if TYPE_CHECKING:
    from pytest_tfdebug.records import SourceRange

#: Lines that are shown before and after those that are meant, at most.
_AROUND = 40
#: Lines around those whose function is not known.
_UNKNOWN = 6


def source_text(meant: SourceRange | None, around: SourceRange | None) -> SourceText | None:
    """Return the text of some lines with what stands around them; None where nothing can be read."""
    if meant is None:
        return None if around is None else _piece(around.file, around.first, around.last, None)
    is_inside = around is not None and around.file == meant.file and around.first <= meant.first <= around.last
    if around is not None and is_inside:
        first, last = max(around.first, meant.first - _AROUND), min(around.last, meant.last + _AROUND)
    else:
        first, last = max(1, meant.first - _UNKNOWN), meant.last + _UNKNOWN
    found = _piece(meant.file, first, last, meant)
    recorded = tuple(meant.code.splitlines())
    if recorded and (found is None or not _holds(found, meant, recorded)):  # another version of the file is installed
        return SourceText(meant.file, meant.first, recorded, meant)
    return found


def _holds(found: SourceText, meant: SourceRange, recorded: tuple[str, ...]) -> bool:
    begin = meant.first - found.first
    there = found.text[begin : begin + len(recorded)]
    return [line.strip() for line in there] == [line.strip() for line in recorded]


def _piece(file: str, first: int, last: int, marked: SourceRange | None) -> SourceText | None:
    path = on_disk(file)
    text = linecache.getlines(path)[first - 1 : last]
    return SourceText(path, first, tuple(line.rstrip("\n") for line in text), marked) if text else None


@lru_cache(maxsize=256)
def on_disk(file: str) -> str:
    """Return where a file is that is named as it is imported."""
    if Path(file).is_absolute():
        return file
    folders = (Path(folder or ".") / file for folder in sys.path)
    return next((str(path) for path in folders if path.is_file()), file)

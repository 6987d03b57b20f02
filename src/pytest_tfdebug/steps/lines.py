"""The lines under way as an operator runs, up to the forward of the nearest module that has source."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.tracing.record.sites import MODULE_FILE, is_library
from pytest_tfdebug.values import Line

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

#: Frames between a line of a forward and what it calls.
_MAX_FRAMES = 24


def lines_under_way() -> tuple[Line, ...]:
    """Return the lines under way, innermost first, up to the forward of the nearest module that has source."""
    found: list[Line] = []
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the running frame
    while frame is not None and len(found) < _MAX_FRAMES:
        code = frame.f_code
        if code is watched.__code__ or (found and code.co_filename == MODULE_FILE):
            break
        if not is_library(code.co_filename) and "importlib" not in code.co_filename:
            found.append(Line(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return tuple(found)


def watched(watch: AbstractContextManager[Any], run: Callable[[], Any]) -> Any:  # noqa: ANN401 - what the run returns
    """Run a function under watch; its frame ends what is said of lines."""
    with watch:
        return run()

"""Where an exception of a model was raised."""

from __future__ import annotations

import traceback

from pytest_tfdebug.tracing.sites import is_library, shown_line


def raised_at(error: BaseException) -> str:
    """Return the innermost line outside torch and this package, ``modeling_llama.py:120``; empty without one."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [place for place in frames if not is_library(place[0])]
    return shown_line(own[-1]) if own else ""

"""Text that came from elsewhere, made safe to print: escaped, without secrets, cut to a length."""

from __future__ import annotations

import re

from pytest_tfdebug.errors import listed
from pytest_tfdebug.redaction import leaving, redact

#: Characters of one shown value, of one line, and lines of one report.
VALUE_LIMIT = 160
LINE_LIMIT = 400
LINES_LIMIT = 40
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")


def strip_colour(text: str) -> str:
    """Return the text without ANSI sequences."""
    return _ANSI.sub("", text)


def value(text: object, limit: int = VALUE_LIMIT) -> str:
    """Return one value for use inside a line: on one line, escaped, without secrets, cut in the middle."""
    whole = redact(strip_colour(str(text)[: 100 * limit]))[: 50 * limit]  # half a secret has no form to know it by
    return cut(leaving(" ".join(whole.split())), limit)


def line(text: str) -> str:
    """Return one line of a report, with its own indentation."""
    return cut(leaving(strip_colour(text)), LINE_LIMIT)


def cut(text: str, limit: int) -> str:
    """Return the text with its middle left out if it is longer than ``limit`` characters."""
    if len(text) <= limit:
        return text
    left = f" ... {len(text) - limit} characters ... "
    head = max(1, (limit - len(left)) * 2 // 3)
    tail = max(1, limit - len(left) - head)
    return f"{text[:head]}{left}{text[-tail:]}"


def listing(names: list[str], shown: int = 6) -> str:
    """Return the first names as part of a sentence, and how many more there are: ``a, b, c and 4 more``."""
    return listed([value(name, 80) for name in names], shown)

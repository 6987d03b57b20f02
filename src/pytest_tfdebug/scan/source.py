"""A file's bytes as Python source."""

from __future__ import annotations

import re
from codecs import BOM_UTF8

from pytest_tfdebug.scan.errors import BadSourceError

_COOKIE = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")


def decode(content: bytes) -> str:
    r"""Return the text of a Python file, with ``\n`` for every line end.

    Raises:
        BadSourceError: If it holds a null byte, or is not in the encoding that it names or UTF-8.
    """
    if b"\0" in content:
        raise BadSourceError("holds a null byte")
    encoding = "utf-8"
    for line in content.split(b"\n", 2)[:2]:
        found = _COOKIE.match(line)
        if found is not None:
            encoding = found.group(1).decode("ascii", "replace")
    try:
        text = content.removeprefix(BOM_UTF8).decode(encoding)
    except (UnicodeDecodeError, LookupError) as error:
        raise BadSourceError(f"not {'UTF-8' if encoding == 'utf-8' else encoding}: {error}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text

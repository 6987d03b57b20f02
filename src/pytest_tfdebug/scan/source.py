"""A file's bytes as Python source."""

from __future__ import annotations

from codecs import BOM_UTF8

from pytest_tfdebug.scan.errors import BadSourceError

#: Blanks that may stand before a comment, and what ends the name of an encoding.
_BLANKS = b" \t\f"
_NAME = frozenset(b"-_.0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


def decode(content: bytes) -> str:
    r"""Return the text of a Python file, with ``\n`` for every line end.

    Raises:
        BadSourceError: If it holds a null byte, or is not in the encoding that it names or UTF-8.
    """
    if b"\0" in content:
        raise BadSourceError("holds a null byte")
    encoding = _encoding(content)
    try:
        text = content.removeprefix(BOM_UTF8).decode(encoding)
    except (UnicodeError, LookupError, ValueError) as error:
        raise BadSourceError(f"not {'UTF-8' if encoding == 'utf-8' else encoding}: {error}") from error
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


def _encoding(content: bytes) -> str:
    """Return the encoding that a comment in the first two lines names.

    Source:
        https://docs.python.org/3/reference/lexical_analysis.html#encoding-declarations
    """
    for line in content.split(b"\n", 2)[:2]:
        comment = line.lstrip(_BLANKS)
        at = comment.find(b"coding")
        if not comment.startswith(b"#") or at < 0 or comment[at + 6 : at + 7] not in {b":", b"="}:
            continue
        name = comment[at + 7 :].lstrip(b" \t")
        end = next((index for index, byte in enumerate(name) if byte not in _NAME), len(name))
        if end:
            return name[:end].decode("ascii")
    return "utf-8"

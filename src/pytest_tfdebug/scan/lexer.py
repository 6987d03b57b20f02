"""Python source as statements, without parsing it: enough to find classes, methods and assignments.

Strings, comments and escaped line ends are blanked to text of the same length; from then on a statement begins where
a line of its block's indentation begins and all brackets before it are closed. One pass of a compiled pattern over
the file, and one over each block, do the work.
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.scan.errors import BadSourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Stands for every character of a string in masked text.
FILL = "\x01"

_TOKENS = re.compile(
    r"(#[^\n]*"
    r'|"""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""'
    r"|'''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''"
    r'|"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
    r"|'[^'\\\n]*(?:\\.[^'\\\n]*)*')",
    re.DOTALL,
)
_OPEN, _CLOSE = "([{", ")]}"
_KIND = re.compile(r"(?:async[ \t]+)?(class|def|if|elif|else|try|except|finally|with|for|while|match|case)\b|(@)")
#: A line with at most one pair of brackets, and nothing in it that opens or ends another.
_SIMPLE_LINE = re.compile(r"[^()\[\]{}\n]*(?:\([^()\[\]{}\n]*\)[^()\[\]{}\n]*)?(?=\n)")
_FIRST_LINE = re.compile(r"^([ \t\f]*)[^\s]", re.MULTILINE)


class Statement(NamedTuple):
    """A statement of a block, as offsets into the source.

    ``kind`` is its keyword, ``"@"`` for a decorator, or empty for a simple statement. The header runs from ``start``
    to ``header_end``; a compound statement's body from ``header_end`` to ``end``.
    """

    kind: str
    start: int
    header_end: int
    end: int


def mask(text: str) -> str:
    """Blank strings (to ``FILL``), comments and escaped line ends (to spaces), at the same length.

    Raises:
        BadSourceError: If a string does not end.
    """
    parts = _TOKENS.split(text)  # code and tokens in turns; a third faster than a function that replaces each
    parts[1::2] = [(" " if token[0] == "#" else FILL) * len(token) for token in parts[1::2]]
    masked = "".join(parts)
    if '"' in masked or "'" in masked:
        raise BadSourceError("a string does not end")
    return masked.replace("\\\n", "  ") if "\\\n" in masked else masked


def statements(masked: str, start: int, end: int) -> Iterator[Statement]:
    """Yield the statements of the block that fills ``masked[start:end]``, in order.

    Raises:
        BadSourceError: If a bracket is not closed.
    """
    first = _FIRST_LINE.search(masked, start, end)
    if first is None:
        return
    starts = _starts(masked, _line(first.group(1)), first.start(), end)
    indent = len(first.group(1))
    for position, following in zip(starts, [*starts[1:], end], strict=True):
        yield _statement(masked, position + indent, following)


def _starts(masked: str, pattern: re.Pattern[str], start: int, end: int) -> list[int]:
    """Return where the line at ``start``, and each of its indentation with all brackets closed, begins."""
    starts, last, depth = [start], start, 0
    for found in pattern.finditer(masked, start, end):
        position = found.start() + 1
        depth += _depth(masked, last, position)
        last = position
        if depth == 0:
            starts.append(position)
    if depth + _depth(masked, last, end) != 0:
        raise BadSourceError("a bracket is not closed")
    return starts


@cache
def _line(indent: str) -> re.Pattern[str]:
    return re.compile(rf"\n{indent}(?=\S)")  # found ten times as fast as what begins with ``^``


def _depth(masked: str, start: int, end: int) -> int:
    count = masked.count  # six passes in C are ten times as fast as one in Python
    return (
        count("(", start, end)
        - count(")", start, end)
        + count("[", start, end)
        - count("]", start, end)
        + count("{", start, end)
        - count("}", start, end)
    )


def _statement(masked: str, start: int, end: int) -> Statement:
    kind = _KIND.match(masked, start, end)
    header_end = line_end(masked, start, end)
    if kind is None or (kind.group(1) in {"match", "case"} and not masked[start:header_end].rstrip().endswith(":")):
        return Statement("", start, header_end, end)
    if kind.group(2):
        return Statement("@", start, header_end, end)
    word = kind.group(1)
    if not masked[start:header_end].rstrip().endswith(":"):  # its body is on the same line
        header_end = colon(masked, start, header_end) + 1
    return Statement(word, start, header_end, end)


def line_end(masked: str, start: int, end: int) -> int:
    """Return where the logical line that begins at ``start`` ends: at a line end with all brackets closed."""
    found = _SIMPLE_LINE.match(masked, start, end)
    if found is not None:
        return found.end()
    position, depth = start, 0
    while True:
        newline = masked.find("\n", position, end)
        if newline < 0:
            return end
        depth += _depth(masked, position, newline)
        if depth <= 0:  # a bracket too many is the parser's to report
            return newline
        position = newline + 1


def colon(masked: str, start: int, end: int) -> int:
    """Return where the colon is that ends a compound statement's header.

    Raises:
        BadSourceError: If there is none.
    """
    position = top_level(masked, start, end, ":")
    if not position:
        raise BadSourceError(f"expected ':' after {masked[start:end].strip()!r}")
    return position[0]


def top_level(masked: str, start: int, end: int, mark: str) -> list[int]:
    """Return where a character stands outside all brackets."""
    found, depth = [], 0
    for position in range(start, end):
        character = masked[position]
        if character == mark and depth == 0:
            found.append(position)
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
    return found


def split(text: str, masked: str, start: int, end: int, mark: str) -> list[str]:
    """Return the stripped parts of ``text[start:end]`` between marks outside all brackets, the last if not empty."""
    if mark not in masked[start:end]:
        parts = [(start, end)]
    else:
        marks = top_level(masked, start, end, mark)
        parts = list(zip([start, *(mark + 1 for mark in marks)], [*marks, end], strict=True))
    texts = [code(text, masked, a, b) for a, b in parts]
    return texts if texts[-1] else texts[:-1]


def unwrap(masked: str, start: int, end: int) -> tuple[int, int]:
    """Return the span inside the round brackets that enclose all of ``masked[start:end]``, or the span itself."""
    piece = masked[start:end]
    first, last = start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip()) - 1
    if first < last and masked[first] == "(" and top_level(masked, first + 1, last + 1, ")") == [last]:
        return first + 1, last
    return start, end


def code(text: str, masked: str, start: int, end: int) -> str:
    """Return ``text[start:end]`` without the blanks and comments around it."""
    piece = masked[start:end]
    kept = piece.rstrip()
    return text[start + len(kept) - len(kept.lstrip()) : start + len(kept)]

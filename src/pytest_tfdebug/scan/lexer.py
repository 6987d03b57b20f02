"""Python source as statements, without parsing it: enough to find classes, methods and assignments.

Strings, comments and escaped line ends are blanked to text of the same length; from then on a statement begins where
a line of its block's indentation begins and all brackets before it are closed. One pass of a compiled pattern over
the file, and one over each block, do the work.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, NamedTuple

from pytest_tfdebug.scan.errors import BadSourceError

#: Stands for every character of a string in masked text.
FILL = "\x01"

#: Comments and strings. No file has a null character; with it ``re`` looks for where one may begin in a bitmap, which
#: takes two thirds of the time.
_TOKENS = re.compile(
    r"(#[^\n]*"
    r'|"(?:""[^"\\]*(?:(?:\\.|"(?!""))[^"\\]*)*"""|[^"\\\n]*(?:\\.[^"\\\n]*)*")'
    r"|'(?:''[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*'''|[^'\\\n]*(?:\\.[^'\\\n]*)*')"
    r"|\0)",
    re.DOTALL,
)
_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
#: A name, or attributes of one.
DOTTED = rf"{_NAME}(?:\.{_NAME})*"
#: A string without a backslash, of ASCII characters.
SHORT = re.compile(r"(?:\"[\x20\x21\x23-\x5b\x5d-\x7e]*\"|'[\x20-\x26\x28-\x5b\x5d-\x7e]*')")
#: The expression that most are: a name, or a call of it with one string, which may be written in parts.
PLAIN = re.compile(
    rf"({DOTTED})"
    rf"(?:\(\s*(?:({_NAME})=)?({SHORT.pattern}(?:\s+{SHORT.pattern})*)\s*,?\s*\))?"
)
_OPEN, _CLOSE = "([{", ")]}"
_NO_BRACKETS = bytes(set(range(256)).difference(b"([{}])"))
#: A line with at most one pair of brackets, and nothing in it that opens or ends another.
_SIMPLE_LINE = r"[^()\[\]{}\n]*(?:\([^()\[\]{}\n]*\)[^()\[\]{}\n]*)?(?=\n)"
#: How a statement may begin: its keyword, and the end of its line where that is a simple one (the third group).
_HEAD = (
    r"(?:(?:async[ \t]+)?(class|def|if|elif|else|try|except|finally|with|for|while|match|case)\b|(@))?"
    rf"(?:{_SIMPLE_LINE}())?"
)
_FIRST_LINE = re.compile(r"(?:\s*\n)?([ \t\f]*)\S")
_FIRST_HEAD = re.compile(_HEAD)
#: Keywords that stand in no expression, so that a line that begins with one is in no brackets.
_SURE = frozenset({"class", "def"})
#: The group of a head that is there where its line is a simple one.
_SIMPLE = 3


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
        BadSourceError: If a string or a bracket does not end.
    """
    parts = _TOKENS.split(text)  # code and tokens in turns; a third faster than a function that replaces each
    parts[1::2] = [(" " if token[0] == "#" else FILL) * len(token) for token in parts[1::2]]
    masked = "".join(parts)
    if '"' in masked or "'" in masked:
        raise BadSourceError("a string does not end")
    brackets = masked.encode(errors="surrogatepass").translate(None, _NO_BRACKETS)
    if sum(map(brackets.count, b"([{")) != sum(map(brackets.count, b")]}")):
        raise BadSourceError("a bracket is not closed")
    return masked.replace("\\\n", "  ") if "\\" in masked else masked


def uncommented(text: str) -> str:
    """Return text without its comments."""
    parts = _TOKENS.split(text)
    parts[1::2] = ["" if token[0] == "#" else token for token in parts[1::2]]
    return "".join(parts)


def statements(masked: str, start: int, end: int) -> list[Statement]:
    """Return the statements of the block that fills ``masked[start:end]``, in order."""
    first = _FIRST_LINE.match(masked, start, end)
    if first is None:
        return []
    top, indent = first.start(1), len(first.group(1))
    heads: list[Any] = [(top, _FIRST_HEAD.match(masked, top + indent, end))]
    heads += [(head.start() + 1, head) for head in _line(first.group(1)).finditer(masked, top, end)]
    found: list[Statement] = []
    depth, after, following = 0, end, end  # of brackets from here to the next line that is surely in none
    for line, head in reversed(heads):
        if head[1] in _SURE:
            depth = 0
        elif head.end() + 1 != after or head.lastindex != _SIMPLE:
            depth += _depth(masked, line, after)
        after = line
        if depth == 0 or line == top:
            found.append(_statement(masked, line + indent, following, head))
            following = line
    found.reverse()
    return found


@cache
def _line(indent: str) -> re.Pattern[str]:
    # found ten times as fast as what begins with ``^``; no statement begins with a closing bracket
    return re.compile(rf"\n{indent}(?=[^\s)\]}}]){_HEAD}")


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


def _statement(masked: str, start: int, end: int, head: re.Match[str]) -> Statement:
    keyword, decorator = head.group(1, 2)
    if head.lastindex == _SIMPLE:
        header_end = head.end()
    elif keyword:
        header_end = line_end(masked, start, end)
    else:
        header_end = start + len(masked[start:end].rstrip())
    if keyword and masked[header_end - 1] != ":" and not masked[start:header_end].rstrip().endswith(":"):
        if keyword in {"match", "case"}:
            return Statement("", start, header_end, end)
        header_end = colon(masked, start, header_end) + 1  # its body is on the same line
    # as ``Statement(...)`` does, without the call of its own ``__new__``: a scan makes 30,000
    return tuple.__new__(Statement, (keyword or decorator or "", start, header_end, end))


def line_end(masked: str, start: int, end: int) -> int:
    """Return where the logical line that begins at ``start`` ends: at a line end with all brackets closed."""
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
    position = next((at for at in top_level(masked, start, end, ":") if masked[at + 1 : at + 2] != "="), None)
    if position is None:
        raise BadSourceError(f"expected ':' after {masked[start:end].strip()!r}")
    return position


def top_level(masked: str, start: int, end: int, mark: str) -> list[int]:
    """Return where a character stands outside all brackets."""
    found, depth = [], 0
    for token in _marks(mark).finditer(masked, start, end):
        character = token[0]
        if character == mark and depth == 0:
            found.append(token.start())
        elif character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
    return found


@cache
def _marks(mark: str) -> re.Pattern[str]:
    return re.compile(rf"[()\[\]{{}}{mark}]")


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

"""Python source as statements: cut by lines, indentation, strings and brackets alone.

Nothing here knows what a statement means: libcst reads the statements that matter. An outline tells where each logical
line begins and ends, how far it is indented, and so which lines are the block of which header.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.scan.errors import BadSourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: Brackets in brackets that Python's own tokenizer accepts; libcst takes cubic time for what is nested.
_DEEPEST = 100
#: Every byte that is no bracket and no line end.
_SILENT = bytes(set(range(256)).difference(b"\n\r()[]{}"))
_OPEN, _CLOSE = "([{", ")]}"


class Statement(NamedTuple):
    """A statement: its keyword, ``@`` for a decorator, or nothing; its text; where it stands.

    ``text`` of a compound statement is its header. ``first`` and ``last`` bound its logical lines, block included;
    ``inline`` holds the statements of a body on the header's own line.
    """

    outline: Outline
    word: str
    text: str
    line: int
    first: int
    last: int
    inline: tuple[Statement, ...] = ()

    @property
    def block(self) -> list[Statement]:
        """The statements of its body."""
        return list(self.inline) or self.outline.block(self.first + 1, self.last)

    @property
    def source(self) -> str:
        """The source of all its lines, with the indentation of the first."""
        return self.outline.text(self.first, self.last)


#: Keywords of statements with a block.
COMPOUND = frozenset(
    {"class", "def", "if", "elif", "else", "try", "except", "finally", "with", "for", "while", "match", "case"}
)
_SOFT = frozenset({"match", "case"})


class Outline:
    """The logical lines of a file's source; BadSourceError if a string or bracket does not end, or is too deep."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.starts: list[int] = []
        self._ends: list[int] = []
        self.indents: list[int] = []
        code, lines = _code(text), self.lines
        depth, goes_on = 0, False
        for number, marks in enumerate(code.translate(None, _SILENT).split(b"\n")):
            if depth == 0 and not goes_on:
                line = lines[number]
                stripped = line.lstrip()
                if not stripped or stripped[0] == "#":
                    continue
                self.starts.append(number)
                self.indents.append(len(line) - len(stripped))
            goes_on = False
            if marks:
                change, deepest = depths(marks)
                if depth + deepest > _DEEPEST:
                    raise BadSourceError(f"line {number + 1}: too many nested parentheses")
                depth, goes_on = depth + change, marks.endswith(b"\r")
                if depth < 0:
                    raise BadSourceError(f"line {number + 1}: unmatched bracket")
            if depth == 0 and not goes_on:
                self._ends.append(number + 1)
        if len(self._ends) < len(self.starts) or code.endswith(b"\\"):
            raise BadSourceError(_unfinished(text, self.starts[-1]))

    def __len__(self) -> int:
        return len(self.starts)

    def text(self, first: int, last: int) -> str:
        """Return the source of logical lines, with the indentation of the first."""
        return "\n".join(self.lines[self.starts[first] : self._ends[last - 1]])

    def line(self, index: int) -> int:
        """Return the number, from 1, of the line on which a logical line begins."""
        return self.starts[index] + 1

    def block(self, first: int, last: int) -> list[Statement]:
        """Return the statements of the block that some logical lines are."""
        indents = self.indents
        heads = [index for index in range(first, last) if indents[index] <= indents[first]]
        found: list[Statement] = []
        for head, following in zip(heads, [*heads[1:], last], strict=False):
            text, line = self.text(head, head + 1).strip(), self.starts[head] + 1
            if following == head + 1:
                found += self._on_one_line(text, line, head)
            else:
                found.append(Statement(self, _word(text), text, line, head, following))
        return found

    def _on_one_line(self, text: str, line: int, first: int) -> list[Statement]:
        """Return the statements on a logical line without a block below it."""
        word, last = _word(text), first + 1
        if word in COMPOUND:
            at = _colon(text)
            if at > 0 and not (word in _SOFT and not text[at + 1 :].strip()):
                below = line + text.count("\n", 0, at)  # a header may have brackets or strings over several lines
                inline = self._on_one_line(rest, below, first) if (rest := text[at + 1 :].strip()) else ()
                return [Statement(self, word, text[: at + 1], line, first, last, tuple(inline))]
            word = "" if word in _SOFT else word
        if ";" not in text or word == "@":
            return [Statement(self, word, text, line, first, last)]
        blanked = blank(text)
        found, start = [], 0
        for end in [*(index for index, mark in enumerate(blanked) if mark == ";"), len(text)]:
            part = text[start:end].strip()
            if blanked[start:end].strip():
                found.append(Statement(self, _word(part), part, line + text.count("\n", 0, start), first, last))
            start = end + 1
        return found


def _word(text: str) -> str:
    """Return the keyword of a compound statement, an import or a ``del``; ``@`` for a decorator."""
    if text[0] == "@":
        return "@"
    first = text.split(None, 1)[0]
    if first == "async":
        first = text.split(None, 2)[1]
    word = first if first.isidentifier() else first.rstrip(":").partition("(")[0].partition("[")[0]
    return word if word in COMPOUND or word in {"import", "from", "del"} else ""


def _colon(text: str) -> int:
    """Return where the colon is that ends a header; -1 where there is none."""
    blanked, depth = blank(text), 0
    for index, character in enumerate(blanked):
        depth += (character in _OPEN) - (character in _CLOSE)
        if character == ":" and depth == 0 and blanked[index + 1 : index + 2] != "=":
            return index
    return -1


def _code(text: str) -> bytes:
    r"""Return source without strings and comments; ``\r`` ends a line that a string or backslash joins to the next."""

    def line_ends(start: int, end: int) -> str:
        if text[start] == "#" or (end < len(text) and "\n" not in text[start:end]):
            return ""
        _check_end(text, start, end)
        return "\r\n" * text.count("\n", start, end)

    return _replaced(text, line_ends).replace("\\\n", "\r\n").encode(errors="surrogatepass")


def _check_end(text: str, start: int, end: int) -> None:
    """Raise if a string does not end, or continues on the next line without triple quotes or a backslash."""
    quote, line = _quote(text, start), text.count("\n", 0, start) + 1
    is_closed = _string_end(text, start + len(quote), quote) >= 0
    if len(quote) == 1:
        pieces = text[start:end].split("\n")
        for number, piece in enumerate(pieces[:-1] if is_closed else pieces, line):
            if (len(piece) - len(piece.rstrip("\\"))) % 2 == 0:
                raise BadSourceError(f"line {number}: unterminated string literal")
    if not is_closed:
        raise BadSourceError(f"line {line}: unterminated triple-quoted string literal")


@cache  # lines are much alike
def depths(marks: bytes) -> tuple[int, int]:
    """Return how a line changes the depth of brackets, and how deep they are in it at most."""
    depth = deepest = 0
    for mark in marks:
        depth += (mark in b"([{") - (mark in b")]}")
        deepest = max(deepest, depth)
    return depth, deepest


def _quote(text: str, at: int) -> str:
    return text[at] * 3 if text.startswith(text[at] * 3, at) else text[at]


def _string_end(text: str, at: int, quote: str) -> int:
    close = text.find(quote, at)
    while close >= 0:
        slash = text.find("\\", at, close)
        if slash < 0:
            return close + len(quote)
        at = slash + 2
        if at > close:
            close = text.find(quote, at)
    return -1


def _unfinished(text: str, start: int) -> str:
    """Return which bracket or statement of a file does not end."""
    opened: list[int] = []
    for at, character in enumerate(blank(text)):
        if character in _OPEN:
            opened.append(at)
        elif character in _CLOSE and opened:
            opened.pop()
    if not opened:
        return f"line {start + 1}: unexpected end of file"
    return f"line {text.count(chr(10), 0, opened[-1]) + 1}: '{text[opened[-1]]}' was never closed"


def blank(text: str) -> str:
    """Return text of the same length with strings and comments blanked."""
    return _replaced(text, lambda start, end: " " * (end - start))


def uncommented(text: str) -> str:
    """Return text without its comments."""
    return _replaced(text, lambda start, end: "" if text[start] == "#" else text[start:end]) if "#" in text else text


def squeeze(text: str) -> str:
    """Return source on one line, without comments."""
    return " ".join(uncommented(text).split())


def _replaced(text: str, replacement: Callable[[int, int], str]) -> str:
    """Return text with each string and comment replaced, by what ``replacement`` makes of its bounds."""
    parts: list[str] = []
    at = 0
    for start, end in _literals(text):
        parts += [text[at:start], replacement(start, end)]
        at = end
    return "".join([*parts, text[at:]])


def _literals(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each string and comment begins and ends; one that does not end goes to the end of the text."""
    at, size = 0, len(text)
    following = dict.fromkeys("#\"'", -1)
    while True:
        for mark, index in following.items():
            if index < at:
                index = text.find(mark, at)  # noqa: PLW2901 - the next one
                following[mark] = index if index >= 0 else size
        start = min(following.values())
        if start >= size:
            return
        if text[start] == "#":
            end = text.find("\n", start)
        else:
            quote = _quote(text, start)
            end = _string_end(text, start + len(quote), quote)
        at = end if end >= 0 else size
        yield start, at


#: How the names begin of those methods of ``unittest.TestCase`` that tests call often and that never skip.
_NO_SKIPS = ("assert", "fail", "subTest")
#: Parts of a function that may skip wherever they stand.
_SKIPS = ("kip", "super(")
_RAISE = "raise "
#: Blanks each character that no name has, so that a name that is called stands between a blank and a bracket.
_NO_NAMES = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) in "_.(")}


def calls_that(may_skip: Callable[[str], bool], source: str) -> frozenset[str]:
    """Return the names of what a function calls, or raises, that may skip; an empty one where it skips by itself."""

    def may(name: str) -> bool:
        first, _, rest = name.partition(".")
        if first in {"self", "cls"}:
            return rest.isidentifier() and not rest.startswith(_NO_SKIPS)
        return name.replace(".", "").isidentifier() and may_skip(name)

    if not any(sign in source for sign in (*_SKIPS, _RAISE)) and not any(map(may, _called(source))):
        return frozenset()
    code = blank(source)
    if any(sign in code for sign in _SKIPS):
        return frozenset({""})
    raised = (part.translate(_NO_NAMES).partition("(")[0].split() for part in code.split(_RAISE)[1:])
    names = {*_called(code), *(words[0] for words in raised if words)}
    return frozenset(filter(may, names))


def _called(text: str) -> Iterator[str]:
    return (piece.rpartition(" ")[2] for piece in text.translate(_NO_NAMES).split("(")[:-1])

"""Python source as statements: cut by lines, indentation, strings and brackets alone.

Nothing here knows what a statement means: libcst reads that, and only of the statements that matter. What this tells
is where each logical line begins and ends, how far it is indented, and so which lines are the block of which header.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from pytest_tfdebug.scan.errors import BadSourceError

#: Brackets in brackets that Python's own tokenizer accepts; libcst takes cubic time for what is nested.
_DEEPEST = 100
#: Every byte that says nothing of strings, comments, brackets and line ends. ``\1`` and ``\2`` stand for triple quotes.
_SILENT = bytes(set(range(256)).difference(b"\1\2\n\"'#\\()[]{}"))
_OPEN, _CLOSE, _QUOTES = "([{", ")]}", "\"'"
#: What a line ends in: code, code that goes on in the next line, or a string, named by its quotes.
_CODE, _ESCAPED = "", "\\"


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
    """The logical lines of a file.

    Args:
        text: Its source.

    Raises:
        BadSourceError: If a string or a bracket does not end, or brackets are nested too deeply.
    """

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        self.starts: list[int] = []
        self._ends: list[int] = []
        self.indents: list[int] = []
        self._cut(text)

    def __len__(self) -> int:
        return len(self.starts)

    def _cut(self, text: str) -> None:
        marks = text.encode(errors="surrogatepass").replace(b'"""', b"\1").replace(b"'''", b"\2")
        depth, mode, lines = 0, _CODE, self.lines
        for number, mark in enumerate(marks.translate(None, _SILENT).split(b"\n")):
            if depth == 0 and mode == _CODE:
                line = lines[number]
                stripped = line.lstrip()
                if not stripped or stripped[0] == "#":
                    continue
                self.starts.append(number)
                self.indents.append(len(line) - len(stripped))
            if mark or (mode and len(mode) == 1):  # a string in single quotes goes on for a line alone
                ending = _ENDINGS.get((mode, mark)) or _ending(mode, mark, lines[number], number)
                if depth + ending[1] > _DEEPEST:
                    raise BadSourceError(f"line {number + 1}: too many nested parentheses")
                depth, mode = depth + ending[0], ending[2]
                if depth < 0:
                    raise BadSourceError(f"line {number + 1}: unmatched bracket")
            if depth == 0 and mode == _CODE:
                self._ends.append(number + 1)
        if len(self._ends) < len(self.starts):
            raise BadSourceError(_unfinished(text, self.starts[-1], mode))

    def text(self, first: int, last: int) -> str:
        """Return the source of logical lines, with the indentation of the first."""
        return "\n".join(self.lines[self.starts[first] : self._ends[last - 1]])

    def line(self, index: int) -> int:
        """Return the number, from 1, of the line on which a logical line begins."""
        return self.starts[index] + 1

    def block(self, first: int, last: int) -> list[Statement]:
        """Return the statements of the block that some logical lines are."""
        if first >= last:
            return []
        indents = self.indents
        level = indents[first]
        heads = [index for index in range(first, last) if indents[index] <= level]
        found: list[Statement] = []
        for head, following in zip(heads, [*heads[1:], last], strict=True):
            found.extend(self._statements(head, following))
        return found

    def _statements(self, first: int, last: int) -> list[Statement]:
        """Return the statements that begin on one logical line."""
        text = self.text(first, first + 1).strip()
        line, word = self.starts[first] + 1, _word(text)
        if last == first + 1:
            return self._on_one_line(text, word, line, first)
        return [Statement(self, word, text, line, first, last)]

    def _on_one_line(self, text: str, word: str, line: int, first: int) -> list[Statement]:
        """Return the statements on a logical line without a block below it."""
        last = first + 1
        if word in COMPOUND:
            at = _colon(text)
            if at > 0 and not (word in _SOFT and not text[at + 1 :].strip()):
                below = line + text.count("\n", 0, at)  # a header may have brackets or strings over several lines
                inline = self._on_one_line(rest, _word(rest), below, first) if (rest := text[at + 1 :].strip()) else ()
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
        if character in _OPEN:
            depth += 1
        elif character in _CLOSE:
            depth -= 1
        elif character == ":" and depth == 0 and blanked[index + 1 : index + 2] != "=":
            return index
    return -1


#: How a line ends: how it changes the depth of brackets, how deep they are in it at most, and what it ends in.
_Ending: TypeAlias = "tuple[int, int, str]"
#: How lines end, by how they begin and their marks: they are much alike.
_ENDINGS: dict[tuple[str, bytes], _Ending] = {}
_MOST_ENDINGS = 100_000


def _ending(mode: str, mark: bytes, line: str, number: int) -> _Ending:
    """Return how a line ends.

    Raises:
        BadSourceError: If a string in single quotes does not end.
    """
    if b"\\" in mark or mode == _ESCAPED or b'\1"' in mark or b'"\1' in mark or b"'\2" in mark or b"\2'" in mark:
        return _spelt_out(_CODE if mode == _ESCAPED else mode, line, number)
    spaced = mark.decode("ascii").replace('"', '" ').replace("'", "' ")  # quotes that do not touch in the line
    found = _spelt_out(mode, spaced.replace("\1", '"""').replace("\2", "'''"), number)
    if len(_ENDINGS) < _MOST_ENDINGS:
        _ENDINGS[mode, mark] = found
    return found


def _spelt_out(mode: str, line: str, number: int) -> _Ending:  # noqa: C901 - a branch for each kind of character
    """Return how a line ends, character by character."""
    depth = deepest = at = 0
    if mode[:1] in _QUOTES and mode:
        at = _string_end(line, 0, mode)
        if at < 0:
            return 0, 0, _unended(mode, line, number)
    while at < len(line):
        character = line[at]
        if character in _OPEN:
            depth += 1
            deepest = max(deepest, depth)
        elif character in _CLOSE:
            depth -= 1
        elif character == "#":
            break
        elif character == "\\":
            if at == len(line) - 1:
                return depth, deepest, _ESCAPED
        elif character in _QUOTES:
            quote = character * 3 if line.startswith(character * 3, at) else character
            at = _string_end(line, at + len(quote), quote)
            if at < 0:
                return depth, deepest, _unended(quote, line, number)
            continue
        at += 1
    return depth, deepest, _CODE


def _unended(quote: str, line: str, number: int) -> str:
    """Return the string that goes on after a line.

    Raises:
        BadSourceError: If it cannot, as it has neither triple quotes nor an escaped line end.
    """
    if len(quote) == 1 and (len(line) - len(line.rstrip("\\"))) % 2 == 0:
        raise BadSourceError(f"line {number + 1}: unterminated string literal")
    return quote


def _string_end(text: str, at: int, quote: str) -> int:
    """Return where a string ends whose content begins at ``at``; -1 where it does not."""
    while (close := text.find(quote, at)) >= 0:
        slash = text.find("\\", at, close)
        if slash < 0:
            return close + len(quote)
        at = slash + 2
    return -1


def _unfinished(text: str, start: int, mode: str) -> str:
    """Return what does not end in a file, which is seen at its end."""
    if mode not in {_CODE, _ESCAPED}:
        return f"line {start + 1}: unterminated triple-quoted string literal"
    opened: list[tuple[int, str]] = []
    for index, character in enumerate(blank(text)):
        if character in _OPEN:
            opened.append((index, character))
        elif character in _CLOSE and opened:
            opened.pop()
    if not opened:
        return f"line {start + 1}: unexpected end of file"
    at, bracket = opened[-1]
    return f"line {text.count(chr(10), 0, at) + 1}: '{bracket}' was never closed"


def blank(text: str) -> str:
    """Return text of the same length with strings and comments blanked."""
    parts: list[str] = []
    at = 0
    for start, end in _literals(text):
        parts += [text[at:start], " " * (end - start)]
        at = end
    return "".join([*parts, text[at:]])


def uncommented(text: str) -> str:
    """Return text without its comments."""
    if "#" not in text:
        return text
    parts: list[str] = []
    at = 0
    for start, end in _literals(text):
        if text[start] == "#":
            parts.append(text[at:start])
            at = end
    return "".join([*parts, text[at:]])


def squeeze(text: str) -> str:
    """Return source on one line, without comments."""
    return " ".join(uncommented(text).split())


def _literals(text: str) -> list[tuple[int, int]]:
    """Return where each string and comment begins and ends; one that does not end goes to the end of the text."""
    found: list[tuple[int, int]] = []
    at, size = 0, len(text)
    following = dict.fromkeys("#\"'", -1)
    while True:
        for mark, index in following.items():
            if index < at:
                index = text.find(mark, at)  # noqa: PLW2901 - the next one
                following[mark] = index if index >= 0 else size
        start = min(following.values())
        if start >= size:
            return found
        character = text[start]
        if character == "#":
            end = text.find("\n", start)
        else:
            quote = character * 3 if text.startswith(character * 3, start) else character
            end = _string_end(text, start + len(quote), quote)
        at = end if end >= 0 else size
        found.append((start, at))

"""The lines of a function that can matter to a skip, so that libcst reads a fraction of it.

A statement matters if its first words show that it may skip, or leave a block early. A doubtful statement is kept, with
the headers around it, and libcst says what it means. Statements after the last one that may skip are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.scan.read.outline import COMPOUND, Statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator


#: How the names begin of those methods of ``unittest.TestCase`` that tests call often and that never skip.
_NO_SKIPS = ("assert", "fail", "subTest")
#: Parts of a statement that may skip wherever they stand, and parts after which more than its first call may skip.
_SKIPS = ("kip", "super(")
_MORE_CALLS = ("await ", " and ", " or ", " if ", "lambda")
_LEAVES = ("return", "raise", "break", "continue")
#: Keywords that continue the statement before.
_LATER_PARTS = frozenset({"elif", "else", "except", "finally"})
#: Blanks each character that no name has, so that the name that is called stands between a blank and a bracket.
_NO_NAMES = {code: " " for code in range(128) if not (chr(code).isalnum() or chr(code) in "_.(")}


class Relevant(NamedTuple):
    """The part of a function, or of a statement in it, that matters to a skip.

    Attributes:
        lines: The logical lines to keep, and whether a ``pass`` stands for the block below.
        callees: The names of the callables that may skip, with an empty name where something skips by itself.
    """

    lines: list[tuple[int, bool]]
    callees: frozenset[str] = frozenset()


class _FunctionReader(NamedTuple):
    """Reads one function, with what tells whether calling a name of the file may skip, and the functions inside."""

    may_skip: Callable[[str], bool]
    nested: set[str]

    def statements(self, block: Iterable[Statement]) -> Iterator[Relevant]:
        """Yield the part that matters of each statement of a block."""
        parts: list[Statement] = []
        for statement in block:
            if parts and statement.word not in _LATER_PARTS:
                yield self._whole(parts)
                parts = []
            if statement.word != "@":
                parts.append(statement)
        if parts:
            yield self._whole(parts)

    def _whole(self, parts: list[Statement]) -> Relevant:
        """Return the part that matters of a statement with one or more headers: all headers if one block matters."""
        if parts[0].word not in COMPOUND:
            callees = frozenset(self._callees(parts[0].text))
            matters = callees or parts[0].text.startswith(_LEAVES)
            return Relevant([(parts[0].first, False)] if matters else [], callees)
        inside = [joined(self.statements(part.block)) if part.word != "class" else Relevant([]) for part in parts]
        lines: list[tuple[int, bool]] = []
        for part, each in zip(parts, inside, strict=True):
            lines.append((part.first, not each.lines and not part.inline))
            lines += each.lines if not part.inline else ()
        is_any = any(each.lines for each in inside)
        return Relevant(lines if is_any else [], frozenset().union(*(each.callees for each in inside)))

    def _callees(self, text: str) -> Iterable[str]:
        """Return the names of the callables in a simple statement that may skip."""
        if text[0] in "\"'":  # a docstring
            return ()
        if any(sign in text for sign in _SKIPS):
            return ("",)
        if any(sign in text for sign in _MORE_CALLS):
            return filter(self.may, _called(text))
        target, equals, value = text.partition("=")
        value = value if equals and "(" not in target else text
        name = value.partition("(")[0].rpartition("=")[2].removeprefix("return ").removeprefix("raise ").strip()
        return (name,) if self.may(name) else ()

    def may(self, name: str) -> bool:
        """Tell whether calling a name may skip."""
        first, _, rest = name.partition(".")
        if first in {"self", "cls"}:
            return rest.isidentifier() and not rest.startswith(_NO_SKIPS)
        return name.replace(".", "").isidentifier() and (name in self.nested or self.may_skip(name))


def _called(text: str) -> Iterator[str]:
    """Return the dotted names before a bracket, anywhere in a text."""
    return (piece.rpartition(" ")[2] for piece in text.translate(_NO_NAMES).split("(")[:-1])


def relevant(header: Statement, may_skip: Callable[[str], bool]) -> Relevant:
    """Return the part of a function that matters, its header first; no lines where nothing may skip."""
    source, reader = header.source, _FunctionReader(may_skip, set())
    if not any(sign in source for sign in (*_SKIPS, "raise ")) and not any(map(reader.may, _called(source))):
        return Relevant([])
    outline = header.outline
    starts = (outline.lines[outline.starts[number]].lstrip() for number in range(header.first + 1, header.last))
    nested = {text.partition("def ")[2].partition("(")[0] for text in starts if text.startswith(("def ", "async def "))}
    found = list(_FunctionReader(may_skip, nested).statements(header.block))
    while found and not found[-1].callees:
        found.pop()
    body = joined(found)
    return body._replace(lines=[(header.first, False), *(() if header.inline else body.lines)] if found else [])


def joined(found: Iterable[Relevant]) -> Relevant:
    """Return the parts that matter of several statements as one; lines that they share stand once."""
    every = list(found)
    lines = dict.fromkeys(line for each in every for line in each.lines)
    return Relevant(list(lines), frozenset().union(*(each.callees for each in every)))

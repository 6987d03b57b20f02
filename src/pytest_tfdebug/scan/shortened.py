"""A function without the statements that cannot matter to a skip, so that libcst reads a third of it.

A statement matters if it may skip, leave the function or bind a name of the module, as far as its first words tell.
What is in doubt is kept, and so are all headers. What a kept statement means is for libcst to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.scan.outline import COMPOUND

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.scan.outline import Outline

#: How the methods of ``unittest.TestCase`` begin that tests call on every other line, and that skip nothing.
NO_SKIPS = ("assert", "fail", "subTest")
#: What a statement may hold that makes it matter wherever it stands.
_SIGNS = ("kip", "super(", ":=", "await ", " and ", " or ", " if ")
#: Words that begin a statement which matters, or which is part of one that does.
_WORDS = COMPOUND | {"return", "raise", "break", "continue", "import", "from", "async"}


def shorten(outline: Outline, first: int, last: int, is_ours: Callable[[str], bool]) -> tuple[list[str], list[int]]:
    """Return the sources of some logical lines without those that cannot matter, and the lines of those that are left.

    Args:
        outline: The file.
        first: The first logical line, which is a header.
        last: The one after the last.
        is_ours: Tells whether a dotted name of the file is a function, class or value of the repository.
    """
    texts, lines = [outline.text(first, first + 1)], [outline.line(first)]
    nested = {
        text.partition("def ")[2].partition("(")[0]
        for index in range(first + 1, last)
        if (text := outline.lines[outline.starts[index]].lstrip()).startswith(("def ", "async def "))
    }
    level = outline.indents[first]  # of the statement before
    for index in range(first + 1, last):
        text, indent = outline.text(index, index + 1), outline.indents[index]
        if not _matters(text.lstrip(), nested, is_ours):
            if indent <= level:
                continue
            text = f"{text[:indent]}pass"  # a block has to have a statement
        texts.append(text)
        lines.append(outline.line(index))
        level = indent
    return texts, lines


def _matters(text: str, nested: set[str], is_ours: Callable[[str], bool]) -> bool:
    word = text[: next((at for at, mark in enumerate(text) if not (mark.isalnum() or mark == "_")), len(text))]
    if word in _WORDS or text[0] == "@" or ";" in text or any(sign in text for sign in _SIGNS):
        return True
    target, equals, value = text.partition("=")
    if equals and "(" not in target:
        if any(is_ours(name) for name in map(_first_word, target.split(","))):
            return True
    else:
        value = text
    callee = value.partition("(")[0].rpartition("=")[2].strip()
    first, _, rest = callee.partition(".")
    if first in {"self", "cls"}:
        return rest.isidentifier() and not rest.startswith(NO_SKIPS)
    return "(" in value and callee.replace(".", "").isidentifier() and (callee in nested or is_ours(callee))


def _first_word(target: str) -> str:
    """Return the name that a target begins with; nothing for an attribute, an item or no name."""
    name = target.strip(" \t*([").partition(":")[0].rstrip(" \t+-*/%@&|^<>])")
    return name if name.isidentifier() else "-"

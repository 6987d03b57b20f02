"""Which calls in a function may skip, from its text alone, so that libcst does not read a function that cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.scan.read.outline import blank

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

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

"""Globs over module paths, one dialect for every option: ``*`` is one part of a path, ``**`` any number of parts."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The dialect in a message.
MEANING = "* is one part of a module path, ** any number of parts"
_ANY_PARTS = r"((?:\.[^.]+)*)"


def checked(glob: object) -> str:
    """Return a glob that can be matched."""
    if not isinstance(glob, str):
        raise TFDebugError(f"{glob!r} is not a glob of module paths.")
    for part in glob.split("."):
        if "**" in part and part != "**":
            raise TFDebugError(f"{glob!r}: ** stands between two dots or at an end, and not in {part!r} ({MEANING}).")
    return glob


@lru_cache(maxsize=16384)
def matches(path: str, glob: str) -> bool:
    """Tell whether a module path matches a glob as a whole.

    ``*`` stands for one part of a path (the text between two dots), or for any text within a part; ``**`` for any
    number of parts, none included. Every other character means itself.

    Examples:
        >>> matches("layers.0", "layers.*"), matches("layers.0.mlp", "layers.*")
        (True, False)
        >>> matches("layers", "layers.**"), matches("layers.0.mlp", "layers.**"), matches("lm_head", "**.lm_head")
        (True, True, True)
    """
    return _compiled(glob).fullmatch(dotted(path)) is not None


def matches_any(path: str, globs: Iterable[str]) -> bool:
    """Tell whether a module path matches one of several globs."""
    return any(matches(path, glob) for glob in globs)


def expression(glob: str) -> str:
    """Return a glob as a regular expression over dotted paths, with a group for each ``*`` and ``**``."""
    return "".join(map(_expression_of_part, glob.split("."))) if glob else ""


def dotted(path: str) -> str:
    """Return a path with a dot before each part, as regular expressions of globs read it."""
    return f".{path}" if path else ""


def nearest(glob: str, paths: Iterable[str]) -> str:
    """Return a sentence that names the path most like a glob, with a space before it; empty where none is like it."""
    known = list(dict.fromkeys(paths))
    near = get_close_matches(glob, known, n=1, cutoff=0.3)
    near = near or [path for path in known if path.rpartition(".")[2] == glob.rpartition(".")[2]]
    return f" Nearest path: {near[0]!r}." if near else ""


@lru_cache(maxsize=4096)
def _compiled(glob: str) -> re.Pattern[str]:
    return re.compile(expression(glob))


def _expression_of_part(part: str) -> str:
    if part == "**":
        return _ANY_PARTS
    text = "([^.]+)" if part == "*" else "([^.]*)".join(map(re.escape, part.split("*")))
    return rf"\.{text}"

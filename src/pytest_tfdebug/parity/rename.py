"""Port paths -> reference paths."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from itertools import chain, zip_longest

from pytest_tfdebug.errors import TFDebugError

#: What ``rename=`` takes: a table of paths or globs, or a function from path to path.
Rename = Mapping[str, str] | Callable[[str], str] | None


def renamer(rename: Rename) -> Callable[[str], str]:
    """Return the function that maps a port's module path to the reference's.

    A rule applies to a path and to everything below it; the rule of the empty path puts its target before every path.
    ``*`` stands for one part of a path (the text between two dots) and may be used as often on the right as on the
    left; of several rules that apply the longest one wins.

    Args:
        rename: ``{"blocks.*.attn": "encoder.layer.*.attention.self"}``, a callable, or None for equal names.

    Raises:
        TFDebugError: If a rule has more ``*`` on the right than on the left, or ``rename`` is of another kind.

    Examples:
        >>> to_reference = renamer({"blocks.*": "model.layers.*", "blocks.*.ff": "model.layers.*.mlp"})
        >>> to_reference("blocks.3.ff.up"), to_reference("blocks.3.norm"), to_reference("head")
        ('model.layers.3.mlp.up', 'model.layers.3.norm', 'head')
    """
    if rename is None:
        return _same
    if callable(rename):
        return rename
    if not isinstance(rename, Mapping):
        raise TFDebugError(f"rename= is a dict of paths or globs, or a function from path to path; got {rename!r}.")
    rules = [_compile(source, target) for source, target in rename.items()]
    rules.sort(key=lambda rule: rule[0], reverse=True)

    @cache
    def rename_path(path: str) -> str:
        for _, pattern, target in rules:
            match = pattern.match(f".{path}")
            if match:
                *parts, below = match.groups()
                filled = "".join(chain(*zip_longest(target.split("*"), parts[: target.count("*")], fillvalue="")))
                return (filled + below).strip(".")
        return path

    return rename_path


def _same(path: str) -> str:
    return path


def _compile(source: str, target: str) -> tuple[tuple[int, int], re.Pattern[str], str]:
    if not isinstance(source, str) or not isinstance(target, str):
        raise TFDebugError(f"rename: {source!r} -> {target!r} is not a pair of paths.")
    if target.count("*") > source.count("*"):
        raise TFDebugError(f"rename: {source!r} -> {target!r} has more '*' on the right than on the left.")
    body = re.escape(f".{source}" if source else "").replace(r"\*", "([^.]+)")
    weight = (source.count(".") if source else -1, -source.count("*"))
    return weight, re.compile(rf"{body}((?:\..*)?)$"), target

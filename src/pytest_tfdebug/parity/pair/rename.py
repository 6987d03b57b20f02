"""Port paths -> reference paths."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cache
from itertools import product
from typing import NamedTuple

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.module_path import holder, last_part, under
from pytest_tfdebug.tracing.record.modules import checked, dotted, expression

#: What ``rename=`` takes: a table of paths or globs, or a function from path to path.
Rename = Mapping[str, str] | Callable[[str], str] | None

_STARS = re.compile(r"(?<=\.)\*\*(?=\.|$)|\*")
_WILDCARDS = ("**", "*")


class Rule(NamedTuple):
    """One rule of ``rename=``."""

    weight: tuple[int, int, int]  # of several rules that match, the one of the greatest weight wins
    source: str  # path or glob of the port
    target: str  # path of the reference, with the same wildcards or fewer
    pattern: re.Pattern[str]  # the source, and what is below it, as a regular expression over dotted paths

    def apply(self, path: str) -> str | None:
        """Return the reference's path of a port's path; None where the rule does not match it."""
        match = self.pattern.match(dotted(path))
        if match is None:
            return None
        *found, below = match.groups()
        values: dict[str, list[str]] = {wildcard: [] for wildcard in _WILDCARDS}
        for star, value in zip(_STARS.findall(dotted(self.source)), found, strict=True):
            values[star].append(value)
        filled = [
            values[part].pop(0) if part == "**" else "." + _STARS.sub(lambda star: values[star[0]].pop(0), part)
            for part in self.target.split(".")
        ]
        return "".join((*filled, below)).strip(".")


def rules_of(rename: Mapping[str, str]) -> list[Rule]:
    """Return the rules of a table, the one that wins first."""
    rules = [_rule(source, target) for source, target in rename.items()]
    return sorted(rules, key=lambda rule: rule.weight, reverse=True)


def renamer(rename: Rename) -> Callable[[str], str]:
    """Return the function that maps a port's module path to the reference's.

    A rule applies to a path and to everything below it; the rule of the empty path puts its target before every path.
    ``*`` stands for one part of a path (the text between two dots) and ``**`` for any number of them; each may be used
    as often on the right as on the left. Of several rules that apply the longest one wins.

    Examples:
        >>> to_reference = renamer({"blocks.*": "model.layers.*", "**.ff": "**.mlp"})
        >>> to_reference("blocks.3.norm.weight"), to_reference("encoder.a.ff.up"), to_reference("head")
        ('model.layers.3.norm.weight', 'encoder.a.mlp.up', 'head')
    """
    if rename is None:
        return str
    if callable(rename):
        return rename
    if not isinstance(rename, Mapping):
        raise TFDebugError(f"rename= is a dict of paths or globs, or a function from path to path; got {rename!r}.")
    rules = rules_of(rename)

    @cache
    def rename_path(path: str) -> str:
        return next((named for rule in rules if (named := rule.apply(path)) is not None), path)

    return rename_path


def renamed(rename: Rename, paths: Iterable[str]) -> dict[str, str]:
    """Return the reference's path of each of a port's module paths."""
    to_expected = renamer(rename)
    return {path: to_expected(path) for path in paths}


def renamed_tensors(rename: Rename, names: Iterable[str]) -> dict[str, str]:
    """Return the name that each of a port's parameters and buffers has in the reference, by its own."""
    to_expected = renamer(rename)
    return {name: under(to_expected(holder(name)), last_part(name)) if holder(name) else name for name in names}


def past_wrappers(own: Iterable[str], expected: Iterable[str]) -> dict[str, str]:
    """Return the rule for two models one of which stands inside of another module; empty where none does.

    At each level the module is entered that holds most of the others, as the one child of a wrapper does. Of what is
    passed so on both sides, the pair below which the most names are the same stands for the two models.

    Examples:
        >>> past_wrappers(["net", "net.embed", "net.layers", "net.layers.0"], ["embed", "layers", "layers.0"])
        {'net': ''}
    """
    mine, theirs = {*own}, {*expected}

    def shared(heads: tuple[str, str]) -> int:
        one, other = ({*_inside(paths, head)} for paths, head in zip((mine, theirs), heads, strict=True))
        return len(one & other)

    if mine == theirs:
        return {}
    best = max(product(_heads(mine), _heads(theirs)), key=shared)
    return dict([best]) if any(best) and 2 * shared(best) > len(theirs) else {}


def _heads(paths: Collection[str]) -> Iterator[str]:
    """Yield the root's path, that of the module that holds most of what is in it, and so on."""
    head, inside = "", [*paths]
    yield head
    while inside:
        first, count = Counter(path.partition(".")[0] for path in inside).most_common(1)[0]
        if 2 * count <= len(inside):
            return
        head, inside = under(head, first), [*_inside(inside, first)]
        yield head


def _inside(paths: Iterable[str], head: str) -> Iterator[str]:
    """Yield the paths of what is in a module, as it has them."""
    return (path.removeprefix(f"{head}.") for path in paths if not head or path.startswith(f"{head}."))


def _rule(source: str, target: str) -> Rule:
    if not isinstance(source, str) or not isinstance(target, str):
        raise TFDebugError(f"rename: {source!r} -> {target!r} is not a pair of paths.")
    left, right = (_STARS.findall(dotted(checked(side))) for side in (source, target))
    for wildcard in _WILDCARDS:
        if right.count(wildcard) > left.count(wildcard):
            raise TFDebugError(f"rename: {source!r} -> {target!r} has more {wildcard!r} on the right than on the left.")
    parts = source.split(".") if source else []
    weight = sum(part != "**" for part in parts), -left.count("**"), -left.count("*")
    return Rule(weight, source, target, re.compile(rf"{expression(source)}((?:\..*)?)$"))

"""Numbers that modules hold and that are not those of their partners: a fact, also where no output shows them.

An epsilon keeps something from being 0 and is lost in the rounding of any other number, so that no tolerance tells a
wrong one. Modules that no name pairs are paired by the parameters that they hold, in the order of their calls.
"""

from __future__ import annotations

import re
from math import isclose
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import listed
from pytest_tfdebug.module_path import holder

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping

    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tracing.values.rerun import Recorded, Rerun

#: A number with a fraction or an exponent, as text.
_FRACTION = re.compile(r"-?\d+(\.\d*(e[+-]?\d+)?|e[+-]?\d+)")
#: Numbers below this keep something from being 0.
_TINY = 2e-2


def other_numbers(compared: Compared, own: Rerun | Recorded, expected: Rerun | Recorded) -> Iterator[str]:
    """Mention numbers that modules hold and that are not those of their partners."""
    held, wanted, found = _numbers(own), _numbers(expected), dict[str, str]()
    named = {
        item.call.path: item for item in compared.calls if item.expected is not None and item.call.parent is not None
    }
    for path, item in named.items():
        there = wanted.get(item.expected.path if item.expected is not None else "", {})
        found |= _told(path, _apart(held.get(path, {}), there, is_of_one_class=item.is_of_one_class))
    for item in (item for item in compared.calls if item.call.parent is None and item.is_of_one_class):
        found |= _told(item.call.path, _apart(held.get("", {}), wanted.get("", {}), is_of_one_class=True))
    taken = {item.expected.path for item in named.values() if item.expected is not None}
    mine = _by_shapes((item.call for item in compared.calls), held, own, named)
    theirs = _by_shapes(compared.expected, wanted, expected, taken)
    for shapes, paths in mine.items():
        if len(theirs.get(shapes, ())) == len(paths):
            for path, partner in zip(paths, theirs[shapes], strict=True):
                found |= _told(path, _apart(held[path], wanted[partner], is_of_one_class=False))
    if found:
        told = listed([f"{name}={pair}" for name, pair in sorted(found.items())], 3)
        yield f"Modules hold other numbers, and no output shows more than rounding of them: {told}."


def _numbers(side: Rerun | Recorded) -> dict[str, dict[str, str]]:
    """Return the numbers that each module may compute with, as texts: no whole ones, and no rates of dropout."""
    return {
        path: {name: text for name, text in held.items() if "drop" not in name and _FRACTION.fullmatch(text)}
        for path, held in side.attributes().items()
    }


def _told(path: str, apart: Iterable[tuple[str, str, str]]) -> dict[str, str]:
    return {f"{path}.{name}": f"{own} instead of {expected}" for name, own, expected in apart}


def _apart(
    mine: Mapping[str, str], theirs: Mapping[str, str], *, is_of_one_class: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield the numbers of one name that differ, and the one epsilon on either side, whatever it is called.

    What a number other than an epsilon is for, only the class tells.
    """
    same = [name for name in mine if name in theirs and (is_of_one_class or _is_tiny(mine[name], theirs[name]))]
    pairs = [(name, mine[name], theirs[name]) for name in same]
    left, wanted = (
        [each for each in held.items() if each[0] not in same and _is_tiny(each[1])] for held in (mine, theirs)
    )
    if len(left) == len(wanted) == 1:
        pairs.append((*left[0], wanted[0][1]))
    yield from (pair for pair in pairs if not isclose(float(pair[1]), float(pair[2]), rel_tol=1e-9))


def _is_tiny(*texts: str) -> bool:
    return all(0 < float(text) < _TINY for text in texts)


def _by_shapes(
    calls: Iterable[Call], held: Mapping[str, Mapping[str, str]], side: Rerun | Recorded, paired: Container[str]
) -> dict[tuple[tuple[int, ...], ...], list[str]]:
    """Return the modules without a partner that hold an epsilon, as first called, by the shapes of their parameters."""
    shapes = dict[str, list[tuple[int, ...]]]()
    for name, shape in side.shapes().items():
        shapes.setdefault(holder(name), []).append(shape)
    found = dict[tuple[tuple[int, ...], ...], list[str]]()
    for path in dict.fromkeys(call.path for call in calls if call.parent is not None and call.path not in paired):
        if any(map(_is_tiny, held.get(path, {}).values())):
            found.setdefault(tuple(sorted(shapes.get(path, ()))), []).append(path)
    return found

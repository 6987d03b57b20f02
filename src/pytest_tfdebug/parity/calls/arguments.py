"""What calls are given and return that is no tensor: numbers, flags, None, and whether there is an object at all."""

from __future__ import annotations

from math import isclose
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.records import inputs_of, skeleton_ends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.records import Call, CallComparison

#: What an argument that is not given most often stands for.
_NOTHING = frozenset({"nothing", "None", "False", "0"})
_ABSENT = "nothing"
#: Two ways to leave an argument out: wrappers hand on every parameter that they have.
_LEFT_OUT = frozenset({_ABSENT, "None"})
_WORDS = frozenset({"None", "True", "False"})
#: What is told of a tensor and of an object; two of them are the same here.
_TENSOR, _OBJECT = "a tensor", "an object"


def other_arguments(item: CallComparison, *, is_strict: bool = False) -> dict[str, tuple[str, str]]:
    """Return the arguments, no tensors, in which a call differs from the expected one of the same class."""
    if item.expected is None or not item.is_of_one_class:
        return {}
    own, theirs = arguments(item.call), arguments(item.expected)
    pairs = {name: (own.get(name, _ABSENT), theirs.get(name, _ABSENT)) for name in (*own, *theirs)}
    return {name: pair for name, pair in pairs.items() if _differ(*pair) and (is_strict or _counts(name, pair, item))}


def _counts(name: str, pair: tuple[str, str], item: CallComparison) -> bool:
    """Tell whether a difference can be a caller's fault.

    Versions of a class differ in the flags that they leave out, and in those that they hand on to whoever takes them.
    """
    parameter = name.partition("[")[0]
    taken = all(side is not None and parameter in side.parameters for side in (item.call, item.expected))
    return taken and not _NOTHING.issuperset(pair) and (_ABSENT not in pair or _OBJECT in pair)


def returns_less(item: CallComparison) -> bool:
    """Tell whether a call returns None, or nothing, where the expected one of the same class returns an object."""
    if item.expected is None or not item.is_of_one_class:
        return False
    own = dict(_flat("", item.call.skeleton.get("outputs", "None")))
    theirs = _flat("", item.expected.skeleton.get("outputs", "None"))
    return any(text == _OBJECT and own.get(path, "None") == "None" for path, text in theirs)


def arguments(call: Call) -> dict[str, str]:
    """Return what a call was given, as text, by the names of its parameters and the places within them."""
    return {path: text for name, bare in inputs_of(call) for path, text in _flat(name, bare)}


def _flat(path: str, bare: Any) -> Iterator[tuple[str, str]]:  # noqa: ANN401 - nested JSON
    for place, end in skeleton_ends(bare, path):
        if isinstance(end, int):
            yield place, _TENSOR
        else:
            yield place, end if end in _WORDS or end[:1] in "'\"" or _number(end) is not None else _OBJECT


def _differ(own: str, expected: str) -> bool:
    if own == expected or _LEFT_OUT.issuperset((own, expected)) or _TENSOR in (own, expected):
        return False
    numbers = _number(own), _number(expected)
    return None in numbers or not isclose(*numbers, rel_tol=1e-6)  # type: ignore[arg-type] # neither is None


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

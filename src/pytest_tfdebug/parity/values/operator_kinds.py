"""Which operators do the same thing, and what they can do to the order of elements."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_tfdebug.values import Value

#: Operators that copy elements to a place that the code chooses; views and plain copies choose nothing.
COPIES = frozenset({"cat", "stack", "repeat", "repeat_interleave", "copy_", "index", "index_select", "gather"})
#: Operators that do the same in another way of writing.
_KINDS = {
    "matmul": "mm addmm bmm baddbmm mv addmv dot",
    "mask": "where masked_fill",
    "scale": "mul div",
    "power": "pow square",
    "sum": "add sub",
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
#: Two masks hide the same share of their elements if the shares differ by less.
_SAME_SHARE = 1e-9


def kind_of(value: Value) -> str:
    """Return what an operator does, whatever it is called: ``matmul`` for ``addmm``, ``move`` for views and copies."""
    if value.is_moved:
        return "move"
    name = value.operator.rstrip("_") or value.operator
    return _KIND_OF.get(name, name)


def hidden_share(value: Value) -> float | None:
    """Return the share of the elements that a mask hides; None for what is no mask."""
    fingerprint = value.print
    if value.dtype == "bool":
        return fingerprint.mean
    if fingerprint.finite < fingerprint.elements:
        return 1 - fingerprint.finite / fingerprint.elements
    return None


def is_same_share(one: float | None, other: float | None) -> bool:
    """Tell whether two masks hide the same share; one may say what is hidden and the other what is not."""
    if one is None or other is None:
        return False
    return min(abs(one - other), abs(one + other - 1)) < _SAME_SHARE

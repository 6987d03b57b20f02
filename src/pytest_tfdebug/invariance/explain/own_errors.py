"""How much error each call adds to that of what it was given, and where the first value overflows."""

from __future__ import annotations

from math import inf, isnan
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.records import CallComparison, LeafComparison


class OwnError(NamedTuple):
    """The error that one call adds.

    Args:
        error: Relative L2 error; inf where the first values arise that are not finite.
        item: The call.
        gone: The call whose tensors show those values: this one, or the one that it calls with them.
        direction: Whether they are in that call's inputs or outputs.
    """

    error: float
    item: CallComparison
    gone: CallComparison
    direction: Literal["inputs", "outputs"] = "outputs"


def error_of(leaves: Sequence[LeafComparison]) -> float:
    """Return the largest relative L2 error of some tensors; inf where a value is not finite that is so in float32."""
    if _is_gone(leaves):
        return inf
    errors = [leaf.metrics.relative_l2 for leaf in leaves if leaf.metrics is not None and leaf.dtype == "float32"]
    return max(errors, default=0.0)


def own_errors(calls: list[CallComparison]) -> list[OwnError]:
    """Return the error that each call adds to that of its inputs and of the calls inside it, the largest first."""
    inside: dict[int, list[CallComparison]] = {}
    for item in calls:
        if item.call.parent is not None:
            inside.setdefault(item.call.parent, []).append(item)
    ranked = []
    for item in calls:
        children = inside.get(item.call.index, [])
        error = error_of(item.outputs) - error_of([*item.inputs, *(leaf for one in children for leaf in one.outputs)])
        ranked.append(_between_children(item, children) or OwnError(0.0 if isnan(error) else error, item, item))
    return sorted(ranked, key=lambda own: -own.error)


def _between_children(item: CallComparison, children: list[CallComparison]) -> OwnError | None:
    """Return the error of a call that gives a child values that are not finite, and was given none."""
    given = list(item.inputs)
    for child in sorted(children, key=lambda child: child.call.index):
        if _is_gone(given):
            return None
        if _is_gone(child.inputs):
            return OwnError(inf, item, child, "inputs")
        given += child.outputs
    return None


def _is_gone(leaves: Sequence[LeafComparison]) -> bool:
    """Tell whether a tensor has inf or NaN that it does not have in float32."""
    metrics = [leaf.metrics for leaf in leaves if leaf.metrics is not None]
    return any(m.non_finite_actual > m.non_finite_expected for m in metrics)

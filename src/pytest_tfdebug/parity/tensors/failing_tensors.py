"""Which tensors of a comparison fail it, and which of them is the first."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.pair.pairing import has_parameter, in_cache
from pytest_tfdebug.parity.tensors.outputs import is_uncompared
from pytest_tfdebug.records import FAILING, FORMS, CallComparison, LeafComparison, skeleton_ends

if TYPE_CHECKING:
    from pytest_tfdebug.parity.calls.call_tree import CallTree
    from pytest_tfdebug.records import Call, Metrics

#: Relative L2 difference that is no rounding, and cannot vanish in what is computed from it.
_GROSS = 0.05
#: How far the norms of a tensor in two layouts may be apart, by rounding: a share of the squared difference.
_SAME_NORM = 1e-3


class FailingTensor(NamedTuple):
    """The first tensor that a call made wrong."""

    item: CallComparison
    leaf: LeafComparison


def first_fault(tree: CallTree) -> FailingTensor:
    """Return the first output that fails, or what was written into a cache before it and explains it.

    Another value in a cache is a fault that shows later, if ever. A cache may be laid out in another way, or be left
    out, unless it is one that fails at the end. So may what a module computes whose own outputs agree, unless nothing
    else fails.
    """
    written: list[FailingTensor] = []
    failures: list[tuple[FailingTensor, int]] = []
    for item, leaves in tree.events():
        written += [FailingTensor(item, leaf) for leaf in leaves if leaf.direction == "write" and leaf.problem]
        failures += [(FailingTensor(item, leaf), len(written)) for leaf in leaves if is_failure(item, leaf, "output")]
    own = (found for found in failures if not _is_convention(tree, found[0]))
    (fault, count) = next(own, failures[0])
    item, failing = fault
    written = written[:count]
    explains = (fault for fault in written if fault.leaf.problem == "values" or _is_later(fault.leaf, failing))
    return next(explains, FailingTensor(item, failing))


def _is_convention(tree: CallTree, fault: FailingTensor) -> bool:
    """Tell whether a tensor is only laid out in another way: an enclosing module makes the right outputs of it."""
    leaf = fault.leaf
    if leaf.problem not in FORMS and (leaf.metrics is None or not _may_be_reordered(leaf.metrics)):
        return False
    enclosing = [item for item in tree.around(fault.item.call.index) if item.call.parent is not None]
    return any(map(tree.agrees, enclosing[1:]))


def _may_be_reordered(metrics: Metrics) -> bool:
    """Tell whether a tensor differs as one with the same elements in another order does: its norm is the same.

    For equal norms the square of the relative L2 difference is 2 - 2 cos. Attention hardly feels a query that was
    scaled, and a norm behind it not at all: such a query is no layout, though its caller returns nearly the same.
    """
    squared = metrics.relative_l2**2
    return metrics.relative_l2 >= _GROSS and abs(squared - (2 - 2 * metrics.cosine)) <= _SAME_NORM * squared


def _is_later(written: LeafComparison, output: LeafComparison) -> bool:
    """Tell whether an output is what was written into a cache, or would have been."""
    return written.expected is not None and output.leaf.endswith(in_cache(written.expected))


def is_failure(item: CallComparison, leaf: LeafComparison, direction: str) -> bool:
    """Tell whether a tensor of a call, of this direction, makes the comparison fail."""
    if leaf.direction != direction:
        return False
    if leaf.problem == "missing" and leaf.how is not None:
        return direction == "output" and is_uncompared(leaf)
    if leaf.problem == "missing":  # a port may return less than its reference; a model may not return less than it did
        if direction == "output" and is_without_outputs(item):
            return item.call.parent is None or opaque_text(item.call) is None
        return direction == "output" and item.is_of_one_class
    return leaf.problem in FAILING


def is_without_outputs(item: CallComparison) -> bool:
    """Tell whether none of a call's expected outputs was there."""
    return all(leaf.problem == "missing" for leaf in item.outputs)


def opaque_text(call: Call) -> str | None:
    """Return the text of the first object that a call returned in which no tensor can be found, and one may be."""
    found = skeleton_ends(call.skeleton.get("outputs", "None"))
    return next((end for _, end in found if isinstance(end, str) and end != "None"), None)


def failing(item: CallComparison, direction: str) -> list[LeafComparison]:
    """Return the inputs or outputs of a call that make the comparison fail."""
    leaves = item.outputs if direction == "output" else item.inputs
    return [leaf for leaf in leaves if is_failure(item, leaf, direction)]


def is_other_input(root: CallComparison, leaf: LeafComparison) -> bool:
    """Tell whether a model was given other values: a port may name its inputs otherwise, or take another form."""
    return leaf.problem == "values" or bool(leaf.problem and root.is_of_one_class and can_be_given(root, leaf))


def can_be_given(item: CallComparison, leaf: LeafComparison) -> bool:
    """Tell whether the side on which an input is missing has a parameter for it."""
    if item.expected is None or leaf.problem not in ("missing", "extra"):
        return True
    sides = (item.call, item.expected) if leaf.problem == "missing" else (item.expected, item.call)
    return has_parameter(sides[0], leaf.leaf, sides[1])

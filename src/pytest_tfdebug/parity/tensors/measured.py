"""How much of a comparison was really compared: the expected calls, the root's output, the share of tolerance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.tensors.outputs import is_of_numbers
from pytest_tfdebug.records import Coverage, Worst

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.parity.tensors.comparator import Compared
    from pytest_tfdebug.records import CallComparison, LeafComparison


def measured_coverage(compared: Compared) -> Coverage:
    """Return which of the expected calls had an output that was compared by value.

    An expected call that returned no tensor cannot be compared, and does not count.
    """
    expected = {call.index for call in compared.expected if call.outputs}
    measured = {item.expected.index for item in compared.calls if item.expected is not None and has_output(item)}
    roots = [item for item in compared.calls if item.call.parent is None and item.expected is not None]
    return Coverage(len(expected & measured), len(expected), bool(roots) and all(map(has_output, roots)))


def has_output(item: CallComparison) -> bool:
    """Tell whether an output of a call was compared by value."""
    return any(leaf.is_measured for leaf in item.outputs)


def coarse_outputs(calls: Iterable[CallComparison]) -> list[LeafComparison]:
    """Return the model's outputs that were compared, if each is integers, booleans or a single number; else none.

    Most faults move what such an output is computed from, and leave the output as it is: the same token has the highest
    score.
    """
    roots = (item for item in calls if item.call.parent is None)
    leaves = [leaf for item in roots for leaf in item.outputs if leaf.expected is not None and leaf.is_measured]
    return [] if any(is_of_numbers(leaf.dtype) and math.prod(leaf.shape) > 1 for leaf in leaves) else leaves


def worst_share(calls: Iterable[CallComparison]) -> Worst | None:
    """Return the tensor that agrees and comes closest to its tolerance; None where no tensor agrees.

    The share is the greatest absolute difference over what is allowed there; 0 for equal tensors.
    """
    worst = None
    for item in calls:
        for leaf in (*item.inputs, *item.made):
            if leaf.problem or not leaf.is_measured:
                continue
            share = leaf.metrics.max_abs / leaf.metrics.allowed if leaf.metrics and leaf.metrics.max_abs else 0.0
            if worst is None or share > worst.share:
                worst = Worst(share, item.call.name)
    return worst

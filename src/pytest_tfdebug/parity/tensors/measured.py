"""How much of a comparison was really compared: the expected calls, the root's output, the share of tolerance."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.parity.tensors.outputs import is_of_numbers, shown
from pytest_tfdebug.parity.tensors.plain_outputs import TO_OPEN
from pytest_tfdebug.parity.tensors.uncompared import told_unopened
from pytest_tfdebug.records import Coverage
from pytest_tfdebug.tensors import varies, widen

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.tensors.comparator import Compared
    from pytest_tfdebug.records import CallComparison, TensorRecord

#: Share of the calls of which fewer say little of what is inside.
_LITTLE = 0.5
_FILL = "Take inputs and weights that give more: pytest_tfdebug.fill(model) for weights."
_RETURN_MORE = (
    "Return what they are computed from as well, logits or hidden states, in the port and in the reference, or give "
    "rename= to compare the modules inside."
)


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


def told_unseen(compared: Compared, coverage: Coverage) -> Iterator[str]:
    """Say what a comparison in which all agrees does not show, in sentences."""
    roots = [item for item in compared.calls if item.call.parent is None]
    some = f"{coverage.compared} of {counted(coverage.expected, 'call')}"
    outputs = [leaf for item in roots for leaf in item.outputs if leaf.expected is not None]
    unread = [shown(leaf.leaf) or "the output" for leaf in outputs if not leaf.problem and not leaf.is_measured]
    left_out = [*told_unopened(compared), *(f"Not compared: {name}, whose values cannot be read." for name in unread)]
    yield from left_out
    if not coverage.root and not left_out:
        names = listed(list(dict.fromkeys(item.call.class_name for item in roots)), 3)
        yield f"The output of {names} was not compared: no tensor of it has a counterpart. Compared: {some}. {TO_OPEN}"
    leaves = [leaf for leaf in outputs if leaf.is_measured]
    numbers = [leaf for leaf in leaves if is_of_numbers(leaf)]
    if not leaves or any(leaf.expected is not None and _varies(leaf.expected) for leaf in numbers):
        return
    told = listed([f"{shown(leaf.leaf) or 'the output'} {leaf.dtype} {leaf.shape}" for leaf in leaves], 3)
    told = f"Compared: {told}; and {some}."
    are, advice = "empty, one number throughout, or mostly inf and nan", _FILL
    if all(math.prod(leaf.shape) == 1 for leaf in numbers):
        are, advice = "integers, booleans or single numbers", _RETURN_MORE
        if coverage.share >= _LITTLE:
            return
    yield f"Most faults would pass: the outputs agree, but they are {are}. {told} {advice}"


def _varies(record: TensorRecord) -> bool:
    """Tell whether a tensor holds different finite numbers, as far as is known."""
    held, digest = record.tensor, record.digest
    if held is not None or digest is None:
        return held is None or varies(held)
    first = widen(digest.elements[:1])
    even = math.sqrt(math.prod(record.shape)) * float(first.abs())  # the norm if all elements are the first one
    return varies(digest.elements) or (math.isfinite(even) and not math.isclose(digest.norm, even, rel_tol=1e-3))

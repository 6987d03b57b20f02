"""A forward that gives something else each time is not recorded: its golden would fail at the next run."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.parity.tensors.tolerance import DEFAULTS, Tolerance
from pytest_tfdebug.tensors import tensor_record
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.signatures import method_of
from pytest_tfdebug.tracing.record.state import preserved

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.records import TensorRecord
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.tracing.values.rerun import Rerun

#: What torch's generator begins with in a process where nobody has seeded it.
_UNSEEDED = 67280421310721
_OTHER_SEED = 1234567


def refuse_unless_repeatable(
    model: torch.nn.Module, recorded: Trace, again: Rerun, kept: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Make a recorded forward once more, with other random numbers, and refuse one that gives something else.

    What the test has seeded itself may draw random numbers, in eval mode: it draws the same ones at the next run.
    """
    root = recorded.calls[0]
    if _is_same(model, again, root.outputs or (), kept, is_seeded=False):
        return
    is_seeded = torch.initial_seed() != _UNSEEDED
    if not model.training and is_seeded and _is_same(model, again, root.outputs or (), kept, is_seeded=True):
        return
    why = (
        "it is in training mode: call .eval() on the model."
        if model.training
        else "it draws random numbers, or keeps a state of its own: give it fixed inputs, and seed what it draws.\n"
        "Weights without values are fixed with pytest_tfdebug.fill(model)."
    )
    raise GoldenError(
        f"The forward of {recorded.model_class} gives something else each time, and a golden of it would fail:\n  {why}"
    )


def _is_same(
    model: torch.nn.Module,
    again: Rerun,
    outputs: tuple[TensorRecord, ...],
    kept: Callable[[torch.Tensor], torch.Tensor],
    *,
    is_seeded: bool,
) -> bool:
    """Make a forward again, and tell whether it returns what it did; with random numbers as they were, or others."""
    args, kwargs = again.inputs()
    with preserved(model), torch.no_grad():
        if is_seeded:
            again.seed()
        else:
            torch.manual_seed(_OTHER_SEED)
            random.seed(_OTHER_SEED)
        call = model if again.method == "forward" else method_of(model, again.method)
        found = {leaf.path: leaf for leaf in walk(call(*args, **kwargs))}
    for record in outputs:
        leaf = found.get(record.leaf)
        if leaf is None:
            continue
        actual = tensor_record(leaf, kept(leaf.tensor))
        if compare_leaf("output", actual, record, DEFAULTS.get(record.dtype, Tolerance(0.0, 0.0))).problem:
            return False
    return True

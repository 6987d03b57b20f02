"""The inputs of a call cut down: to some rows of its batch, or to a part of its sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance.repeat.positions import move_positions

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_tfdebug.invariance.calls.sequences import InputSequence


def rows_of(inputs: Mapping[str, Any], rows: Sequence[int], batch: int) -> dict[str, Any]:
    """Return the inputs of some rows of a batch, in the given order; a row may come several times."""
    return {
        name: value[list(rows)]
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == batch and name != "cache_position"
        else value
        for name, value in inputs.items()
    }


def window_of(inputs: Mapping[str, Any], sequence: InputSequence, first: int, end: int) -> dict[str, Any]:
    """Return the inputs of a call with only the positions ``first`` to ``end`` of a sequence."""
    changed = dict(inputs)
    for name in (sequence.main, *sequence.aligned):
        changed[name] = inputs[name].narrow(sequence.axis, first, end - first)
    if isinstance(inputs.get(sequence.kind.mask), torch.Tensor):
        changed[sequence.kind.mask] = inputs[sequence.kind.mask].narrow(sequence.mask_axis, first, end - first)
    move_positions(changed, sequence, -first, end - first)
    return changed

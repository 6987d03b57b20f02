"""The inputs of a call cut down: to some rows of its batch, or to a part of its sequence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance.calls.sequences import LENGTHS
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


def has_shares(inputs: Mapping[str, Any], batch: int) -> bool:
    """Tell whether an input may have several items for each row of a batch, as the classes to look for in an image."""
    return any(_items(value, batch) > 1 for value in inputs.values())


def rows_with_shares(inputs: Mapping[str, Any], rows: Sequence[int], batch: int) -> dict[str, Any]:
    """Return the inputs of some rows of a batch, and the items of these rows where an input has several for each."""
    made = rows_of(inputs, rows, batch)
    for name, value in inputs.items():
        items = _items(value, batch)
        if items > 1:
            made[name] = value.unflatten(0, (batch, items))[list(rows)].flatten(0, 1)
    return made


def _items(value: object, batch: int) -> int:
    """Return how many items a tensor has for each row; 0 where they do not come out even."""
    if not isinstance(value, torch.Tensor) or value.dim() < 2 or value.shape[0] % batch:  # noqa: PLR2004 - rows, and more
        return 0
    return value.shape[0] // batch


def window_of(inputs: Mapping[str, Any], sequence: InputSequence, first: int, end: int) -> dict[str, Any]:
    """Return the inputs of a call with only the positions ``first`` to ``end`` of a sequence."""
    changed = dict(inputs)
    for name in (sequence.main, *sequence.aligned):
        changed[name] = inputs[name].narrow(sequence.axis, first, end - first)
    if isinstance(inputs.get(sequence.kind.mask), torch.Tensor):
        changed[sequence.kind.mask] = inputs[sequence.kind.mask].narrow(sequence.mask_axis, first, end - first)
    if isinstance(inputs.get(LENGTHS), torch.Tensor):
        changed[LENGTHS] = (inputs[LENGTHS] - first).clamp(0, end - first)
    move_positions(changed, sequence, -first, end - first)
    return changed

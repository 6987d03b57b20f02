"""Tensors that are the same in another form: broadcast along an axis, or a mask in other numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.tensors import widen

if TYPE_CHECKING:
    from pytest_tfdebug.records import LeafComparison, TensorRecord

#: Numbers in a mask: one for what counts, one for what does not.
_OF_MASK = 2
#: What is added to a score to hide it is below this: the exponential of it is 0 in every dtype.
_HIDDEN = -1e3


def by_meaning(leaf: LeafComparison, actual: torch.Tensor | None) -> LeafComparison:
    """Return a mask that two models write in other numbers as that: 1 for a real token in one, 0 in the other."""
    expected = leaf.expected.tensor if leaf.expected is not None else None
    if leaf.problem != "values" or actual is None or expected is None or actual.shape != expected.shape:
        return leaf
    numbers = [torch.unique(tensor).numel() for tensor in (actual, expected)]
    pairs = torch.unique(torch.stack([actual.double().flatten(), expected.double().flatten()]), dim=1).shape[1]
    is_mask = max(numbers) <= _OF_MASK and numbers == [pairs, pairs]
    return replace(leaf, problem="recoded", metrics=None) if is_mask else leaf


def in_one_form(actual: TensorRecord, expected: TensorRecord) -> tuple[TensorRecord, TensorRecord] | None:
    """Return two tensors in one shape, masks as what they let through; None where they have one, or can have none.

    A mask is one of booleans, or one that is added to scores: 0 for what counts and hardly anything for the rest.
    """
    if actual.tensor is None or expected.tensor is None or actual.tensor.device != expected.tensor.device:
        return None
    mine, theirs = actual.tensor.detach(), expected.tensor
    shapes = [(a, b) for a, b in zip(mine.shape, theirs.shape, strict=False) if a != b]
    if mine.dim() != theirs.dim() or any(1 not in pair for pair in shapes) or not mine.numel():
        return None
    masks = _shown(mine), _shown(theirs)
    if masks[0] is not None and masks[1] is not None:
        mine, theirs = masks[0], masks[1]
    elif not shapes:
        return None
    whole = [max(a, b) for a, b in zip(mine.shape, theirs.shape, strict=True)]
    return tuple(  # type: ignore[return-value] # of two
        replace(record, tensor=tensor, shape=tuple(tensor.shape), dtype=str(tensor.dtype).removeprefix("torch."))
        for record, tensor in zip((actual, expected), (mine.expand(whole), theirs.expand(whole)), strict=True)
    )


def _shown(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return what a mask lets through; None for what is no mask."""
    if tensor.dtype == torch.bool:
        return tensor
    if not tensor.is_floating_point():
        return None
    wide = widen(tensor)  # float8 cannot be compared
    shown = wide == 0
    return shown if bool((shown | (wide < _HIDDEN)).all()) else None

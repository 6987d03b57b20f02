"""Position ids: built from the mask, and moved where pads come before the sequence."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.sequences import POINTERS, mask_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.calls.sequences import InputSequence
    from pytest_tfdebug.invariance.repeat.repetition import Repetition


def can_take_positions(call: ObservedCall, sequence: InputSequence) -> bool:
    """Tell whether position ids can be given to a call that has none of its own."""
    name = sequence.kind.positions
    return name is not None and sequence.axis == 1 and call.inputs.get(name) is None and name in call.parameters


def with_positions(
    model: torch.nn.Module, inputs: Mapping[str, Any], sequence: InputSequence, start: int | None = None
) -> dict[str, Any]:
    """Return the inputs of a call with position ids that count each row from its first real token.

    Positions that the mask excludes further on are counted too, as in a call without position ids. The first number is
    0, or the one after the entries that a position table keeps for pads (RoBERTa: ``padding_idx + 1``).
    """
    assert sequence.kind.positions is not None  # noqa: S101 - only asked of token sequences
    has_begun = (mask_of(inputs, sequence) != 0).long().cumsum(-1) > 0
    if start is not None:
        has_begun = torch.ones_like(has_begun).cumsum(-1) > start
    positions = has_begun.long().cumsum(-1).sub(1).clamp(min=0) + model_traits.reserved_positions(model)
    return {**inputs, sequence.kind.positions: positions}


def numbered(call: ObservedCall, sequence: InputSequence, made: Repetition) -> Repetition:
    """Return a repetition in which both calls are given position ids.

    They are built from the mask; if the test itself made the call without pads, its tokens keep the positions they had.
    """
    starts = (made.alignment.start, 0) if made.recorded == "expected" else (None, None)
    inputs, expected = (
        with_positions(call.model, each, sequence, start)
        for each, start in zip((made.inputs, made.expected_inputs), starts, strict=True)
    )
    return replace(
        made,
        label=f"{made.label}, with {sequence.kind.positions}",
        inputs=inputs,
        expected_inputs=expected,
        recorded="" if made.recorded == "actual" else made.recorded,
    )


def move_positions(changed: dict[str, Any], sequence: InputSequence, by: int, total: int) -> None:
    """Renumber the positions of the padded sequence and move the inputs that point into it, in place."""
    if sequence.kind.name != "encoder":
        return
    cached = changed.get("cache_position")
    if isinstance(cached, torch.Tensor) and cached.dim() == 1:
        changed["cache_position"] = torch.arange(total, device=cached.device, dtype=cached.dtype)
    for name in POINTERS:
        pointer = changed.get(name)
        if isinstance(pointer, torch.Tensor):
            changed[name] = pointer + by

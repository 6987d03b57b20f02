"""A call made again in another way: with some rows, a part of a sequence, position ids, or pads."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch.nn.functional import pad

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.sequences import KEEPS_END, LENGTHS, POINTERS, mask_of
from pytest_tfdebug.tensors import IGNORED_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from pytest_tfdebug.invariance.calls.alignment import Alignment
    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.calls.sequences import InputSequence

    #: Changes a model for the length of a block.
    Within = Callable[[torch.nn.Module], AbstractContextManager[object]]


@dataclass(frozen=True)
class Repetition:
    """A call made again in another way, and how its tensors lie beside those of the expected call."""

    label: str  # what was done, as in `input_ids padded by 7 on the right`
    inputs: dict[str, Any]  # named inputs of the repeated call
    alignment: Alignment  # where the expected tensors lie in the actual ones
    expected_inputs: dict[str, Any]  # named inputs of the expected call
    # which of the two calls the test has made, whose answer is asked for once; empty for neither
    recorded: Literal["expected", "actual", ""] = "expected"
    side: Literal["left", "right", ""] = ""  # side of the pads; empty without any
    model: torch.nn.Module | None = None  # the model of the repeated call; None for that of the expected one
    # what the model of either call is changed by: the expected one, the repeated one
    within: tuple[Within, Within] = (nullcontext, nullcontext)
    diagnosis: str = ""  # what is probably wrong where the answers differ


#: Seed of the random filler: the same content in every run.
_SEED = 20261121


def rows_of(inputs: Mapping[str, Any], rows: Sequence[int], batch: int, *, with_shares: bool = False) -> dict[str, Any]:
    """Return the inputs of some rows of a batch, in the given order; a row may come several times.

    ``with_shares`` takes the items of these rows where an input has several for each.
    """
    made = dict(inputs)
    for name, value in inputs.items():
        items = items_of(value, batch)
        if (items == 1 and name != "cache_position") or (with_shares and items > 1):
            made[name] = value.unflatten(0, (batch, items))[list(rows)].flatten(0, 1)
    return made


def items_of(value: object, batch: int) -> int:
    """Return how many items a tensor has for each row, as the classes to look for in an image; 0 if not the same."""
    if not isinstance(value, torch.Tensor) or not value.dim() or value.shape[0] % batch:
        return 0
    items = value.shape[0] // batch
    return items if items == 1 or value.dim() > 1 else 0


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


def masked(sequence: InputSequence, made: Repetition) -> Repetition:
    """Return a repetition whose padded call is given the mask that follows from its pad tokens."""
    ones = mask_of(made.inputs, sequence)
    mask = ones if sequence.mask is None else sequence.mask.to(ones).view(ones.shape)
    return replace(made, inputs={**made.inputs, sequence.kind.mask: mask}, recorded="")


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


def padded(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    sequence: InputSequence,
    pads: tuple[int, int],
    filler: str | int = "pad",
) -> dict[str, Any]:
    """Return the inputs of a call with pads before and after every row of one sequence."""
    main: torch.Tensor = inputs[sequence.main]
    before, after = pads
    if sequence.kind.unit == "pixels":
        widths = (0, after, 0, after)
        mask = pad(mask_of(inputs, sequence), widths)
        return {**inputs, sequence.main: pad(main, widths), sequence.kind.mask: mask}
    token = model_traits.pad_token(model) if filler == "pad" else 0 if filler == "random" else int(filler)
    longer = extend(main, sequence.axis, before, after, token if sequence.main.endswith("input_ids") else 0)
    changed: dict[str, Any] = dict(inputs)
    changed[sequence.main] = _random(model, longer, sequence, before) if filler == "random" else longer
    for name, value in sequence.aligned.items():
        changed[name] = extend(inputs[name], sequence.axis, before, after, value)
    if sequence.takes_mask:
        changed[sequence.kind.mask] = extend(mask_of(inputs, sequence), sequence.mask_axis, before, after)
    move_positions(changed, sequence, before, before + sequence.length + after)
    keeps = inputs.get(KEEPS_END)
    if after and isinstance(keeps, int) and keeps > 0 and sequence.kind.name in ("encoder", "decoder"):
        end = before + sequence.length
        changed[KEEPS_END] = torch.arange(max(before, end - keeps), end, device=main.device)
    shifts = before and sequence.kind.name == "encoder" and model_traits.shifts_labels(model)
    if shifts and "labels" in sequence.aligned:  # the loss would predict the first token from the last pad
        changed["labels"][:, before] = IGNORED_LABEL
    return changed if sequence.beside is None else padded(model, changed, sequence.beside, pads, filler)


def without_pads(made: Mapping[str, Any], sequence: InputSequence) -> dict[str, Any]:
    """Return the inputs of a padded call as a plain call of the same sizes: each pad becomes a real token."""
    inputs: dict[str, Any] = dict(made)
    if sequence.takes_mask:
        inputs[sequence.kind.mask] = torch.ones_like(mask_of(made, sequence))
    ids, mask = made[sequence.main], mask_of(made, sequence).bool()
    real = ids[mask]
    inputs[sequence.main] = torch.where(
        mask.reshape(*mask.shape, *(1,) * (ids.dim() - mask.dim())), ids, real[len(real) // 2]
    )
    return inputs if sequence.beside is None else without_pads(inputs, sequence.beside)


def extend(tensor: torch.Tensor, axis: int, before: int, after: int, value: float = 0) -> torch.Tensor:
    """Return a tensor with constant positions before and after one axis."""
    return pad(tensor, [0, 0] * (tensor.dim() - 1 - axis) + [before, after], value=value)


def _random(model: torch.nn.Module, tensor: torch.Tensor, sequence: InputSequence, before: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(_SEED)
    if sequence.main.endswith("input_ids"):
        content = torch.randint(model_traits.vocabulary(model), tensor.shape, generator=generator)
    else:
        content = torch.randn(tensor.shape, generator=generator)
    positions = torch.arange(tensor.shape[sequence.axis])
    is_new = (positions < before) | (positions >= before + sequence.length)
    shape = [1] * tensor.dim()
    shape[sequence.axis] = -1
    new = is_new.reshape(shape).to(tensor.device)
    return torch.where(new, content.to(tensor.device, tensor.dtype), tensor)

"""Pad the inputs of a call: pads before and after each row, in new tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.sequences import IGNORED_LABEL, KEEPS_END, mask_of
from pytest_tfdebug.invariance.repeat.positions import move_positions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_tfdebug.invariance.calls.sequences import InputSequence

#: Seed of the random filler: the same content in every run.
_SEED = 20261121
Inputs = dict[str, Any]


def padded(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    sequence: InputSequence,
    pads: tuple[int, int],
    filler: str | int = "pad",
) -> Inputs:
    """Return the inputs of a call with pads before and after every row of one sequence.

    Returns:
        New inputs: the main one, its mask and every aligned one are longer by ``before + after``.
    """
    main: torch.Tensor = inputs[sequence.main]
    before, after = pads
    if sequence.kind.unit == "pixels":
        widths = (0, after, 0, after)
        mask = pad(mask_of(inputs, sequence), widths)
        return {**inputs, sequence.main: pad(main, widths), sequence.kind.mask: mask}
    token = _token(model, sequence, filler)
    longer = extend(main, sequence.axis, before, after, token)
    changed: Inputs = dict(inputs)
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
    if before and sequence.kind.name == "encoder" and model_traits.shifts_labels(model):
        _ignore_first_label(changed, sequence, before)
    return changed if sequence.beside is None else padded(model, changed, sequence.beside, pads, filler)


def without_pads(made: Mapping[str, Any], sequence: InputSequence) -> Inputs:
    """Return the inputs of a padded call as a plain call of the same sizes: each pad becomes a real token."""
    inputs: Inputs = dict(made)
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


def _token(model: torch.nn.Module, sequence: InputSequence, filler: str | int) -> int:
    """Return what stands at the pads: a token, or 0 where the sequence is not one of tokens."""
    if not sequence.main.endswith("input_ids") or filler == "random":
        return 0
    return model_traits.pad_token(model) if filler == "pad" else int(filler)


def _random(model: torch.nn.Module, tensor: torch.Tensor, sequence: InputSequence, before: int) -> torch.Tensor:
    """Write random content where ``tensor`` was extended."""
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


def _ignore_first_label(changed: Inputs, sequence: InputSequence, before: int) -> None:
    """Ignore the label of the first token: a shifted loss would predict it from the last pad."""
    labels = changed.get("labels")
    if isinstance(labels, torch.Tensor) and "labels" in sequence.aligned:
        labels[:, before] = IGNORED_LABEL

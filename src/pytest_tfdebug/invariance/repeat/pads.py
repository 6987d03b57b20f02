"""The inputs of a call with padding: built from those of the call, which stay as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from pytest_tfdebug.invariance import family
from pytest_tfdebug.invariance.streams import IGNORED_LABEL, KEEPS_END, POINTERS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_tfdebug.invariance.streams import Stream

#: Seed of the random filler: the same content in every run.
_SEED = 20261121
Inputs = dict[str, Any]


def padded(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    stream: Stream,
    pads: tuple[int, int],
    filler: str | int = "pad",
) -> Inputs:
    """Return the inputs of a call with pads before and after every row of one stream.

    Args:
        model: The model, for its pad token.
        inputs: Named inputs.
        stream: Which sequence to pad.
        pads: Numbers of pads on the left and on the right.
        filler: ``"pad"`` for the pad token (zeros for embeddings, frames and pixels), ``"random"``, or a token id.

    Returns:
        New inputs: the main one, its mask and every aligned one are longer by ``before + after``.
    """
    changed: Inputs = dict(inputs)
    main: torch.Tensor = inputs[stream.main]
    before, after = pads
    if stream.kind.unit == "pixels":
        return _padded_pixels(inputs, stream, after)
    token = _token(model, stream, filler)
    longer = extend(main, stream.axis, before, after, token)
    changed[stream.main] = _random(model, longer, stream, before) if filler == "random" else longer
    for name, value in stream.aligned.items():
        changed[name] = extend(inputs[name], stream.axis, before, after, value)
    if stream.takes_mask:
        changed[stream.kind.mask] = extend(mask_of(inputs, stream), _mask_axis(stream), before, after)
    _move_positions(changed, stream, before, before + stream.length + after)
    keeps = inputs.get(KEEPS_END)
    if after and isinstance(keeps, int) and keeps > 0 and stream.kind.name in ("encoder", "decoder"):
        end = before + stream.length
        changed[KEEPS_END] = torch.arange(max(before, end - keeps), end, device=main.device)
    if before and stream.kind.name == "encoder" and family.shifts_labels(model):
        _ignore_first_label(changed, stream, before)
    return changed


def mask_of(inputs: Mapping[str, Any], stream: Stream) -> torch.Tensor:
    """Return the mask of a stream, 1 everywhere when the call was made without one."""
    given = inputs.get(stream.kind.mask)
    if isinstance(given, torch.Tensor):
        return given
    main: torch.Tensor = inputs[stream.main]
    if stream.kind.unit == "pixels":
        return torch.ones((main.shape[0], *main.shape[-2:]), dtype=torch.int64, device=main.device)
    shape = main.shape[: stream.axis + 1] if stream.kind.unit == "tokens" else (main.shape[0], main.shape[stream.axis])
    return torch.ones(shape, dtype=torch.int64, device=main.device)


def with_mask(inputs: Mapping[str, Any], stream: Stream) -> Inputs:
    """Return the inputs of a call with its mask spelled out, where the forward takes one."""
    return {**inputs, stream.kind.mask: mask_of(inputs, stream)} if stream.takes_mask else dict(inputs)


def with_positions(model: torch.nn.Module, inputs: Mapping[str, Any], stream: Stream) -> Inputs:
    """Return the inputs of a call with position ids that count the real tokens of each row.

    They begin at 0, or after the entries that a position table keeps for pads (RoBERTa: ``padding_idx + 1``).
    """
    assert stream.kind.positions is not None  # noqa: S101 - only asked of token streams
    first = family.reserved_positions(model)
    positions = mask_of(inputs, stream).long().cumsum(-1).sub(1).clamp(min=0) + first
    return {**inputs, stream.kind.positions: positions}


def rows_of(inputs: Mapping[str, Any], rows: Sequence[int], batch: int) -> Inputs:
    """Return the inputs of some rows of a batch, in the given order; a row may come several times."""
    return {
        name: value[list(rows)]
        if isinstance(value, torch.Tensor) and value.dim() and value.shape[0] == batch and name != "cache_position"
        else value
        for name, value in inputs.items()
    }


def window_of(inputs: Mapping[str, Any], stream: Stream, first: int, end: int) -> Inputs:
    """Return the inputs of a call with only the positions ``first`` to ``end`` of a stream."""
    changed: Inputs = dict(inputs)
    for name in (stream.main, *stream.aligned):
        changed[name] = inputs[name].narrow(stream.axis, first, end - first)
    if isinstance(inputs.get(stream.kind.mask), torch.Tensor):
        changed[stream.kind.mask] = inputs[stream.kind.mask].narrow(_mask_axis(stream), first, end - first)
    _move_positions(changed, stream, -first, end - first)
    return changed


def extend(tensor: torch.Tensor, axis: int, before: int, after: int, value: float = 0) -> torch.Tensor:
    """Return a tensor with constant positions before and after one axis."""
    widths = [0] * (2 * tensor.dim())
    at = 2 * (tensor.dim() - 1 - axis)
    widths[at], widths[at + 1] = before, after
    if tensor.dtype is torch.bool:
        return pad(tensor.to(torch.uint8), widths, value=value).bool()
    return pad(tensor, widths, value=value)


def _mask_axis(stream: Stream) -> int:
    return stream.axis if stream.kind.unit == "tokens" else 1


def _token(model: torch.nn.Module, stream: Stream, filler: str | int) -> int:
    """Return what stands at the pads: a token, or 0 where the stream is not one of tokens."""
    if not stream.main.endswith("input_ids") or filler == "random":
        return 0
    return family.pad_token(model) if filler == "pad" else int(filler)


def _random(model: torch.nn.Module, tensor: torch.Tensor, stream: Stream, before: int) -> torch.Tensor:
    """Write random content where ``tensor`` was extended."""
    generator = torch.Generator().manual_seed(_SEED)
    if stream.main.endswith("input_ids"):
        content = torch.randint(family.vocabulary(model), tensor.shape, generator=generator)
    else:
        content = torch.randn(tensor.shape, generator=generator)
    positions = torch.arange(tensor.shape[stream.axis])
    is_new = (positions < before) | (positions >= before + stream.length)
    shape = [1] * tensor.dim()
    shape[stream.axis] = -1
    new = is_new.reshape(shape).to(tensor.device)
    return torch.where(new, content.to(tensor.device, tensor.dtype), tensor)


def _move_positions(changed: Inputs, stream: Stream, by: int, total: int) -> None:
    """Renumber what counts positions of the whole padded sequence, and move what points into it."""
    if stream.kind.name != "encoder":
        return
    cached = changed.get("cache_position")
    if isinstance(cached, torch.Tensor) and cached.dim() == 1:
        changed["cache_position"] = torch.arange(total, device=cached.device, dtype=cached.dtype)
    for name in POINTERS:
        pointer = changed.get(name)
        if isinstance(pointer, torch.Tensor):
            changed[name] = pointer + by


def _ignore_first_label(changed: Inputs, stream: Stream, before: int) -> None:
    """Leave out the label of the first token: a shifted loss would predict it from the last pad."""
    labels = changed.get("labels")
    if isinstance(labels, torch.Tensor) and "labels" in stream.aligned:
        labels[:, before] = IGNORED_LABEL


def _padded_pixels(inputs: Mapping[str, Any], stream: Stream, by: int) -> Inputs:
    widths = (0, by, 0, by)
    mask = mask_of(inputs, stream)
    return {
        **inputs,
        stream.main: pad(inputs[stream.main], widths),
        stream.kind.mask: pad(mask.to(torch.uint8) if mask.dtype is torch.bool else mask, widths).to(mask.dtype),
    }

"""Follow the attention mask through a recorded forward: where it is dropped, or made so weak that pads get through."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.records import Culprit
from pytest_tfdebug.tracing.record.mask_names import input_name, is_mask
from pytest_tfdebug.tracing.values.glue import glue_lines

if TYPE_CHECKING:
    from pytest_tfdebug.invariance.compare.alignment import Alignment
    from pytest_tfdebug.records import Call, TensorRecord
    from pytest_tfdebug.tracing.trace import Trace

#: An additive mask above this leaves a score of ordinary size more weight than exp(-88), the smallest float32.
WEAK = -88.0
#: A boolean mask of this name hides where it is True, in torch.nn.MultiheadAttention and the layers made of it.
_TORCH_NAME = "key_padding_mask"


@dataclass(frozen=True)
class MaskFault:
    """A mask that does not mask."""

    culprit: Culprit  # the glue that dropped or made it
    sentence: str  # what is wrong with the mask


def mask_fault(trace: Trace, culprit: Culprit, alignment: Alignment) -> MaskFault | None:
    """Return what is wrong with the mask that the culprit was given, or None when the culprit had a good one.

    A culprit that attends with the mask it is given is not to blame for the mask: the forward that made the mask is,
    or the one that had it and did not pass it on.
    """
    call = culprit_call(trace, culprit)
    if call is None or call.parent is None:
        return None
    own = mask_of_call(call)
    if own is not None:
        return _made_badly(trace, culprit, call, own, alignment)
    return _dropped(trace, culprit, call, alignment) if any(map(is_mask, call.parameters)) else None


def hides_pads(trace: Trace, culprit: Culprit, alignment: Alignment) -> bool:
    """Tell whether the culprit was given a mask over these positions that hides every pad."""
    call = culprit_call(trace, culprit)
    own = None if call is None else mask_of_call(call)
    if own is None or own.tensor is None or own.tensor.shape[-1] != alignment.total or not alignment.pads:
        return False
    return not _describe_fault(own, alignment)


def _made_badly(
    trace: Trace, culprit: Culprit, call: Call, own: TensorRecord, alignment: Alignment
) -> MaskFault | None:
    """Blame the forward that made a mask which lets pads through, and not those that were given such a mask."""
    described = told = _describe_fault(own, alignment)
    while told and call.parent is not None:
        described, holder = told, trace.calls[call.parent]
        held = mask_of_call(holder)
        told = "" if held is None else _describe_fault(held, alignment)
        call = holder if told else call
    if not described or call.parent is None:
        return None
    maker = trace.calls[call.parent]
    return MaskFault(_blame(trace, maker, call, culprit, "makes the mask"), described)


def _dropped(trace: Trace, culprit: Culprit, call: Call, alignment: Alignment) -> MaskFault | None:
    """Blame the nearest forward that had a good mask and did not pass it on."""
    below = call
    while below.parent is not None:
        holder = trace.calls[below.parent]
        held = mask_of_call(holder)
        if held is not None and not _describe_fault(held, alignment):
            told = f"{call.name!r} takes a mask and was given none, although {holder.name!r} had one"
            return MaskFault(_blame(trace, holder, below, culprit, "does not pass its mask on"), told)
        below = holder
    return None


def culprit_call(trace: Trace, culprit: Culprit) -> Call | None:
    """Return the culprit's call in a trace."""
    divergence = culprit.divergence
    if divergence is None:
        return None
    call = next((call for call in trace if (call.path, call.call) == (divergence.path, divergence.call)), None)
    while call is not None and call.path != culprit.path:
        call = None if call.parent is None else trace.calls[call.parent]
    return call


def mask_of_call(call: Call) -> TensorRecord | None:
    """Return the mask among a call's inputs, under its parameter's name; None when the call was given none."""
    for record in call.inputs:
        name = input_name(record.leaf, call.parameters)
        if is_mask(name) and record.tensor is not None and record.tensor.dim() >= 2:  # noqa: PLR2004 - (batch, length)
            return replace(record, leaf=name)
    return None


def _describe_fault(record: TensorRecord, alignment: Alignment) -> str:
    """Return what lets pads through in a mask, empty when nothing does or the mask is not over these positions."""
    mask = record.tensor
    assert mask is not None  # noqa: S101 - mask_of_call asked
    if mask.shape[-1] != alignment.total or not alignment.pads:
        return ""
    if alignment.rows is not None and mask.shape[0] == alignment.batch:
        mask = mask[list(alignment.rows)]
    end = alignment.start + alignment.real
    at_pads = torch.cat([mask[..., : alignment.start], mask[..., end:]], dim=-1)
    if mask.dim() >= 3 and mask.shape[-2] == alignment.total:  # noqa: PLR2004 - queries of real tokens
        at_pads = at_pads[..., alignment.start : end, :]
    if not at_pads.numel():
        return ""
    if mask.dtype is torch.bool or (mask.dim() == 2 and bool((mask >= 0).all())):  # noqa: PLR2004
        is_torchs = mask.dtype is torch.bool and _TORCH_NAME in record.leaf
        shown = int(((at_pads == 0) if is_torchs else (at_pads != 0)).sum())
        where = f"{shown} pad position{'s' * (shown != 1)}"
        told = f"{_TORCH_NAME} is False at {where}, and only True hides" if is_torchs else f"mask is on at {where}"
        return f"its {told}" if shown else ""
    highest = float(at_pads.max())
    if highest <= WEAK:
        return ""
    if highest < 0:
        return f"its additive mask only reaches {highest:.4g}: not large enough for {record.dtype}, pads keep weight"
    return f"its additive mask is {highest:.4g} at pads: they are attended to like real tokens"


def _blame(trace: Trace, maker: Call, below: Call, first: Culprit, what: str) -> Culprit:
    siblings = [call for call in trace if call.parent == maker.index and call.index < below.index]
    return Culprit(
        maker.path,
        "glue",
        glue_lines(maker, siblings[-1] if siblings else None, below),
        f"The first tensor to change belongs to {first.path!r} ({first.class_name}); the forward of "
        f"{maker.class_name} {what}, before its call of {below.name!r}.",
        maker.class_name,
        divergence=first.divergence,
    )

"""Mistakes with masks that transformers accepts without a word, as warnings that name the call site."""

from __future__ import annotations

import warnings
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugMaskWarning
from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.observed_call import cached_tokens
from pytest_tfdebug.invariance.calls.sequences import LENGTHS, padless
from pytest_tfdebug.publish.reports import calling_line
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.tracing.record.leaves import is_cache
from pytest_tfdebug.tracing.record.modules import root_name
from pytest_tfdebug.tracing.record.signatures import named_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MASK = "attention_mask"
#: Names under which a mask is often given to models that call it ``attention_mask``.
_ALIASES = ("attn_mask", "input_mask", "mask", "padding_mask", "attention_masks", "att_mask")
#: Masks of other things, whatever their names resemble.
_OTHERS = ("encoder_attention_mask", "decoder_attention_mask", "cross_attention_mask", "pixel_mask", "head_mask")


def watch(model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Warn of every mistake in the mask of an outermost call, at the line that made the call."""
    inputs = {**dict(zip(named_parameters(model_traits.kind_of(model)), args, strict=False)), **kwargs}
    name = root_name(model)
    for told in mistakes(model, inputs):
        place = calling_line() or SourceRange("<unknown>", 0, 0)
        text = f"{place}: {name} was called {told}"
        warnings.warn_explicit(text, TFDebugMaskWarning, place.file, place.first)


def mistakes(model: torch.nn.Module, inputs: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the mask of a call, as the end of the sentence "BertModel was called ..."."""
    known, mask = model_traits.accepted(model), inputs.get(_MASK)
    if _MASK not in known:
        return
    for name, value in inputs.items() if mask is None else ():
        is_like = name in _ALIASES or bool(get_close_matches(name, [_MASK], cutoff=0.8))
        if is_like and value is not None and name not in (*known, *_OTHERS):
            yield f"with {name}=, which its forward does not know and ignores. Did you mean {_MASK}=?"
    main = inputs.get("input_ids")
    main = inputs.get("inputs_embeds") if main is None else main
    if not isinstance(main, torch.Tensor) or main.dim() < 2:  # noqa: PLR2004 - (batch, length)
        return
    pads = _pads(model, inputs)
    if mask is None and pads is not None and inputs.get(LENGTHS) is None:
        rows = int(pads.any(dim=1).sum())
        yield (
            f"without {_MASK}, and {rows} of {len(pads)} rows begin or end with the pad token "
            f"{model_traits.pad_token(model)}: pads are attended to. Pass {_MASK}."
        )
    if not isinstance(mask, torch.Tensor) or mask.dim() != 2:  # noqa: PLR2004 - (batch, length)
        return
    past = next((cached_tokens(value) for value in inputs.values() if is_cache(value)), 0)
    if mask.shape[1] < main.shape[1]:
        yield (
            f"with {_MASK} of shape {tuple(mask.shape)} for {main.shape[1]} tokens: it is shorter than the input. "
            "Give it one entry for each token."
        )
    elif mask.is_floating_point() and bool((mask < 0).any()):
        yield (
            f"with an additive 2-D {_MASK} (lowest value {float(mask.min()):.4g}): 2-D masks are 1 at real tokens and "
            "0 at pads, so every non-zero value counts as real."
        )
    elif pads is not None and not past and mask.shape == pads.shape and bool(((mask != 0) == pads).all()):
        yield f"with an inverted {_MASK}: it is 1 at every pad token and 0 at every other. Write 1 - mask or ~mask."


def _pads(model: torch.nn.Module, inputs: Mapping[str, Any]) -> torch.Tensor | None:
    """Return where rows begin or end with pad tokens, ``(batch, length)``, bool; None when none does."""
    ids, pad = inputs.get("input_ids"), model_traits.distinct_pad_token(model)
    if not isinstance(ids, torch.Tensor) or ids.dim() != 2 or pad is None or ids.shape[1] < 2:  # noqa: PLR2004
        return None
    pads = ~padless(ids, pad)
    return pads if bool(pads.any()) and not bool(pads.all()) else None

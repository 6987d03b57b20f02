"""The sequences of a call that are decoded step by step, and the inputs of each piece."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.inputs import can_take_positions, padded, window_of, with_positions
from pytest_tfdebug.invariance.calls.padding_variants import left_padding_refusal
from pytest_tfdebug.invariance.calls.sequences import KEEPS_END, with_mask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.calls.sequences import InputSequence

_PLACES = "cache_position"  # without it, a state space model of transformers 4 takes no state
SWITCH = "use_cache"
_KEYS_AND_VALUES, _STATES = "past_key_values", "cache_params"
#: What a forward calls the cache that it takes and returns.
CACHES = (_KEYS_AND_VALUES, _STATES)
#: Tokens that are decoded one by one.
_STEPS = 8
_CHUNKS = 3
#: Left pads of the padded variant.
_PADS = 3
#: Asks mixtures of experts for a loss over a whole sequence; transformers' own generation leaves it out as well.
_ROUTER = "output_router_logits"
_ENCODER_INPUTS = ("input_ids", "inputs_embeds", "input_features")
#: Configuration entries that name the tokens at which images, videos and sounds stand.
_PLACEHOLDERS = tuple(f"{media}_token_{entry}" for media in ("image", "video", "audio") for entry in ("id", "index"))


@dataclass(frozen=True)
class Decoding:
    """A sequence to be decoded."""

    label: str  # what was done to it; empty for the call's own
    inputs: dict[str, Any]  # inputs of the full forward
    real: torch.Tensor  # its real positions, `(batch, length)`, bool
    sequence: InputSequence  # the sequence as it is in the call
    cache: str  # the input that carries its cache
    # inputs that do not run along it (pixels, frames, image sizes): for the prefill, as in `generate`
    media: tuple[str, ...] = ()
    begun: int = 0  # number of tokens up to the last that stands for a part of these inputs
    takes_places: bool = False  # whether the forward takes the positions that a piece has in a cache

    def plans(self) -> Iterator[tuple[str, list[int]]]:
        """Yield where to cut the sequence: prefill and single steps; chunks of a third."""
        length, own = self.real.shape[1], self.sequence.length
        first = max(length // 2, length - _STEPS, length - own + 1, self.begun)
        if first < length:
            yield f"{first} tokens of prefill and {length - first} steps", [0, *range(first, length + 1)]
        size = -(-length // _CHUNKS)
        if self.cache == _KEYS_AND_VALUES and 1 < max(size, self.begun) < length:
            yield f"chunks of {size} tokens", [0, *range(max(size, self.begun), length, size), length]

    def piece(self, first: int, end: int, state: object = None) -> dict[str, Any]:
        """Return the inputs of the tokens ``first`` to ``end``, the mask of everything so far, and its cache."""
        sequence, whole = self.sequence, self.inputs
        names = [name for name in (*sequence.aligned, sequence.kind.positions) if name and name != sequence.kind.mask]
        aligned = {name: 0 for name in names if isinstance(whole.get(name), torch.Tensor)}
        piece = window_of(whole, replace(sequence, aligned=aligned), first, end)
        mask = whole.get(sequence.kind.mask)
        if isinstance(mask, torch.Tensor):  # a state has taken the pads in already, keys and values have not
            piece[sequence.kind.mask] = mask[:, :end] if self.cache == _KEYS_AND_VALUES or not first else None
        if SWITCH in whole:
            piece[SWITCH] = True
        if state is not None:
            piece[self.cache] = state
            if self.cache == _STATES and self.takes_places:
                piece[_PLACES] = torch.arange(first, end)
        return {name: value for name, value in piece.items() if not first or name not in self.media}

    def plain(self, piece: dict[str, Any], first: int, end: int) -> dict[str, Any]:
        """Return the inputs of a piece as a call of its own, without a cache."""
        own = {name: value for name, value in piece.items() if name not in (self.cache, _PLACES)}
        mask = self.inputs.get(self.sequence.kind.mask)
        if isinstance(mask, torch.Tensor):
            own[self.sequence.kind.mask] = mask[:, first:end]
        return {**own, **({SWITCH: False} if SWITCH in own else {})}


def decodings(call: ObservedCall, sequence: InputSequence, cache: str) -> Iterator[Decoding]:
    """Yield the call's sequence, and the same padded on the left."""
    model = call.model
    plain = {
        name: value
        for name, value in with_mask(call.inputs, sequence).items()
        if not name.endswith("labels") and name not in (*CACHES, KEEPS_END)
    }
    sequence = replace(sequence, aligned={name: value for name, value in sequence.aligned.items() if name in plain})
    real = (
        torch.ones(sequence.batch, sequence.length, dtype=torch.bool) if sequence.mask is None else sequence.mask.cpu()
    )
    can_take = can_take_positions(call, sequence)
    has_left_pads = any(first for first, _ in sequence.windows())
    own = with_positions(model, plain, sequence) if has_left_pads and can_take else plain
    media = _media(call, sequence)
    begun = _begun(call, own, sequence) if media else 0
    decoding = Decoding("", _full(call, own), real, sequence, cache, media, begun, _PLACES in call.parameters)
    yield decoding
    limit = model_traits.position_limit(model, sequence.kind.name)
    is_short = limit is None or sequence.length + _PADS <= limit
    if sequence.takes_mask and not has_left_pads and is_short and not left_padding_refusal(call, sequence):
        left = padded(model, plain, sequence, (_PADS, 0))
        left = _full(call, with_positions(model, left, sequence) if can_take else left)
        real, begun = torch.nn.functional.pad(real, (_PADS, 0)), begun + _PADS if begun else 0
        yield replace(decoding, label=f", {_PADS} pads on the left", inputs=left, real=real, begun=begun)


def _media(call: ObservedCall, sequence: InputSequence) -> tuple[str, ...]:
    """Return the tensors that do not run along the sequence, of a model without an encoder of its own."""
    along = (sequence.main, *sequence.aligned, sequence.kind.mask, sequence.kind.positions, _PLACES)
    return tuple(
        name
        for name, value in call.inputs.items()
        if sequence.kind.name == "encoder"
        and isinstance(value, torch.Tensor)
        and name not in along
        and not name.startswith(("encoder_", "head_mask"))
    )


def _begun(call: ObservedCall, inputs: dict[str, Any], sequence: InputSequence) -> int:
    """Return how many tokens there are up to the last that stands for a part of an image, a video or a sound."""
    known = {model_traits.setting(call.model, name) for name in _PLACEHOLDERS}
    ids = inputs.get("input_ids")
    tokens = torch.tensor(sorted(token for token in known if isinstance(token, int)))
    if ids is None or not len(tokens) or sequence.main != "input_ids":
        return 0
    places = torch.isin(ids, tokens.to(ids.device)).any(0).nonzero().flatten()
    return int(places[-1]) + 1 if len(places) else 0


def _full(call: ObservedCall, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of the full forward: without cache, and with an encoder's output computed once."""
    full = dict(inputs)
    if call.takes(SWITCH) or model_traits.collects_keywords(call.model):
        full[SWITCH] = False
    if _ROUTER in call.parameters:
        full[_ROUTER] = False
    if "encoder_outputs" not in call.parameters:
        return full
    hidden = getattr(call.again(full), "encoder_last_hidden_state", None)
    if hidden is None:
        return full
    needed = [name for name in _ENCODER_INPUTS if model_traits.needs(call.model, call.own_names.get(name, name))]
    rest = {name: value for name, value in full.items() if name not in _ENCODER_INPUTS or name in needed}
    return {**rest, "encoder_outputs": _as_of_encoder(call.model, hidden)}


def _as_of_encoder(model: torch.nn.Module, hidden: torch.Tensor) -> object:
    """Return hidden states as ``generate`` gives them: some models (Florence2) read them by name."""
    if not model_traits.is_pretrained(model):
        return (hidden,)
    from transformers.modeling_outputs import BaseModelOutput

    return BaseModelOutput(last_hidden_state=hidden)

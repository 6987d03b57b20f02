"""``cache_invariant``: decoding with a key-value cache, in steps or chunks, gives the answer of the full forward."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance import family
from pytest_tfdebug.invariance.alignment import Alignment
from pytest_tfdebug.invariance.outcome import Outcome, Repetition
from pytest_tfdebug.invariance.padding import padded, window_of, with_mask, with_positions
from pytest_tfdebug.invariance.sides import left_padding_refusal
from pytest_tfdebug.invariance.sister import Sister, token_stream
from pytest_tfdebug.invariance.streams import KEEPS_END
from pytest_tfdebug.invariance.variants import can_take_positions
from pytest_tfdebug.tracing.leaves import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.invariance.observed import Leaves, ObservedCall
    from pytest_tfdebug.invariance.settings import Settings
    from pytest_tfdebug.invariance.streams import Stream

_PLACES = "cache_position"  # without it, a state space model of transformers 4 takes no state
_KEYS_AND_VALUES, _STATES = "past_key_values", "cache_params"
#: What a forward calls the cache that it takes and returns.
_CACHES = (_KEYS_AND_VALUES, _STATES)
#: Tokens that are decoded one by one.
_STEPS = 8
_CHUNKS = 3
#: Left pads of the padded variant.
_PADS = 3
#: Asks mixtures of experts for a loss over a whole sequence; transformers' own generation leaves it out as well.
_ROUTER = "output_router_logits"
_ENCODER_INPUTS = ("input_ids", "inputs_embeds", "input_features")
_DIAGNOSIS = (
    "the cache does not hold what a full forward computes: pads kept in it, positions that restart with each step, or "
    "a mask that does not cover it."
)


@dataclass(frozen=True)
class _Decoding:
    """A sequence to be decoded.

    Args:
        label: What was done to it; empty for the call's own.
        inputs: Inputs of the full forward.
        real: Its real positions, ``(batch, length)``, bool.
        stream: The sequence as it is in the call.
        cache: What the forward calls its cache.
    """

    label: str
    inputs: dict[str, Any]
    real: torch.Tensor
    stream: Stream
    cache: str

    def plans(self) -> Iterator[tuple[str, list[int]]]:
        """Yield where to cut the sequence: prefill and single steps; chunks of a third."""
        length, own = self.real.shape[1], self.stream.length
        first = max(length // 2, length - _STEPS, length - own + 1)
        yield f"{first} tokens of prefill and {length - first} steps", [0, *range(first, length + 1)]
        size = -(-length // _CHUNKS)
        if self.cache == _KEYS_AND_VALUES and 1 < size < length:
            yield f"chunks of {size} tokens", [*range(0, length, size), length]

    def piece(self, first: int, end: int) -> dict[str, Any]:
        """Return the inputs of the tokens ``first`` to ``end``, and the mask of everything so far."""
        stream, whole = self.stream, self.inputs
        names = [name for name in (*stream.aligned, stream.kind.positions) if name and name != stream.kind.mask]
        aligned = {name: 0 for name in names if isinstance(whole.get(name), torch.Tensor)}
        piece = window_of(whole, replace(stream, aligned=aligned), first, end)
        mask = whole.get(stream.kind.mask)
        if isinstance(mask, torch.Tensor):  # a state has taken the pads in already, keys and values have not
            piece[stream.kind.mask] = mask[:, :end] if self.cache == _KEYS_AND_VALUES or not first else None
        return {**piece, "use_cache": True}


def check_cache(call: ObservedCall, settings: Settings) -> Outcome:
    """Repeat a call as prefill and steps, in chunks, and with left padding."""
    sister = Sister(call, settings.tolerances(), "answers otherwise with its cache")
    name = next((item for item in _CACHES if item in family.parameters(call.model)), None)
    stream = token_stream(call)
    if name is None:
        sister.outcome.skipped.append(f"{call.name}: its forward takes no cache ({' or '.join(_CACHES)})")
    elif stream is None or stream.axis != 1 or stream.length < 2:  # noqa: PLR2004 - a prefill and a step
        sister.outcome.skipped.append(f"{call.name}: it was given no sequence of two tokens or more to decode")
    elif not family.decodes(call.model):
        sister.outcome.skipped.append(f"{call.name}: it does not decode")
    else:
        with call.restored():
            for decoding in _decodings(call, stream, name):
                if _fails(sister, decoding):
                    break
    return sister.outcome


def _decodings(call: ObservedCall, stream: Stream, cache: str) -> Iterator[_Decoding]:
    """Yield the call's sequence, and the same padded on the left."""
    model = call.model
    plain = {
        name: value
        for name, value in with_mask(call.inputs, stream).items()
        if not name.endswith("labels") and name not in (*_CACHES, KEEPS_END)
    }
    stream = replace(stream, aligned={name: value for name, value in stream.aligned.items() if name in plain})
    real = torch.ones(stream.batch, stream.length, dtype=torch.bool) if stream.mask is None else stream.mask.cpu()
    can_take = can_take_positions(call, stream)
    has_left_pads = any(first for first, _ in stream.windows())
    own = with_positions(model, plain, stream) if has_left_pads and can_take else plain
    yield _Decoding("", _full(call, own), real, stream, cache)
    limit = family.position_limit(model, stream.kind.name)
    is_short = limit is None or stream.length + _PADS <= limit
    if stream.takes_mask and not has_left_pads and is_short and not left_padding_refusal(model, stream):
        left = padded(model, plain, stream, (_PADS, 0))
        left = with_positions(model, left, stream) if can_take else left
        real = torch.nn.functional.pad(real, (_PADS, 0))
        yield _Decoding(f", {_PADS} pads on the left", _full(call, left), real, stream, cache)


def _full(call: ObservedCall, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of the full forward: without cache, and with an encoder's output computed once."""
    full = {**inputs, "use_cache": False}
    if _ROUTER in family.parameters(call.model):
        full[_ROUTER] = False
    if "encoder_outputs" not in family.parameters(call.model):
        return full
    hidden = getattr(call.again(full), "encoder_last_hidden_state", None)
    if hidden is None:
        return full
    return {
        **{name: value for name, value in full.items() if name not in _ENCODER_INPUTS},
        "encoder_outputs": (hidden,),
    }


def _fails(sister: Sister, decoding: _Decoding) -> bool:
    """Decode a sequence by every plan; tell whether one fails or cannot be carried out."""
    expected = sister.call.leaves(decoding.inputs)
    return any(_decode(sister, decoding, expected, plan, cuts) for plan, cuts in decoding.plans())


def _decode(sister: Sister, decoding: _Decoding, expected: Leaves, plan: str, cuts: list[int]) -> bool:
    """Decode in pieces and hold each to the same positions of the full forward."""
    call, state = sister.call, None
    for first, end in pairwise(cuts):
        piece = decoding.piece(first, end)
        if state is not None:
            piece[decoding.cache] = state
            if decoding.cache == _STATES and _PLACES in family.parameters(call.model):
                piece[_PLACES] = torch.arange(first, end)
        at = Alignment(
            end - first, first, decoding.real.shape[1], decoding.stream.batch, mask=decoding.real[:, first:end]
        )
        label = f"{plan}{decoding.label}, tokens {first} to {end - 1}"
        try:
            output = call.again(piece)
        except Exception as error:  # noqa: BLE001 - whatever the model raises is the finding
            told = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            if state is None:
                sister.outcome.skipped.append(f"{call.name}: it refuses use_cache=True ({told})")
            else:
                sister.fail_with_error(label, told)
            return True
        # The piece is the smaller side, so it stands where the forward without padding does elsewhere.
        mismatch = sister.hold(label, _along_tokens(output, expected, at), expected, at, with_caches=False)
        if mismatch is not None:
            if not sister.draws_random_numbers():
                repetition = Repetition(label, decoding.inputs, at, piece, recorded="")
                sister.fail(repetition, mismatch, _DIAGNOSIS)
            return True
        state = getattr(output, decoding.cache, None)
        if state is None:
            sister.outcome.skipped.append(f"{call.name}: it returned no {decoding.cache}")
            return True
    return False


def _along_tokens(output: Any, full: Leaves, at: Alignment) -> Leaves:  # noqa: ANN401
    """Return the output leaves along the decoded tokens; pooled ones depend on where the sequence ends."""
    return {
        path: tensor.detach()
        for path, tensor in walk(output)
        if path in full and full[path].dim() > 1 and full[path].shape[1] == at.total and tensor.shape[1] == at.real
    }

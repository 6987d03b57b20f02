"""``cache_invariant``: decoding with a key-value cache, in steps or chunks, gives the answer of the full forward."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.sequences import KEEPS_END, token_sequence, with_mask
from pytest_tfdebug.invariance.checks.base import Check
from pytest_tfdebug.invariance.checks.settings import Settings
from pytest_tfdebug.invariance.compare.alignment import Alignment
from pytest_tfdebug.invariance.compare.outputs import Mismatch
from pytest_tfdebug.invariance.repeat.pads import padded
from pytest_tfdebug.invariance.repeat.positions import can_take_positions, with_positions
from pytest_tfdebug.invariance.repeat.repetition import Repetition
from pytest_tfdebug.invariance.repeat.rows import window_of
from pytest_tfdebug.invariance.repeat.sides_and_lengths import left_padding_refusal
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.tracing.leaves import walk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.invariance.calls.observed_call import Leaves, ObservedCall
    from pytest_tfdebug.invariance.calls.sequences import InputSequence

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
        sequence: The sequence as it is in the call.
        cache: What the forward calls its cache.
    """

    label: str
    inputs: dict[str, Any]
    real: torch.Tensor
    sequence: InputSequence
    cache: str

    def plans(self) -> Iterator[tuple[str, list[int]]]:
        """Yield where to cut the sequence: prefill and single steps; chunks of a third."""
        length, own = self.real.shape[1], self.sequence.length
        first = max(length // 2, length - _STEPS, length - own + 1)
        yield f"{first} tokens of prefill and {length - first} steps", [0, *range(first, length + 1)]
        size = -(-length // _CHUNKS)
        if self.cache == _KEYS_AND_VALUES and 1 < size < length:
            yield f"chunks of {size} tokens", [*range(0, length, size), length]

    def piece(self, first: int, end: int) -> dict[str, Any]:
        """Return the inputs of the tokens ``first`` to ``end``, and the mask of everything so far."""
        sequence, whole = self.sequence, self.inputs
        names = [name for name in (*sequence.aligned, sequence.kind.positions) if name and name != sequence.kind.mask]
        aligned = {name: 0 for name in names if isinstance(whole.get(name), torch.Tensor)}
        piece = window_of(whole, replace(sequence, aligned=aligned), first, end)
        mask = whole.get(sequence.kind.mask)
        if isinstance(mask, torch.Tensor):  # a state has taken the pads in already, keys and values have not
            piece[sequence.kind.mask] = mask[:, :end] if self.cache == _KEYS_AND_VALUES or not first else None
        return {**piece, "use_cache": True}


class CacheCheck(Check[Settings]):
    """The call is repeated as prefill and steps, in chunks, and with left padding."""

    needs = "Call a model that decodes and takes past_key_values, with two tokens or more"
    verdict = "answers otherwise with its cache"

    def check(self) -> None:
        """Report the first piece whose answer is not that of the full forward."""
        call = self.call
        cache = next((item for item in _CACHES if item in model_traits.parameters(call.model)), None)
        sequence = token_sequence(call.model, call.inputs)
        if cache is None:
            self.skip(f"{call.name}: its forward takes no cache ({' or '.join(_CACHES)})")
        elif sequence is None or sequence.axis != 1 or sequence.length < 2:  # noqa: PLR2004 - a prefill and a step
            self.skip(f"{call.name}: it was given no sequence of two tokens or more to decode")
        elif not model_traits.decodes(call.model):
            self.skip(f"{call.name}: it does not decode")
        else:
            for decoding in _decodings(call, sequence, cache):
                expected = call.leaves(decoding.inputs)
                if any(self._stops(decoding, expected, plan, cuts) for plan, cuts in decoding.plans()):
                    return

    def _stops(self, decoding: _Decoding, expected: Leaves, plan: str, cuts: list[int]) -> bool:
        """Decode in pieces and compare each with the full forward; tell whether one fails or cannot be made."""
        call, state = self.call, None
        for first, end in pairwise(cuts):
            piece = decoding.piece(first, end)
            if state is not None:
                piece |= self._state(decoding.cache, state, first, end)
            mask = decoding.real[:, first:end]
            at = Alignment(end - first, first, decoding.real.shape[1], decoding.sequence.batch, mask=mask)
            label = f"{plan}{decoding.label}, tokens {first} to {end - 1}"
            try:
                output = call.again(piece)
            except Exception as error:  # noqa: BLE001 - whatever the model raises is the finding
                told = f"{type(error).__name__}: {redact(str(error)).partition(chr(10))[0]}"
                if state is None:
                    self.skip(f"{call.name}: it refuses use_cache=True ({told})")
                else:
                    self.report(label, Mismatch(None, error=told))
                return True
            # The piece is shorter than the full forward: it stands where other checks have the forward without padding.
            mismatch = self.compare(label, _along_tokens(output, expected, at), expected, at, with_caches=False)
            if mismatch is not None:
                self.fail(Repetition(label, decoding.inputs, at, piece, recorded=""), mismatch, _DIAGNOSIS)
                return True
            state = getattr(output, decoding.cache, None)
            if state is None:
                self.skip(f"{call.name}: it returned no {decoding.cache}")
                return True
        return False

    def _state(self, cache: str, state: object, first: int, end: int) -> dict[str, Any]:
        takes_places = cache == _STATES and _PLACES in model_traits.parameters(self.call.model)
        return {cache: state, **({_PLACES: torch.arange(first, end)} if takes_places else {})}


def _decodings(call: ObservedCall, sequence: InputSequence, cache: str) -> Iterator[_Decoding]:
    """Yield the call's sequence, and the same padded on the left."""
    model = call.model
    plain = {
        name: value
        for name, value in with_mask(call.inputs, sequence).items()
        if not name.endswith("labels") and name not in (*_CACHES, KEEPS_END)
    }
    sequence = replace(sequence, aligned={name: value for name, value in sequence.aligned.items() if name in plain})
    real = (
        torch.ones(sequence.batch, sequence.length, dtype=torch.bool) if sequence.mask is None else sequence.mask.cpu()
    )
    can_take = can_take_positions(call, sequence)
    has_left_pads = any(first for first, _ in sequence.windows())
    own = with_positions(model, plain, sequence) if has_left_pads and can_take else plain
    yield _Decoding("", _full(call, own), real, sequence, cache)
    limit = model_traits.position_limit(model, sequence.kind.name)
    is_short = limit is None or sequence.length + _PADS <= limit
    if sequence.takes_mask and not has_left_pads and is_short and not left_padding_refusal(model, sequence):
        left = padded(model, plain, sequence, (_PADS, 0))
        left = with_positions(model, left, sequence) if can_take else left
        real = torch.nn.functional.pad(real, (_PADS, 0))
        yield _Decoding(f", {_PADS} pads on the left", _full(call, left), real, sequence, cache)


def _full(call: ObservedCall, inputs: dict[str, Any]) -> dict[str, Any]:
    """Return the inputs of the full forward: without cache, and with an encoder's output computed once."""
    full = {**inputs, "use_cache": False}
    if _ROUTER in model_traits.parameters(call.model):
        full[_ROUTER] = False
    if "encoder_outputs" not in model_traits.parameters(call.model):
        return full
    hidden = getattr(call.again(full), "encoder_last_hidden_state", None)
    if hidden is None:
        return full
    return {
        **{name: value for name, value in full.items() if name not in _ENCODER_INPUTS},
        "encoder_outputs": (hidden,),
    }


def _along_tokens(output: Any, full: Leaves, at: Alignment) -> Leaves:  # noqa: ANN401
    """Return the output leaves along the decoded tokens; pooled ones depend on where the sequence ends."""
    return {
        path: tensor.detach()
        for path, tensor in walk(output)
        if path in full and full[path].dim() > 1 and full[path].shape[1] == at.total and tensor.shape[1] == at.real
    }

"""``cache``: decoding with a key-value cache, in steps or chunks, gives the answer of the full forward."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.alignment import Alignment
from pytest_tfdebug.invariance.calls.padding_variants import left_padding_refusal
from pytest_tfdebug.invariance.calls.repetition import Repetition, can_take_positions, padded, window_of, with_positions
from pytest_tfdebug.invariance.calls.sequences import KEEPS_END, token_sequence, with_mask
from pytest_tfdebug.invariance.checks.base import Check
from pytest_tfdebug.invariance.compare.outputs import first_mismatch
from pytest_tfdebug.tracing.record.leaves import ATOMS, is_cache, opener, walk
from pytest_tfdebug.tracing.record.signatures import collects_keywords, forward_parameters

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.invariance.calls.observed_call import Leaves, ObservedCall
    from pytest_tfdebug.invariance.calls.sequences import InputSequence
    from pytest_tfdebug.invariance.compare.outputs import Mismatch
    from pytest_tfdebug.records import Culprit


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
    expected: Leaves  # what that gives
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

    def at(self, first: int, end: int) -> Alignment:
        """Return where a piece lies in the full forward.

        The piece is shorter: it stands where other checks have the forward without padding.
        """
        return Alignment(end - first, first, self.real.shape[1], self.sequence.batch, mask=self.real[:, first:end])

    def along(self, output: object, at: Alignment) -> Leaves:
        """Return what runs along the tokens of a piece; what is pooled depends on where the sequence ends."""
        full = {path: tensor for path, tensor in self.expected.items() if tensor.dim() > 1}
        return {
            path: tensor.detach()
            for path, tensor in walk(output)
            if path in full and full[path].shape[1] == at.total and tensor.shape[1] == at.real
        }

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
    full, takes_places = _full(call, own), _PLACES in call.parameters
    decoding = Decoding("", full, call.leaves(full), real, sequence, cache, media, begun, takes_places)
    yield decoding
    limit = model_traits.position_limit(model, sequence.kind.name)
    is_short = limit is None or sequence.length + _PADS <= limit
    if sequence.takes_mask and not has_left_pads and is_short and not left_padding_refusal(call, sequence):
        left = padded(model, plain, sequence, (_PADS, 0))
        left = _full(call, with_positions(model, left, sequence) if can_take else left)
        real, begun = torch.nn.functional.pad(real, (_PADS, 0)), begun + _PADS if begun else 0
        label, expected = f", {_PADS} pads on the left", call.leaves(left)
        yield replace(decoding, label=label, inputs=left, expected=expected, real=real, begun=begun)


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
    kind = model_traits.kind_of(call.model)
    if call.takes(SWITCH) or collects_keywords(kind):
        full[SWITCH] = False
    if _ROUTER in call.parameters:
        full[_ROUTER] = False
    if "encoder_outputs" not in call.parameters:
        return full
    hidden = getattr(call.again(full), "encoder_last_hidden_state", None)
    if hidden is None:
        return full
    taken = {name: forward_parameters(kind).get(call.own_names.get(name, name)) for name in _ENCODER_INPUTS}
    needed = [name for name, own in taken.items() if own is not None and own.default is own.empty]
    rest = {name: value for name, value in full.items() if name not in _ENCODER_INPUTS or name in needed}
    if not model_traits.is_pretrained(call.model):
        return {**rest, "encoder_outputs": (hidden,)}
    from transformers.modeling_outputs import BaseModelOutput

    # as ``generate`` gives them: some models (Florence2) read them by name
    return {**rest, "encoder_outputs": BaseModelOutput(last_hidden_state=hidden)}


_DIAGNOSIS = (
    "the cache does not hold what a full forward computes: pads kept in it, positions that restart with each step, or "
    "a mask that does not cover it."
)
#: How far the positions of a step are moved -> what it means if the answer is then right.
_SHIFTED = {
    0: "positions that restart with each step or are off by one: with {name} given to it, the step is right.",
    1: "positions that are one too low in a step: with {name} one higher, it is right.",
    -1: "positions that are one too high in a step: with {name} one lower, it is right.",
}
_WHOLE_MASK = "what is made of {mask} is not cut to the tokens of the step: without {mask} the step is right."
_NO_MASK = "was not decoded after left pads: the mask has no effect on it, and padding_invariant finds where it is lost"
_NO_STATE = (
    "it returned no {cache}, so no step was decoded; return it by that name, in a dict or a ModelOutput, or as the one "
    "cache of a tuple"
)
_NOT_CAUSAL = "a later token changes the answer at an earlier one, even without a cache: attention is not causal."


class CacheCheck(Check):
    """The call is repeated as prefill and steps, in chunks, and with left padding."""

    needs = "Call a model that decodes and takes past_key_values, with two tokens or more"
    verdict = "gives another answer with its cache"

    def check(self) -> None:
        """Report the first piece whose answer is not that of the full forward."""
        call = self.call
        cache = next((item for item in CACHES if item in call.parameters), None)
        sequence = token_sequence(call)
        if cache is None:
            self.skip(f"{call.name}: its forward takes no cache ({' or '.join(CACHES)})")
        elif sequence is None or sequence.axis != 1 or max(end - first for first, end in sequence.windows()) < 2:  # noqa: PLR2004 - a prefill and a step
            self.skip(f"{call.name}: it was given no sequence of two tokens or more to decode")
        elif model_traits.decodes(call.model) is False:
            self.skip(f"{call.name}: it does not decode")
        else:
            for decoding in decodings(call, sequence, cache):
                before = replace(self.outcome)
                plans = list(decoding.plans())
                if not plans:
                    self.skip(f"{call.name}: no token of text follows its images, so there is no step to decode")
                if any(self._breaks(decoding, plan, cuts) for plan, cuts in plans):
                    if self.outcome.text and decoding.label and self._ignores_mask(decoding):
                        self.outcome = before
                        self.outcome.notes.append(f"{self.call.class_name} {_NO_MASK}")
                    return

    def _ignores_mask(self, decoding: Decoding) -> bool:
        """Tell whether a padded forward that fills a cache does without its mask: the fault is then not the cache's."""
        inputs, mask = decoding.inputs, decoding.sequence.kind.mask
        inputs = {**inputs, **({SWITCH: True} if SWITCH in inputs else {})}
        seen = {**inputs, mask: torch.ones_like(inputs[mask])}
        whole = decoding.at(0, decoding.real.shape[1])
        return self._agrees(self.call.leaves(seen), self.call.leaves(inputs), whole)

    def _breaks(self, decoding: Decoding, plan: str, cuts: list[int]) -> bool:
        """Decode with images in the prefill alone; if that fails, with images in each piece, as Evolla asks for."""
        before = replace(self.outcome, skipped=[*self.outcome.skipped])
        is_over = self._stops(decoding, plan, cuts)
        if not self.outcome.text or not decoding.media:
            return is_over
        failed, self.outcome = self.outcome, before
        is_over = self._stops(replace(decoding, media=()), plan, cuts)
        if is_over:
            self.outcome = failed
        return is_over

    def _stops(self, decoding: Decoding, plan: str, cuts: list[int]) -> bool:
        """Decode in pieces and compare each with the full forward; tell whether one fails or cannot be made."""
        call, state = self.call, None
        for first, end in pairwise(cuts):
            piece, at = decoding.piece(first, end, state), decoding.at(first, end)
            label = f"{plan}{decoding.label}, tokens {first} to {end - 1}"
            try:
                output = call.again(piece)
            except Exception as error:  # noqa: BLE001 - whatever the model raises is the finding
                mismatch = self.raised(error)
                is_refused = end - first > 1 and _is_refusal(mismatch.place)  # chunks: many take a token at a time only
                if state is None or is_refused or self.is_refused(decoding.plain(piece, first, end)):
                    self.cannot_ask(label, mismatch)
                else:
                    upto = [cut for cut in cuts if cut <= end]
                    is_whole = self._is_right_without_mask(decoding, upto, at)
                    self.report(
                        label,
                        mismatch,
                        diagnosis=_WHOLE_MASK.format(mask=decoding.sequence.kind.mask) if is_whole else "",
                    )
                return True
            own = decoding.along(output, at)
            if not own:
                self.skip(f"{call.name}: none of its outputs has a token axis")
                return True
            whole = Repetition(label, decoding.inputs, at, decoding.inputs, recorded="", diagnosis=_DIAGNOSIS)
            last = partial(self._last_of, decoding=decoding, cuts=[cut for cut in cuts if cut <= end])
            different = self.compare(whole, (own, decoding.expected), (last, self.call.leaves), with_caches=False)
            if different is not None:
                made = replace(whole, expected_inputs=piece)
                if state is None:
                    self._explain_prefill(decoding, made, different)
                else:
                    self.fail(replace(made, diagnosis=self._position_fault(decoding, last, at)), different)
                return True
            state = self._state(decoding, output)
            if state is None:
                if not first:  # the prefill alone was compared, and that shows nothing of a cache
                    self.outcome.repeats = 0
                self.skip(f"{call.name}: {_NO_STATE.format(cache=decoding.cache)}")
                return True
        return False

    def _state(self, decoding: Decoding, output: object) -> object:
        return state_of(output, self.call.own_names.get(decoding.cache, decoding.cache))

    def _explain_prefill(self, decoding: Decoding, made: Repetition, mismatch: Mismatch) -> None:
        """Report a first piece that differs; one that does so without any cache too is not the cache's fault."""
        at = made.alignment
        own = decoding.along(self.call.again(decoding.plain(made.expected_inputs, 0, at.real)), at)
        if self._agrees(own, decoding.expected, at):
            self.fail(made, mismatch)
        elif model_traits.is_causal(self.model):
            self.fail(replace(made, diagnosis=_NOT_CAUSAL), mismatch)
        else:
            self.outcome.repeats = 0
            self.skip(
                f"{self.call.name} is a bidirectional model with a cache: it attends in both directions, so its "
                "first tokens alone have another answer than before the others, and no cache can hold them"
            )

    def _agrees(self, own: Leaves, expected: Leaves, at: Alignment) -> bool:
        return bool(own) and first_mismatch(own, expected, at, self.tolerances, with_caches=False) is None

    def _is_right_without_mask(self, decoding: Decoding, cuts: list[int], at: Alignment) -> bool:
        """Tell whether a step that raises gives the right answer when it is given no mask, which hides nothing."""
        mask = decoding.sequence.kind.mask
        if mask not in decoding.inputs or not decoding.real.all():
            return False
        with suppress(Exception):  # the mask was not why it raised
            own = self._last_of(decoding.inputs, decoding=decoding, cuts=cuts, given={mask: None})
            return self._agrees(own, decoding.expected, at)
        return False

    def _position_fault(self, decoding: Decoding, last: Callable[..., Leaves], at: Alignment) -> str:
        """Make the last piece again with positions of its own, and return what is wrong if the answer is then right."""
        name = decoding.sequence.kind.positions
        if name is None or name not in self.call.parameters:
            return _DIAGNOSIS
        places = with_positions(self.model, decoding.inputs, decoding.sequence)[name].narrow(1, at.start, at.real)
        for by, told in _SHIFTED.items():
            with suppress(Exception):  # a model that refuses these positions has shown nothing
                if self._agrees(last(decoding.inputs, given={name: places + by}), decoding.expected, at):
                    return told.format(name=name)
        return _DIAGNOSIS

    def _last_of(
        self,
        inputs: Mapping[str, Any],
        model: torch.nn.Module | None = None,
        *,
        decoding: Decoding,
        cuts: list[int],
        given: Mapping[str, Any] = MappingProxyType({}),
    ) -> Leaves:
        """Decode inputs in pieces, the last with some given, and return what the last gives along its tokens."""
        output, decoding = None, replace(decoding, inputs=dict(inputs))
        for first, end in pairwise(cuts):
            piece = decoding.piece(first, end, self._state(decoding, output))
            output = self.call.again({**piece, **(given if end == cuts[-1] else {})}, model)
        return decoding.along(output, decoding.at(*cuts[-2:]))


def state_of(output: object, name: str) -> object:
    """Return the cache that a forward returned: what has its name, else the one item that can be one; None if none is.

    Args:
        output: What the forward returned: a ModelOutput, a dict, a tuple, any dataclass.
        name: The name of the input that takes the cache.
    """
    named = getattr(output, name, None)  # first: an output that is a dict may hold it beside its items
    if named is None and hasattr(output, name):  # a field for it, which is empty: nothing else is it
        return None
    if named is None and isinstance(output, Mapping):
        named = output.get(name)
    opened = opener(type(output))
    if named is not None or opened is None:
        return named
    states = [item for _, item in opened(output) if _can_be_state(item)]
    return states[0] if len(states) == 1 else None


def _can_be_state(item: object) -> bool:
    """Tell a cache, keys and values nested by layer, or an object of the model's own; hidden states are not nested."""
    if isinstance(item, (tuple, list)):
        return bool(item) and all(isinstance(layer, (tuple, list, Mapping)) for layer in item)
    return is_cache(item) or not (isinstance(item, (torch.Tensor, *ATOMS)) or opener(type(item)))


def _is_refusal(place: Culprit | None) -> bool:
    """Tell whether the line that raised is a ``raise`` or an ``assert``, and so no accident."""
    source = place.source if place is not None else None
    return source is not None and linecache.getline(source.file, source.first).lstrip().startswith(("assert", "raise "))

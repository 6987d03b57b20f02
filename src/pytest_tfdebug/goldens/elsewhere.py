"""A port that agrees with its reference, held to it once more: on inputs that the test does not give, in a second call.

A test has one call, in which a wrong port can be right: no token is beyond the window, no row has pads, all segments
are 0, a mask is looked up by its shape. Where a golden is recorded both models are at hand, and are called once more.
"""

from __future__ import annotations

import time
from collections import defaultdict
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.errors import listed
from pytest_tfdebug.goldens.computed_weights import computed_weights
from pytest_tfdebug.goldens.dead import are_equal, without_gradient
from pytest_tfdebug.goldens.generated import told_generated
from pytest_tfdebug.goldens.near_weights import near_weights
from pytest_tfdebug.goldens.weights import fingerprint, hash_of
from pytest_tfdebug.parity.compare import TraceComparison, hold_trace
from pytest_tfdebug.parity.find.pads import made_of
from pytest_tfdebug.parity.proof.second_call import UnknownFormError, is_count, turned
from pytest_tfdebug.tensors import IGNORED_LABEL, is_plain
from pytest_tfdebug.tracing.record.leaves import duplicate, walk
from pytest_tfdebug.tracing.record.masks import is_mask
from pytest_tfdebug.tracing.record.modules import Selection, named_tensors
from pytest_tfdebug.tracing.record.signatures import method_of, parameters_of
from pytest_tfdebug.tracing.record.state import preserved
from pytest_tfdebug.tracing.values.widening import to_float32

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_tfdebug.goldens.settings import CheckSettings
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.tracing.values.rerun import Rerun

    Inputs = Mapping[str, torch.Tensor]

#: Seconds after which no other inputs are begun: who records a golden of a large model on a CPU waits for each forward.
_SECONDS = 20.0
#: Tokens of the longest call that is made of a test's.
_MOST_TOKENS = 4096
#: How many times as long a call is made, beyond windows and buckets of distances.
_LONGER = 4
_BATCH_AND_TOKENS = 2
#: Dimensions of images: batch, channels, height, width.
_IMAGE = 4
#: What vision models of transformers take for images of another size than their configuration's.
_OTHER_SIZES = "interpolate_pos_encoding"
#: Tokens that a row must have for some of them to be made pads: one of so many.
_FEWEST = 4
#: What losses are made of, in models of transformers and ports of them.
_LABELS = "labels"


class OtherCall(NamedTuple):
    """Other inputs of a call."""

    words: str
    inputs: Inputs  # those that are other ones, by the reference's names
    positions: torch.Tensor | None = None  # which positions of the outputs count; None for all
    flags: Mapping[str, bool] = MappingProxyType({})  # what is set beside them, of a forward that takes it


def told_elsewhere(port: Rerun, reference: Rerun, settings: CheckSettings) -> Iterator[str]:
    """Yield in sentences where a port that agrees with its reference does not: on other inputs, in a second call.

    Args:
        port: The port and its inputs.
        reference: The reference and its inputs.
        settings: How they were compared.
    """
    begun = time.monotonic()
    yield from _told_state(port, reference)
    yield from _told_gradients(port, reference)
    yield from _told_ties(port, reference)
    names = _shared(port, reference)
    if not names or settings.rules.positions is not None:
        return
    with _before_rounding(port, reference, settings) as both:
        for calls in (*_other_calls(reference.named()), [*_with_labels(port, reference)]):
            if time.monotonic() - begun > _SECONDS:
                return
            held = ((call, _held_there(*both, call, names, settings)) for call in calls)
            call, found = next(((call, found) for call, found in held if found is not None), (None, None))
            if call is not None and found is not None and not found.ok:
                yield f"With {call.words}, the port differs from its reference: {str(found).splitlines()[0]}."
    if time.monotonic() - begun < _SECONDS / 4:  # each of its tokens is a forward
        yield from told_generated(port, reference, _plain(reference.named()))


@contextmanager
def _before_rounding(port: Rerun, reference: Rerun, settings: CheckSettings) -> Iterator[tuple[Rerun, Rerun]]:
    """Yield both as they are, or in float32 where the port holds folded weights, which are rounded once more there."""
    own, theirs = to_float32(port.model), to_float32(reference.model)
    near = None
    if own and any(computed_weights(reference.model)):  # else nothing of it can be folded
        near = near_weights(port.model, reference.model, settings.rename, fingerprint(reference.model))
    if near is None or not near.are_folded:
        yield port, reference
        return
    with near.as_the_reference_has():
        yield port.widened(own), reference.widened(theirs)


def _told_state(port: Rerun, reference: Rerun) -> Iterator[str]:
    """Yield what a forward leaves behind that its reference's does not: in its inputs, or for the next call."""
    own = _left_behind(port)
    theirs = _left_behind(reference) if any(own) else own
    if own.written and not theirs.written:
        yield f"The port's forward writes to its input {own.written[0]}, and the reference's does not."
    if own.is_other_again and not theirs.is_other_again:
        what = f": its forward changes {own.buffers[0]}" if own.buffers else ""
        yield f"A second call of the port on the same inputs gives another answer{what}. The reference's does not."


def _told_ties(port: Rerun, reference: Rerun) -> Iterator[str]:
    """Yield which weights are one in the reference, and two of the same numbers in the port."""
    own: dict[str, list[str]] = defaultdict(list)  # the names of weights with the same numbers
    for name, weight in port.model.named_parameters():
        own[hash_of(weight)].append(name)
    theirs: dict[int, list[str]] = defaultdict(list)
    tensors = named_tensors(reference.model)
    for name, each in tensors:
        theirs[id(each)].append(name)
    for held in {id(each): each for _, each in tensors if isinstance(each, torch.nn.Parameter)}.values():
        apart = own[hash_of(held)]
        if len(theirs[id(held)]) == len(apart) > 1:
            names = listed(theirs[id(held)], 2)
            yield f"{listed(apart, 2)} are two weights, which training moves apart; the reference's {names} are one."


def _with_labels(port: Rerun, reference: Rerun) -> Iterator[OtherCall]:
    """Yield a call with labels, where both forwards take some and the test gives none: the tokens, or classes."""
    named = reference.named()
    ids = [each for name, each in named.items() if each.dim() == _BATCH_AND_TOKENS and _is_whole(name, each)]
    if not ids or not all(_takes_labels(each) for each in (port, reference)):
        return
    yield OtherCall("labels", {**named, _LABELS: ids[0]})
    yield OtherCall("labels", {**named, _LABELS: torch.arange(len(ids[0]), device=ids[0].device) % 2})


def _takes_labels(forward: Rerun) -> bool:
    return _LABELS not in forward.named() and _LABELS in parameters_of(method_of(forward.model, forward.method))


def _told_gradients(port: Rerun, reference: Rerun) -> Iterator[str]:
    """Yield which weights no gradient of the port's loss reaches, where one of the reference's reaches the same."""
    own, theirs = (dict(each.model.named_parameters()) for each in (port, reference))
    lost = without_gradient(port, own)
    if not lost or len(lost) == len(own):  # a port that is not made to be trained
        return
    idle = set(without_gradient(reference, theirs))
    live = {hash_of(each) for name, each in theirs.items() if name not in idle}
    cut = [name for name in lost if hash_of(own[name]) in live]
    if cut:
        yield f"No gradient of its loss reaches {listed(cut, 2)}, and one of the reference's reaches the same weights."


class _LeftBehind(NamedTuple):
    """What a forward leaves behind."""

    written: tuple[str, ...] = ()  # inputs that it has written to
    is_other_again: bool = False  # whether a second call gives another answer
    buffers: tuple[str, ...] = ()  # buffers that it has changed


def _left_behind(forward: Rerun) -> _LeftBehind:
    model = forward.model
    call, answers = method_of(model, forward.method), []
    written: tuple[str, ...] = ()
    before = {name: each.clone() for name, each in model.named_buffers() if is_plain(each)}
    with suppress(Exception), preserved(model), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for _ in range(2):
            args, kwargs = duplicate(forward.inputs())
            forward.seed()
            answers.append([leaf.tensor.clone() for leaf in walk(call(*args, **kwargs)) if is_plain(leaf.tensor)])
            given = [each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor)]
            pairs = zip(forward.named().items(), given, strict=False)
            written = tuple(name for (name, before), after in pairs if not are_equal([before], [after]))
        now = dict(model.named_buffers())
        changed = tuple(name for name, each in before.items() if not are_equal([each], [now[name]]))
        return _LeftBehind(written, not _are_close(*answers), changed)
    return _LeftBehind()


def _are_close(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    """Tell whether two answers are one but for rounding, which another number of threads may change."""
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.allclose(a.float(), b.float(), rtol=1e-3, atol=1e-4, equal_nan=True)
        for a, b in zip(one, other, strict=True)
    )


def _shared(port: Rerun, reference: Rerun) -> dict[str, str]:
    """Return which input of the reference each of the port's is, by name; empty where one is none of them."""
    own, theirs = port.named(), reference.named()
    if len(own) != len(port.tensors()) or len(theirs) != len(reference.tensors()):
        return {}  # tensors in records and caches
    found = {}
    for name, value in own.items():
        same = [
            each
            for each in theirs
            if theirs[each].shape == value.shape and torch.equal(theirs[each].to(value.device), value)
        ]
        if not same:
            return {}
        found[name] = name if name in same else same[0]
    return found


def _other_calls(named: Inputs) -> Iterator[list[OtherCall]]:
    """Yield other inputs of a call: of each list the first that both models take counts."""
    masks, plain = _masks(named), _plain(named)
    ids = [each for name, each in plain.items() if each.dim() == _BATCH_AND_TOKENS and _is_whole(name, each)]
    length = ids[0].shape[1] if ids else 0
    long = (_LONGER - 1) * length
    sizes = [(long, 1)] if long and (len(ids[0]) + 1) * (long + length) <= _MOST_TOKENS else []
    yield [each for size in (*sizes, (3, 1), (0, 1), (0, 0)) for each in _turned(plain, *size)]
    for name, value in plain.items():
        if value.dim() == _IMAGE and value.is_floating_point():
            wider = {other: _twice_as_wide(each, value) for other, each in plain.items()}
            yield [OtherCall(f"{name} twice as wide", wider, flags=each) for each in ({}, {_OTHER_SIZES: True})]
        if not _is_whole(name, value) or not value.dim() or value.shape[-1] < _FEWEST:
            continue
        if bool((value == value.flatten()[0]).all()):
            other = torch.arange(value.numel(), device=value.device).view(value.shape) % 2
            yield [OtherCall(f"{name} of 0 and 1", {**plain, name: other.to(value.dtype)})]
        elif value.dim() > 1 and is_count(value):
            yield [OtherCall(f"{name} twice as far apart", {**plain, name: value * 2})]
        if "label" in name and not bool((value == IGNORED_LABEL).any()):
            other = value.clone()
            other[..., -max(value.shape[-1] // _FEWEST, 1) :] = IGNORED_LABEL
            yield [OtherCall(f"{name} of {IGNORED_LABEL} at the end of each row", {**plain, name: other})]
    for name, mask in masks.items():
        if mask.shape[1] >= _FEWEST:
            other = torch.ones_like(mask)
            other[-1, -max(mask.shape[1] // _FEWEST, 1) :] = 0
            if not torch.equal(other, mask):
                yield [OtherCall(f"pads at the end of the last row, by {name}", {**plain, name: other}, other.bool())]


def _twice_as_wide(value: torch.Tensor, image: torch.Tensor) -> torch.Tensor:
    """Return an image, or what holds a number for each of its pixels, with itself upside down beside it."""
    return torch.cat([value, value.flip(-2)], -1) if value.shape[-2:] == image.shape[-2:] else value


def _masks(named: Inputs) -> dict[str, torch.Tensor]:
    return {name: each for name, each in named.items() if is_mask(name) and each.dim() == _BATCH_AND_TOKENS}


def _is_whole(name: str, value: torch.Tensor) -> bool:
    """Tell whether an input holds whole numbers and is no mask."""
    return not value.is_floating_point() and not value.is_complex() and not is_mask(name)


def _plain(named: Inputs) -> dict[str, torch.Tensor]:
    """Return inputs with tokens in place of pads: in each row the one that the mask counts first."""
    plain = dict(named)
    for name, mask in _masks(named).items():
        hidden = mask == 0
        if not bool(hidden.any()) or mask.is_floating_point():
            continue
        plain[name] = torch.ones_like(mask)
        for other, value in named.items():
            if value.shape == mask.shape and _is_whole(other, value) and not is_count(value):
                first = value.gather(1, mask.long().argmax(1, keepdim=True))
                plain[other] = torch.where(hidden, first, value)
    return plain


def _turned(named: Inputs, tokens: int, rows: int) -> Iterator[OtherCall]:
    """Yield inputs in another order of tokens, with some more of them and of rows."""
    more = [f"{tokens} more tokens"] * bool(tokens) + ["a row more"] * bool(rows)
    with suppress(UnknownFormError):
        change = turned([*named.values()], tokens, rows)
        words = " and ".join(", ".join(["the tokens in another order", *more]).rsplit(", ", 1))
        yield OtherCall(words, {name: change(value) for name, value in named.items()})


def _held_there(
    port: Rerun, reference: Rerun, call: OtherCall, names: Mapping[str, str], settings: CheckSettings
) -> ParityReport | None:
    """Hold the port to its reference there: the outputs, and all of it if they differ.

    None where one of them refuses, and where weights are told to differ: which these are no input changes.
    """
    own, before = {name: call.inputs[there] for name, there in names.items()}, port.named()
    own |= {name: value for name, value in call.inputs.items() if name not in reference.named()}
    if own.keys() == before.keys() and all(torch.equal(own[name], value) for name, value in before.items()):
        return None  # it does not take what is other
    if call.flags and call.flags.keys().isdisjoint(reference.parameters()):
        return None  # it would be the call without them
    forwards = [
        each.given({**given, **{name: value for name, value in call.flags.items() if name in each.parameters()}})
        for each, given in ((reference, call.inputs), (port, own))
    ]
    rules = replace(settings.rules, positions=call.positions)
    found = None
    for picked in (Selection(among=()), Selection()):
        allowed, rename, is_whole = settings.tolerances, settings.rename, picked.among is None
        try:
            expected, actual = (_seeded(forward, picked) for forward in forwards)
            found = hold_trace(TraceComparison(expected, actual, allowed, rename, rules, "warn", is_whole))
        except Exception:  # noqa: BLE001 - whatever a model minds, or where nothing can be compared
            return None
        if found.ok:
            break
    is_of_weights = found is not None and found.culprit is not None and found.culprit.kind == "weights"
    return None if is_of_weights else found


def _seeded(forward: Rerun, picked: Selection) -> Trace:
    forward.seed()
    return made_of(forward, picked)

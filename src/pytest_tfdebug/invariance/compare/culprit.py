"""Trace both forwards and find where they part: module or lines, first token, mask that lets pads through."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from pytest_tfdebug.errors import counted, second_look
from pytest_tfdebug.invariance.compare.hidden_keys import told_hidden_keys
from pytest_tfdebug.invariance.compare.lines import Taped, TapedPair
from pytest_tfdebug.invariance.compare.outputs import has_nan
from pytest_tfdebug.invariance.compare.traces import Key, call_at, compare_traces, put_back
from pytest_tfdebug.parity.claims import Claim, Evidence, claim_of, claim_on
from pytest_tfdebug.parity.comparison import conclude, ended
from pytest_tfdebug.parity.proof.value_graph import Side
from pytest_tfdebug.parity.settle import settled
from pytest_tfdebug.records import Culprit, SourceRange, ends_of
from pytest_tfdebug.tracing.record.masks import WEAK, is_mask, is_recoded
from pytest_tfdebug.tracing.record.modules import bare
from pytest_tfdebug.tracing.record.signatures import input_name
from pytest_tfdebug.tracing.record.sites import is_library
from pytest_tfdebug.tracing.trace import Trace, record
from pytest_tfdebug.tracing.values.slicing import glue_lines
from pytest_tfdebug.tracing.values.tape import Tape

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_tfdebug.invariance.calls.alignment import Alignment
    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.calls.repetition import Repetition, Within
    from pytest_tfdebug.invariance.compare.lines import Place
    from pytest_tfdebug.invariance.compare.traces import ComparedTraces, Pair
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.records import Call, Divergence, Kind, TensorRecord

T = TypeVar("T")

#: A boolean mask of this name hides where it is True, in torch.nn.MultiheadAttention and the layers made of it.
_TORCH_NAME = "key_padding_mask"


def mask_fault(trace: Trace, culprit: Culprit, alignment: Alignment) -> tuple[Culprit, str] | None:
    """Return who is to blame for the culprit's mask and what is wrong with it, or None when it had a good one.

    A culprit that attends with the mask it is given is not to blame for the mask: the forward that made the mask is,
    or the nearest one that had a good mask, by its name or its elements, and did not pass it on.
    """
    at = culprit.divergence
    call = None if at is None else call_at(trace, at.path, at.call)
    while call is not None and call.path != culprit.path:
        call = None if call.parent is None else trace.calls[call.parent]
    if call is None:
        return None
    below, own = call, mask_of_call(call)
    told = "" if own is None else _describe_fault(own, alignment)
    if not told if own is not None else not any(map(is_mask, call.parameters)) or _has_that_of(trace, call):
        return None
    while below.parent is not None:
        holder = trace.calls[below.parent]
        held = mask_of_call(holder)
        described = "" if held is None else _describe_fault(held, alignment)
        if own is not None and not described:
            return _blame(trace, holder, below, culprit, "makes the mask"), told
        if own is None and ((held is not None and not described) or _has_that_of(trace, holder)):
            taker = below if any(map(is_mask, below.parameters)) else call
            told = f"{taker.name!r} takes a mask and was given none, although {holder.name!r} had one"
            return _blame(trace, holder, below, culprit, "does not pass its mask on"), told
        told, below = described, holder
    return None


def mask_of_call(call: Call) -> TensorRecord | None:
    """Return the mask among a call's inputs, under its parameter's name; None when the call was given none."""
    for item in call.inputs:
        name = input_name(item.leaf, call.parameters)
        if is_mask(name) and item.tensor is not None and item.tensor.dim() >= 2:  # noqa: PLR2004 - (batch, length)
            return replace(item, leaf=name)
    return None


def _has_that_of(trace: Trace, call: Call) -> bool:
    """Tell whether a call was given the mask of the whole forward, whatever it calls it and codes it."""
    whole = mask_of_call(trace.calls[0])
    return whole is not None and any(
        item.tensor is not None
        and whole.tensor is not None
        and item.tensor.shape == whole.tensor.shape
        and bool((whole.tensor != whole.tensor.flatten()[0]).any())
        and is_recoded(item.tensor, whole.tensor)
        for item in call.inputs
    )


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
        where = counted(shown, "pad position")
        told = f"{_TORCH_NAME} is False at {where}, and only True hides" if is_torchs else f"mask is on at {where}"
        return f"its {told}" if shown else ""
    highest = float(at_pads.max())
    how = "only reaches" if highest < 0 else "is"
    return f"its additive mask {how} {highest:.4g} at pads: they keep weight" if highest > WEAK else ""


def _blame(trace: Trace, maker: Call, below: Call, first: Culprit, what: str) -> Culprit:
    siblings = [call for call in trace if call.parent == maker.index and call.index < below.index]
    told = f"The first tensor to change belongs to {first.path!r} ({first.class_name}); the forward of "
    claim = Claim(
        maker.path,
        "glue",
        Evidence.MASK,
        maker.class_name,
        f"{told}{maker.class_name} {what}, before its call of {below.name!r}.",
        source=glue_lines(maker, siblings[-1] if siblings else None, below),
        divergence=first.divergence,
    )
    return settled(claim)


@dataclass(frozen=True)
class Tokens:
    """Which real tokens differ."""

    row: int  # row of the first that does
    position: int  # its position among the row's real tokens, from 0
    differing: int  # number of positions at which some row differs
    real: int  # number of real positions


@dataclass(frozen=True)
class Located:
    """Where two forwards part."""

    culprit: Culprit | None  # the module or lines; None when no difference could be placed
    parity: ParityReport | None  # the comparison of both traces; None when they could not be compared
    tokens: Tokens | None = None  # the first token of the culprit's tensor; None when the tensor has no token axis
    is_pooling: bool = False  # the culprit's inputs run along the sequence and its diverging tensor does not
    # tables of positions count from the first pad, and with these put back a call gives the right answer
    counts_pads: bool = False
    fault: str = ""  # what is wrong with the mask, when that is to blame
    reason: str = ""  # why nothing could be placed

    @property
    def divergence(self) -> Divergence | None:
        """The first tensor that differs; None where no comparison has named one."""
        return self.parity.culprit.divergence if self.parity is not None and self.parity.culprit is not None else None


def locate(call: ObservedCall, repetition: Repetition, tolerances: Tolerances, *, is_padded: bool = False) -> Located:
    """Record both calls again and compare them at real tokens; inside ``call.restored()``."""
    unknown: list[str] = []
    with second_look(unknown, "a forward could not be made again"):
        found, within, counts_pads = _as_it_counts(call, repetition, tolerances)
        parity = conclude(ended(found.comparator()))
    if unknown:
        return Located(None, None, reason=unknown[0])
    place = None
    with second_look([]):
        found, parity, place = _by_operators(call, repetition, found, parity, within)
    expected, actual = found.expected, found.actual
    nan = None if any(_has_nan(call.outputs or ()) for call in expected) else _first_nan(actual)
    first = parity.culprit
    if first is None:
        told = "every module agrees at the real tokens: the difference is in how the root prepares its inputs"
        return Located(nan, None, reason="" if nan else told)
    fault = mask_fault(actual, first, repetition.alignment) if is_padded and not nan else None
    culprit, told = fault or (nan or _at(place, first), "")
    if is_padded and not (fault or nan):
        with second_look([]):
            told = told_hidden_keys(call, repetition.expected_inputs, culprit.path, repetition.alignment)
    at = first.divergence
    pair = None if at is None else found.laid.get(Key(at.path, at.call, at.direction, at.leaf))
    tokens = None if pair is None else _tokens(pair, repetition.alignment.real, tolerances)
    is_pooling = at is not None and not (pair is not None and pair.axes) and _is_pooling(found, first)
    return Located(culprit, parity, tokens, is_pooling, counts_pads, told)


def _both(
    how: Callable[[ObservedCall, Mapping[str, Any], torch.nn.Module, Within], T],
    call: ObservedCall,
    made: Repetition,
    within: Within,
) -> tuple[T, T]:
    """Make both calls again, the expected and the repeated one, that with its model changed; return what is seen."""
    model = made.model or call.model
    expected = how(call, made.expected_inputs, call.model, made.within[0])
    with within(bare(model)):
        return expected, how(call, made.inputs, model, made.within[1])


def _by_operators(
    call: ObservedCall, made: Repetition, found: ComparedTraces, parity: ParityReport, within: Within
) -> tuple[ComparedTraces, ParityReport, Place | None]:
    """Look at the operators of both calls: leave out what nothing reads, and find the line where they part."""
    culprit = parity.culprit
    if culprit is None or culprit.divergence is None:
        return found, parity, None
    pair = TapedPair(*_both(_taped, call, made, within), made.alignment, found.tolerances)
    while (at := culprit.divergence) is not None and not pair.is_read(at):
        unread = Key(at.path, at.call, at.direction, at.leaf)
        left = replace(found, laid={key: laid for key, laid in found.laid.items() if key != unread})
        other = conclude(ended(left.comparator()))
        if other.culprit is None or len(left.laid) == len(found.laid):
            return found, parity, None
        found, parity, culprit = left, other, other.culprit
    culprit = _around(culprit, found.actual)
    return found, replace(parity, culprit=culprit), None if at is None else pair.place(culprit.path, at)


def _around(culprit: Culprit, trace: Trace) -> Culprit:
    """Return who is to blame for a tensor that differs, where it was a call that one side alone makes.

    A step with a cache does without the calls whose results are in it.
    """
    at = culprit.divergence
    call = None if at is None else call_at(trace, at.path, at.call)
    if at is None or call is None or culprit.kind not in {"not-called", "extra-call"}:
        return culprit
    holder = trace.calls[call.parent] if at.direction == "input" and call.parent is not None else call
    told = f"The first tensor to change belongs to {call.name!r} ({call.class_name})."
    return settled(claim_of(holder, "glue", told, at, holder.source, evidence=Evidence.FIRST_OF_CALLS))


def _taped(call: ObservedCall, inputs: Mapping[str, Any], model: torch.nn.Module, within: Within) -> Taped:
    tape = Tape()
    with within(bare(model)):
        return Taped(Side(call.taped(inputs, model, tape)), tape)


def _at(place: Place | None, culprit: Culprit) -> Culprit:
    """Return a culprit with the lines at which two forwards part, where these are known."""
    if place is None:
        return culprit
    evidence = Evidence.FIRST_STEP if culprit.certain else Evidence.FIRST_OF_CALLS
    return settled(claim_on(culprit, evidence, source=place.source, function=place.function, callers=place.callers))


def _as_it_counts(call: ObservedCall, made: Repetition, tolerances: Tolerances) -> tuple[ComparedTraces, Within, bool]:
    """Compare both calls, without the shift of tables that changes no answer, and tell whether such a shift does.

    Pads before the tokens shift every table of positions. Attention that sees distances gives the same answer all the
    same; whether it does is seen where the tokens are given their own places in these tables.
    """
    traces = _both(recorded, call, made, nullcontext)
    found = compare_traces(*traces, made.alignment, tolerances).without_conventions()
    if not found.shifted:
        return found, nullcontext, False
    within = partial(put_back, tables=found.shifted, alignment=made.alignment)
    back = compare_traces(*_both(recorded, call, made, within), made.alignment, tolerances)
    if found.differing <= back.differing:
        return back.without_conventions(), within, False
    return found, nullcontext, True


def recorded(
    call: ObservedCall, inputs: Mapping[str, Any], model: torch.nn.Module, within: Within = nullcontext
) -> Trace:
    """Make a call again and record it."""
    with within(bare(model)), record(model) as made:
        call.again(inputs, model)
    return made


def _tokens(pair: Pair, real: int, tolerances: Tolerances) -> Tokens | None:
    one, other, axes = pair.expected, pair.actual, pair.axes
    if not axes or one.tensor is None or other.tensor is None:
        return None
    if axes[0] == 0 and one.shape[0] % real:  # windows of an image, say, which are not its rows
        return None
    allowed = tolerances.of("", other.dtype)
    is_off = ~torch.isclose(other.tensor.double(), one.tensor.double(), allowed.rtol, allowed.atol)
    rows = is_off.reshape(-1, real, *is_off.shape[1:]) if axes[0] == 0 else is_off.movedim(axes[0], 1)
    rows = rows.unsqueeze(-1).flatten(2).any(2)
    by_position = rows.any(0).nonzero().flatten()
    if not len(by_position):
        return None
    position = int(by_position[0])
    row = int(rows[:, position].nonzero()[0])
    return Tokens(row, position, len(by_position), rows.shape[1])


def _is_pooling(found: ComparedTraces, culprit: Culprit) -> bool:
    """Tell whether a tensor without a token axis has lost it, as the mean over a sequence or one token of it."""
    is_attention = "Attention" in culprit.class_name
    return not is_attention and any(pair.axes and key.direction == "output" for key, pair in found.laid.items())


def _first_nan(trace: Trace) -> Culprit | None:
    """Return the innermost call that was the first to return NaN, if its inputs had none."""
    ends = ends_of(trace.calls)
    for call in sorted(trace, key=lambda call: ends[call.index]):
        if not _has_nan(call.outputs or ()) and not _has_nan(call.inputs):
            continue
        at = trace.calls[call.parent] if _has_nan(call.inputs) and call.parent is not None else call
        told = "It is the first to give NaN, at pad positions or real ones: its inputs have none."
        kind: Kind = "glue" if any(other.parent == at.index for other in trace) else "module"
        return settled(Claim(at.path, kind, Evidence.NOT_FINITE, at.class_name, told, source=at.source))
    return None


def _has_nan(records: tuple[TensorRecord, ...]) -> bool:
    return any(item.tensor is not None and item.tensor.is_floating_point() and has_nan(item.tensor) for item in records)


def raising_place(model: torch.nn.Module, error: BaseException) -> Culprit | None:
    """Return the innermost module of the model that was running, outside of torch's own code; None where none was."""
    paths = {id(module): path for path, module in model.named_modules()}
    claim = None
    for frame, line in walk_tb(error.__traceback__):
        module, file = frame.f_locals.get("self"), frame.f_code.co_filename
        if isinstance(module, torch.nn.Module) and id(module) in paths and not is_library(file):
            path, name, source = paths[id(module)], type(module).__name__, SourceRange(file, line, line)
            claim = Claim(path or name, "glue", Evidence.RAISED, name, "This line raised.", source=source)
    return None if claim is None else settled(claim)

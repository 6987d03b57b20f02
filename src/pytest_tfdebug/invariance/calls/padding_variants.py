"""The ways in which a call is padded: on which sides and by how much; its rows alone; a batch of different lengths."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, cast

import torch

from pytest_tfdebug.errors import counted
from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.alignment import Alignment
from pytest_tfdebug.invariance.calls.repetition import Repetition, padded, rows_of, window_of
from pytest_tfdebug.invariance.calls.sequences import KEEPS_END, KINDS, POINTERS, with_mask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.calls.sequences import InputSequence

Side = Literal["left", "right"]

#: Block size of attention kernels: a padded length of 32 fills a block, 33 begins the next (transformers#47678).
BLOCK = 32
#: Pads of the default sweep before those up to a block's boundary.
SHORT = (1, 7)
#: Pixels of a patch where the configuration does not say.
_PATCH = 32


def sides(
    call: ObservedCall, sequence: InputSequence, asked: str, decodes: Callable[[], bool | None]
) -> tuple[tuple[Side, ...], str]:
    """Return the sides on which a sequence is padded, and why it is not padded where that could be expected.

    Decoding needs left padding: every sequence of a batch then ends where the next token goes. So by default models
    that decode, and encoders of such architectures (T5), are padded on the left. Other encoders are not: they read
    position 0 (a pooler's CLS token), number positions from the left, and have tokenizers that pad on the right.
    """
    if sequence.kind.unit != "tokens":
        told = f"{sequence.kind.unit} can be padded on the right only"
        return ((), told) if asked == "left" else (("right",), told if asked == "both" else "")
    if asked != "auto":
        return ("right", "left") if asked == "both" else (cast("Side", asked),), ""
    does = decodes()
    if does is False:
        return ("right",), ""
    unseen = f"the answer does not show whether {call.class_name} decodes: it has no position for each token"
    refusal = left_padding_refusal(call, sequence) or (unseen if does is None else "")
    return (("right",), f"{refusal}; side='left' pads it there too") if refusal else (("right", "left"), "")


def left_padding_refusal(call: ObservedCall, sequence: InputSequence) -> str:
    """Return why a sequence of a model that decodes is not padded on the left by default; empty when it is."""
    model, name = call.model, call.class_name
    positions = sequence.kind.positions
    takes_positions = positions is not None and positions in call.parameters
    if model_traits.has_absolute_positions(model) and not takes_positions:
        return f"{name} has absolute positions and takes no {positions}"
    if not sequence.takes_mask:
        others = [own for own in call.parameters if own not in (sequence.main, *sequence.aligned)]
        known = f" (inputs= says which of its inputs that is: {', '.join(others)})" if others else ""
        return f"{name} takes no {sequence.kind.mask}{known}"
    return ""


def pad_lengths(
    model: torch.nn.Module, sequence: InputSequence, asked: Sequence[int] | None
) -> tuple[tuple[int, ...], str]:
    """Return the numbers of pads to add, ascending, and why some are left out; empty when none is.

    The default: 1, 7, as many as make the padded length the next multiple of 32, and one more. Raw audio is padded by
    whole frames, images by whole patches.
    """
    unit = _unit(model, sequence)
    if asked is not None:
        wanted = sorted(set(asked))
    elif sequence.kind.unit == "pixels":
        wanted = [1, 2]
    else:
        to_block = (sequence.length // unit // BLOCK + 1) * BLOCK - sequence.length // unit
        wanted = sorted({*SHORT, to_block, to_block + 1})
    limit = model_traits.position_limit(model, sequence.kind.name)
    if limit is not None and limit < sequence.length:  # of another sequence, such as the frames of a speech encoder
        limit = None
    pads = tuple(number * unit for number in wanted)
    fitting = tuple(number for number in pads if limit is None or sequence.length + number <= limit)
    if fitting == pads:
        return pads, ""
    left_out = ", ".join(str(number) for number in pads if number not in fitting)
    return fitting, f"{sequence.main}: {left_out} pads do not fit: length {sequence.length} of {limit} positions"


def _unit(model: torch.nn.Module, sequence: InputSequence) -> int:
    """Return the least padding that adds anything: a frame of raw audio in samples, a patch in pixels."""
    if sequence.main == "input_values":
        ratio = getattr(model_traits.setting(model, "inputs_to_logits_ratio"), "__int__", lambda: 1)()
        return max(1, ratio)
    if sequence.kind.unit == "pixels":
        patch = model_traits.setting(model, "patch_size")
        return patch if isinstance(patch, int) and patch > 0 else _PATCH
    return 1


def padded_alike(
    call: ObservedCall, sequence: InputSequence, side: Side, pads: int, filler: str | int = "pad"
) -> Repetition:
    """Return the call with every row padded by the same number.

    Frames that the test hides become real ones: frames are pooled, and nobody can tell which pooled ones are pads.
    """
    given, mask = call.inputs, call.inputs.get(sequence.kind.mask)
    if sequence.kind.unit == "frames" and mask is not None and not bool((mask != 0).all()):
        given = {**given, sequence.kind.mask: torch.ones_like(mask)}
    before, after = (pads, 0) if side == "left" else (0, pads)
    alignment = Alignment(
        sequence.length, before, sequence.length + pads, sequence.batch, mask=sequence.mask, is_exact=sequence.is_exact
    )
    unit = "" if sequence.kind.unit == "tokens" else f" {sequence.kind.unit}"
    inputs = padded(call.model, given, sequence, (before, after), filler)
    label = f"{sequence.name} padded by {pads}{unit} on the {side}"
    recorded: Literal["expected", ""] = "expected" if given is call.inputs else ""
    return Repetition(label, inputs, alignment, with_mask(given, sequence), recorded, side)


def rows_alone(call: ObservedCall, sequence: InputSequence) -> Iterator[Repetition]:
    """Yield, for each row that the test itself padded, the row alone and without its pads."""
    mask = sequence.mask
    if mask is None or sequence.axis != 1 or sequence.kind.unit != "tokens" or _has_frames_or_pixels(call):
        return
    for row, (first, end) in enumerate(sequence.windows()):
        is_whole = (first, end) == (0, sequence.length) or first == end
        if is_whole or (end < sequence.length and call.inputs.get(KEEPS_END)):
            continue
        alone = window_of(rows_of(call.inputs, [row], sequence.batch), sequence, first, end)
        real_tokens = mask[row : row + 1, first:end]
        alignment = Alignment(end - first, first, sequence.length, sequence.batch, rows=(row,), mask=real_tokens)
        pads = sequence.length - (end - first)
        label = f"row {row} in its batch, where it has {counted(pads, 'pad')}, against the row alone"
        yield Repetition(label, dict(call.inputs), alignment, alone, "actual", "left" if first else "right")


def ragged(call: ObservedCall, sequence: InputSequence, side: Side) -> Repetition | None:
    """Return a batch in which the last row is half as long as the others, against that row alone.

    A batch of one row is joined by its own first half. None where the rows already differ in length, or where other
    inputs would not fit a shorter row.
    """
    has_other_sequences = _has_frames_or_pixels(call) or any(call.inputs.get(name) is not None for name in POINTERS)
    is_full = sequence.mask is None or bool(sequence.mask.all())
    is_plain = sequence.kind.unit == "tokens" and sequence.axis == 1 and sequence.takes_mask
    length = (sequence.length + 1) // 2
    if side == "right" and call.inputs.get(KEEPS_END):
        return None
    if has_other_sequences or not is_full or not is_plain or length == sequence.length:
        return None
    pads, batch = sequence.length - length, max(2, sequence.batch)
    before, after = (pads, 0) if side == "left" else (0, pads)
    masked = with_mask(call.inputs, sequence)
    alone = window_of(rows_of(masked, [sequence.batch - 1], sequence.batch), sequence, 0, length)
    shortened = padded(call.model, alone, replace(sequence, length=length, batch=1, mask=None), (before, after))
    whole = masked if sequence.batch > 1 else rows_of(masked, [0, 0], 1)
    inputs = {**whole}
    for name, value in whole.items():
        last = shortened.get(name)
        if isinstance(last, torch.Tensor) and isinstance(value, torch.Tensor) and value.shape[:1] == (batch,):
            inputs[name] = torch.cat([value[:-1], last])
    counts = f"{counted(length, 'token')} and {counted(pads, 'pad')}"
    label = f"a batch whose last row has {counts} on the {side}, against that row alone"
    alignment = Alignment(length, before, sequence.length, batch, rows=(batch - 1,))
    return Repetition(label, inputs, alignment, alone, "", side)


def _has_frames_or_pixels(call: ObservedCall) -> bool:
    """Tell whether a row has more than tokens: a row alone may then need other images than its own."""
    return any(call.inputs.get(main) is not None for kind in KINDS[2:] for main in kind.mains)

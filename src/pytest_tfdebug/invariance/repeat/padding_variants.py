"""The ways in which a call is asked again: padded on a side, its rows alone, in a batch of different lengths."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance import family
from pytest_tfdebug.invariance.alignment import Alignment
from pytest_tfdebug.invariance.outcome import Repetition
from pytest_tfdebug.invariance.padding import padded, rows_of, window_of, with_mask, with_positions
from pytest_tfdebug.invariance.streams import KEEPS_END, KINDS, POINTERS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.invariance.observed import ObservedCall
    from pytest_tfdebug.invariance.outcome import Recorded
    from pytest_tfdebug.invariance.settings import Side
    from pytest_tfdebug.invariance.streams import Stream

    #: Makes a repetition, with position ids built from the mask or as the test's call has them.
    Variant = Callable[[bool], Repetition]


def padded_variant(call: ObservedCall, stream: Stream, side: Side, pads: int, filler: str | int) -> Variant:
    """Return the call with every row padded by the same number."""
    before, after = (pads, 0) if side == "left" else (0, pads)
    alignment = Alignment(
        stream.length, before, stream.length + pads, stream.batch, mask=stream.mask, is_exact=stream.is_exact
    )
    unit = "" if stream.kind.unit == "tokens" else f" {stream.kind.unit}"

    def make(positions: bool) -> Repetition:  # noqa: FBT001
        inputs = padded(call.model, call.inputs, stream, (before, after), filler)
        expected = with_mask(call.inputs, stream)
        label = f"{stream.main} padded by {pads}{unit} on the {side}"
        made = Repetition(label, inputs, alignment, expected, pads=pads, side=side)
        return _repetition(call, stream, made, positions=positions)

    return make


def rows_alone(call: ObservedCall, stream: Stream) -> Iterator[tuple[Side, Variant]]:
    """Yield, for each row that the test itself padded, the row alone and without its pads."""
    if stream.mask is None or stream.axis != 1 or stream.kind.unit != "tokens" or _has_frames_or_pixels(call):
        return
    for row, (first, end) in enumerate(stream.windows()):
        is_whole = (first, end) == (0, stream.length) or first == end
        if is_whole or (end < stream.length and call.inputs.get(KEEPS_END)):
            continue
        yield ("left" if first else "right"), _row_alone(call, stream, row, first, end)


def _row_alone(call: ObservedCall, stream: Stream, row: int, first: int, end: int) -> Variant:
    assert stream.mask is not None  # noqa: S101 - rows_alone asked
    alignment = Alignment(
        end - first, first, stream.length, stream.batch, rows=(row,), mask=stream.mask[row : row + 1, first:end]
    )
    pads = stream.length - (end - first)

    def make(positions: bool) -> Repetition:  # noqa: FBT001
        alone = window_of(rows_of(call.inputs, [row], stream.batch), stream, first, end)
        inputs = dict(call.inputs)
        label = f"row {row} in its batch, where it has {pads} pad{'s' * (pads != 1)}, against the row alone"
        side = "left" if first else "right"
        recorded: Recorded = "" if positions else "actual"
        made = Repetition(label, inputs, alignment, alone, recorded, pads, side)
        return _repetition(call, stream, made, positions=positions)

    return make


def ragged_variant(call: ObservedCall, stream: Stream, side: Side) -> Variant | None:
    """Return a batch in which the last row is half as long as the others, against that row alone.

    A batch of one row is joined by its own first half. None where the rows already differ in length, or where other
    inputs would not fit a shorter row.
    """
    has_other_sequences = _has_frames_or_pixels(call) or any(call.inputs.get(name) is not None for name in POINTERS)
    is_full = stream.mask is None or bool(stream.mask.all())
    is_plain = stream.kind.unit == "tokens" and stream.axis == 1 and stream.takes_mask
    length = (stream.length + 1) // 2
    if side == "right" and call.inputs.get(KEEPS_END):
        return None
    if has_other_sequences or not is_full or not is_plain or length == stream.length:
        return None
    pads, batch = stream.length - length, max(2, stream.batch)
    before, after = (pads, 0) if side == "left" else (0, pads)
    alignment = Alignment(length, before, stream.length, batch, rows=(batch - 1,))

    def make(positions: bool) -> Repetition:  # noqa: FBT001
        masked = with_mask(call.inputs, stream)
        alone = window_of(rows_of(masked, [stream.batch - 1], stream.batch), stream, 0, length)
        shortened = padded(call.model, alone, replace(stream, length=length, batch=1, mask=None), (before, after))
        whole = masked if stream.batch > 1 else rows_of(masked, [0, 0], 1)
        inputs = {name: _with_last_row(value, shortened.get(name), batch) for name, value in whole.items()}
        counts = f"{length} token{'s' * (length != 1)} and {pads} pad{'s' * (pads != 1)}"
        label = f"a batch whose last row has {counts} on the {side}, against that row alone"
        made = Repetition(label, inputs, alignment, alone, "", pads, side)
        return _repetition(call, stream, made, positions=positions)

    return make


def can_take_positions(call: ObservedCall, stream: Stream) -> bool:
    """Tell whether position ids can be given to a call that has none of its own."""
    name = stream.kind.positions
    return (
        name is not None
        and stream.axis == 1
        and call.inputs.get(name) is None
        and name in family.parameters(call.model)
    )


def _has_frames_or_pixels(call: ObservedCall) -> bool:
    """Tell whether a row has more than tokens: a row alone may then need other images than its own."""
    return any(call.inputs.get(main) is not None for kind in KINDS[2:] for main in kind.mains)


def _repetition(
    call: ObservedCall,
    stream: Stream,
    made: Repetition,
    *,
    positions: bool,
) -> Repetition:
    """Return a repetition, with position ids built from the mask on both sides where they are asked for."""
    if not positions:
        return made
    inputs, expected = (with_positions(call.model, each, stream) for each in (made.inputs, made.expected_inputs))
    label = f"{made.label}, with {stream.kind.positions}"
    return replace(made, label=label, inputs=inputs, expected_inputs=expected)


def _with_last_row(value: Any, last: Any, batch: int) -> Any:  # noqa: ANN401
    is_batched = isinstance(value, torch.Tensor) and value.dim() > 0 and value.shape[0] == batch
    return torch.cat([value[:-1], last]) if is_batched and isinstance(last, torch.Tensor) else value

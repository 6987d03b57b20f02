"""What is behind a leak: further repetitions, and a table of rules from what they show to what is probably wrong."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.invariance.calls.alignment import Alignment
from pytest_tfdebug.invariance.calls.padding_variants import padded_alike
from pytest_tfdebug.invariance.calls.repetition import can_take_positions, numbered, padded, rows_of
from pytest_tfdebug.invariance.calls.sequences import mask_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.calls.repetition import Repetition
    from pytest_tfdebug.invariance.calls.sequences import InputSequence
    from pytest_tfdebug.invariance.compare.culprit import Located
    from pytest_tfdebug.invariance.compare.outputs import Mismatch

_NORM = re.compile(r"GroupNorm|InstanceNorm|BatchNorm")
_CONVOLUTION = re.compile(r"Conv[123]d|Convolution|Mamba|StateSpace|SSM|Mixer|Recurrent|LSTM|GRU|RNN")
_ATTENTION = re.compile(r"att(?:entio)?n", re.IGNORECASE)
_INTEGERS = ("int64", "int32", "uint8", "int16", "int8", "bool")
#: A leak stays beside the pads when it changes at most this share of the real tokens.
_BESIDE = 0.5


@dataclass(frozen=True)
class Leak:
    """Padding that changed the answer, what further repetitions showed of it, and where the two forwards part."""

    call: ObservedCall
    sequence: InputSequence
    repetition: Repetition
    mismatch: Mismatch  # the first output that changed
    content_matters: bool | None = None  # other tokens at the pads change the answer; None where that was not tried
    mask_matters: bool | None = None  # switching the mask on at the pads does; None where there is no mask
    positions_help: bool = False  # position ids built from the mask make the answer right
    batch_matters: bool = False  # a row's answer depends on its batch without any change of padding
    lacks: str = ""  # "mask" or "positions": what the test's own padded rows lack, and would be right with
    only_before: bool = False  # as many pads behind the tokens change nothing
    located: Located | None = None

    @property
    def has_nan(self) -> bool:
        """Whether the repeated output has NaN where the original has none."""
        metrics = self.mismatch.leaf.metrics if self.mismatch.leaf else None
        is_new = metrics is not None and metrics.non_finite_actual > metrics.non_finite_expected
        return is_new or self.mismatch.is_at_pads

    @property
    def divergence(self) -> tuple[str, str]:
        """Module path and dtype of the first tensor that differs."""
        found = self.located.divergence if self.located else None
        return (found.path, found.comparison.dtype) if found else ("", "")

    @property
    def classes(self) -> tuple[str, ...]:
        """Classes of the culprit and of its direct children; those of a forward's own lines are not to blame."""
        culprit = self.located.culprit if self.located else None
        module = dict(self.call.model.named_modules()).get(culprit.path) if culprit else None
        children = [] if module is None or culprit is None or culprit.kind == "glue" else list(module.children())
        return (*([culprit.class_name] if culprit else []), *(type(child).__name__ for child in children))

    def is_in_attention(self) -> bool:
        """Tell whether the culprit, a module in it, or the first tensor that differs is of an attention."""
        path = self.located.culprit.path if self.located and self.located.culprit else ""
        return any(map(_ATTENTION.search, (path, self.divergence[0], *self.classes)))

    def is_scan(self) -> bool:
        """Tell whether the culprit is one by its class, or if what the pads hold passes a mask to few real tokens."""
        if any(map(_CONVOLUTION.search, self.classes)):
            return True
        tokens = self.located.tokens if self.located else None
        is_beside = tokens is not None and tokens.real > 2 and tokens.differing <= _BESIDE * tokens.real  # noqa: PLR2004
        has_effect = self.mask_matters is not False and self.content_matters is not False
        return is_beside and has_effect and not self.is_in_attention()


class Reading(NamedTuple):
    """What is probably wrong when something is seen, and what to do; without that, the blamed lines change."""

    applies: Callable[[Leak], object]
    says: str
    advice: str = ""


_POSITIONS = "Pass {own_positions}{at}: ({own_mask}.cumsum(-1) - 1).clamp(min=0)"

#: The first that applies is reported.
RULES = (
    Reading(
        lambda f: f.lacks == "mask",
        "the call was made without {mask} although rows of {main} begin or end with pad tokens: pass {mask}.",
        "Pass {own_mask}{at}.",
    ),
    Reading(
        lambda f: f.lacks == "positions",
        (
            "{main} has pads on the left and no {positions}: pads are counted as tokens, and with {positions} built "
            "from {mask} the row gives the answer that it gives alone."
        ),
        _POSITIONS,
    ),
    Reading(
        lambda f: f.has_nan, "NaN from a softmax over a row whose keys are all masked: add a finite number, not -inf."
    ),
    Reading(lambda f: f.batch_matters, "a row's answer depends on the other rows of its batch, whatever its padding."),
    Reading(
        lambda f: f.positions_help,
        "position ids are shifted by the pads: with {positions} built from the mask the answer is right.",
        _POSITIONS,
    ),
    Reading(lambda f: f.located and f.located.fault, "{fault}."),
    Reading(lambda f: f.located and f.located.counts_pads, "positions ignore the mask: pads are counted as tokens."),
    Reading(lambda f: f.divergence[1] in _INTEGERS, "the indices given to {path!r} are shifted by the pads."),
    Reading(
        lambda f: any(map(_NORM.search, f.classes)), "normalisation over time, pads too (by design? expect='varies')."
    ),
    Reading(
        lambda f: f.located and f.located.is_pooling,
        "pooling over pads: the mean, maximum or position that is taken of the sequence includes them.",
    ),
    Reading(Leak.is_scan, "a convolution or state-space scan runs across the pads: set the pads to 0 before it."),
    Reading(
        lambda f: f.content_matters is False and f.only_before,
        (
            "positions ignore the mask, or strides begin at the first pad: pads before the tokens matter, whatever "
            "they hold, and pads behind them do not."
        ),
    ),
    Reading(
        lambda f: f.content_matters is False, "the number of pads matters, not their content: the length is used there."
    ),
    Reading(
        lambda f: not f.sequence.takes_mask or not f.is_in_attention(),
        "the pads are treated there like real {unit}, and {mask} is ignored.",
    ),
    Reading(
        lambda _: True,
        (
            "{mask} never reached attention there: the pads are attended to like real {unit}, or keys are made of "
            "several tokens, pads too."
        ),
    ),
)


def diagnose(leak: Leak) -> tuple[str, str]:
    """Return what is probably wrong, in a sentence, and what to do; no advice where the blamed lines change."""
    sequence, kind, at = leak.sequence, leak.sequence.kind, leak.call.at
    own = leak.call.own_names
    words = {
        "mask": kind.mask,
        "positions": kind.positions,
        "unit": kind.unit,
        "main": sequence.main,
        "own_mask": own.get(kind.mask, kind.mask),
        "own_positions": own.get(str(kind.positions), kind.positions),
        "at": f" at {at}" if at else "",
        "path": leak.divergence[0],
        "fault": leak.located.fault if leak.located else "",
    }
    reading = next(reading for reading in RULES if reading.applies(leak))
    return reading.says.format(**words), reading.advice.format(**words)


def examined(leak: Leak, fails: Callable[[Repetition], bool | None]) -> Leak:
    """Repeat a leaking call in further ways: do the pads' content, the mask, positions or the batch matter?

    Inside ``call.restored()``. ``fails`` tells whether a repetition changes the answer; None where it is refused.
    """
    call, sequence, made, mask = leak.call, leak.sequence, leak.repetition, leak.sequence.kind.mask
    at = made.alignment

    def differs(name: str, value: torch.Tensor) -> bool | None:
        """Tell whether a padded call gives another answer at real tokens when an input is changed."""
        count = mask_of(made.inputs, sequence)[..., 0].numel() if sequence.is_exact else at.batch
        real = torch.zeros(count, at.total, dtype=torch.bool)
        for place, row in enumerate(range(count) if at.rows is None else at.rows):
            real[row, at.start : at.start + at.real] = True if at.mask is None else at.mask[place].cpu()
        alignment, inputs = Alignment(at.total, 0, at.total, at.batch, mask=real), {**made.inputs, name: value}
        return fails(replace(made, inputs=inputs, expected_inputs=made.inputs, alignment=alignment, recorded=""))

    content_matters, batch_matters = None, False
    if at.rows is not None:
        alone = rows_of(made.inputs, at.rows, at.batch)
        alignment = Alignment(at.total, 0, at.total, at.batch, rows=at.rows)
        batch_matters = fails(replace(made, alignment=alignment, expected_inputs=alone, recorded="")) is True
    elif sequence.kind.unit != "pixels":
        other = padded(call.model, call.inputs, sequence, (at.start, at.total - at.real - at.start), "random")
        content_matters = differs(sequence.main, other[sequence.main])
    has_mask = sequence.takes_mask and sequence.kind.unit == "tokens" and made.inputs.get(mask) is not None
    may_number = can_take_positions(call, sequence) and sequence.kind.positions not in made.inputs
    only_before = False
    if made.side == "left" and content_matters is False:
        behind = padded_alike(call, sequence, "right", at.total - at.real)
        only_before = fails(behind) is False
    return replace(
        leak,
        content_matters=content_matters,
        mask_matters=differs(mask, torch.ones_like(mask_of(made.inputs, sequence))) if has_mask else None,
        positions_help=may_number and fails(numbered(call, sequence, made)) is False,
        batch_matters=batch_matters,
        only_before=only_before,
    )

"""Further repetitions after a leak: from how many pads on, and do their content, the mask or the positions matter?"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.sequences import mask_of
from pytest_tfdebug.invariance.compare.alignment import Alignment
from pytest_tfdebug.invariance.repeat.inputs import can_take_positions, numbered, padded, rows_of
from pytest_tfdebug.invariance.repeat.padding_variants import padded_alike

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.calls.sequences import InputSequence
    from pytest_tfdebug.invariance.compare.outputs import Mismatch
    from pytest_tfdebug.invariance.repeat.repetition import Repetition

#: Up to this number, pads are tried one by one to find the first number that fails.
_MOST_STEPS = 64


@dataclass(frozen=True)
class Leak:
    """Padding that changed the answer."""

    sequence: InputSequence  # the sequence that was padded
    repetition: Repetition  # the repetition that shows it
    mismatch: Mismatch  # the first output that changed
    has_positions: bool  # the repetition was given position ids built from the mask


@dataclass(frozen=True)
class Experiments:
    """What further repetitions showed."""

    failing: tuple[int, ...] = ()  # numbers of pads that change the answer, ascending; empty for rows of a batch
    passing: tuple[int, ...] = ()  # numbers of pads that do not
    content_matters: bool | None = None  # other tokens at the pads change the answer; None where that was not tried
    # switching the mask on at the pads changes the answer; None where there is no mask
    mask_matters: bool | None = None
    positions_help: bool = False  # position ids built from the mask make the answer right
    batch_matters: bool = False  # a row's answer depends on its batch without any change of padding
    pad_ids_help: bool = False  # pad tokens at the positions that the test's mask hides make the answer right
    has_nan: bool = False  # the repeated output has NaN where the original has none


@dataclass(frozen=True)
class LeakRepeater:
    """Repeats a leaking call in further ways, inside ``call.restored()``."""

    call: ObservedCall  # the call
    leak: Leak  # the leak
    # runs a repetition and tells whether it changes the answer; None where the model refuses it
    fails: Callable[[Repetition], bool | None]
    lengths: Sequence[int]  # the numbers of pads to try
    filler: str | int  # what to pad with

    def run(self) -> tuple[Experiments, Repetition]:
        """Return what the experiments showed, and the repetition with the fewest pads that leaks."""
        leak, made = self.leak, self.leak.repetition
        failing, passing = self._profile()
        if failing and failing[0] != made.pads:
            made = self._of_pads(failing[0])
        if leak.mismatch.error:
            return Experiments(failing, passing), made
        metrics = leak.mismatch.leaf.metrics if leak.mismatch.leaf else None
        sequence, mask = leak.sequence, leak.sequence.kind.mask
        has_mask = sequence.takes_mask and sequence.kind.unit == "tokens" and made.inputs.get(mask) is not None
        may_number = not leak.has_positions and can_take_positions(self.call, sequence)
        found = Experiments(
            failing,
            passing,
            self._content_matters(made),
            self._differs(made, **{mask: torch.ones_like(mask_of(made.inputs, sequence))}) if has_mask else None,
            may_number and self.fails(numbered(self.call, sequence, leak.repetition)) is False,
            self._batch_matters(made),
            self._pad_ids_help(made),
            metrics is not None and metrics.non_finite_actual > metrics.non_finite_expected,
        )
        return found, made

    def _of_pads(self, pads: int) -> Repetition:
        side = self.leak.repetition.side or "right"
        made = padded_alike(self.call, self.leak.sequence, side, pads, self.filler)
        return numbered(self.call, self.leak.sequence, made) if self.leak.has_positions else made

    def _profile(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the numbers of pads that change the answer and those that do not, the first one found step by step."""
        made = self.leak.repetition
        if made.alignment.rows is not None:
            return (), ()
        results = {pads: self.fails(self._of_pads(pads)) for pads in self.lengths}
        first = min((pads for pads, fails in results.items() if fails), default=made.pads)
        steps = range(1, min(first, _MOST_STEPS)) if self.leak.sequence.is_exact else ()
        for pads in steps:
            if pads not in results:
                results[pads] = self.fails(self._of_pads(pads))
                if results[pads]:
                    break
        failing, passing = (tuple(sorted(pads for pads in results if results[pads] is each)) for each in (True, False))
        return failing, passing

    def _content_matters(self, made: Repetition) -> bool | None:
        at, sequence = made.alignment, self.leak.sequence
        if at.rows is not None or sequence.kind.unit == "pixels":
            return None
        widths = (at.start, at.total - at.real - at.start)
        other = padded(self.call.model, self.call.inputs, sequence, widths, "random")
        return self._differs(made, **{sequence.main: other[sequence.main]})

    def _differs(self, made: Repetition, **changed: Any) -> bool | None:  # noqa: ANN401 - inputs
        """Tell whether a padded call gives another answer at real tokens when some of its inputs are changed."""
        at, sequence = made.alignment, self.leak.sequence
        count = mask_of(made.inputs, sequence)[..., 0].numel() if sequence.is_exact else at.batch
        mask = torch.zeros(count, at.total, dtype=torch.bool)
        for place, row in enumerate(range(count) if at.rows is None else at.rows):
            mask[row, at.start : at.start + at.real] = True if at.mask is None else at.mask[place].cpu()
        alignment = Alignment(at.total, 0, at.total, at.batch, mask=mask)
        inputs = {**made.inputs, **changed}
        return self.fails(replace(made, inputs=inputs, expected_inputs=made.inputs, alignment=alignment, recorded=""))

    def _pad_ids_help(self, made: Repetition) -> bool:
        call, sequence = self.call, self.leak.sequence
        if sequence.main != "input_ids" or sequence.mask is None or made.recorded != "actual":
            return False
        pads = torch.full_like(call.inputs["input_ids"], model_traits.pad_token(call.model))
        inputs = {
            **made.inputs,
            "input_ids": torch.where(mask_of(call.inputs, sequence).bool(), call.inputs["input_ids"], pads),
        }
        return self.fails(replace(made, inputs=inputs, recorded="")) is False

    def _batch_matters(self, made: Repetition) -> bool:
        at = made.alignment
        if at.rows is None:
            return False
        alone = rows_of(made.inputs, at.rows, at.batch)
        alignment = Alignment(at.total, 0, at.total, at.batch, rows=at.rows)
        return self.fails(replace(made, alignment=alignment, expected_inputs=alone, recorded="")) is True

"""``padding_invariant``: repeat a call with padding and see whether anything changes at the real tokens."""

from __future__ import annotations

import sys
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.calls.alignment import Alignment
from pytest_tfdebug.invariance.calls.padding_variants import pad_lengths, padded_alike, ragged, rows_alone, sides
from pytest_tfdebug.invariance.calls.repetition import can_take_positions, masked, numbered, without_pads
from pytest_tfdebug.invariance.calls.sequences import POINTERS, find_sequences, together
from pytest_tfdebug.invariance.checks.base import COMMON, Check
from pytest_tfdebug.invariance.compare.culprit import locate
from pytest_tfdebug.invariance.compare.diagnosis import Leak, diagnose, examined
from pytest_tfdebug.invariance.compare.outputs import lay

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_tfdebug.invariance.calls.observed_call import Leaves, ObservedCall
    from pytest_tfdebug.invariance.calls.repetition import Repetition
    from pytest_tfdebug.invariance.calls.sequences import InputSequence
    from pytest_tfdebug.invariance.checks.base import Settings
    from pytest_tfdebug.invariance.compare.outputs import Mismatch
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances


class PaddingCheck(Check):
    """Each sequence is padded on each side by several lengths; rows that the test padded are run alone."""

    options = (*COMMON, "side", "lengths", "filler", "position_ids", "expect", "reason")
    needs = "Call a model with input_ids or inputs_embeds, or with pixels or frames and their mask"
    verdict = "is not invariant to padding"
    randomness = "gives another answer each time it is called"

    def __init__(self, call: ObservedCall, settings: Settings, *rounding: float) -> None:
        super().__init__(call, settings, *rounding)
        self._promises_finite = model_traits.is_pretrained(call.model)
        #: Sequences that need position ids when they are padded on the left.
        self._needs_positions: set[str] = set()
        #: Sequences whose caches depend on position ids.
        self._numbers_caches: set[str] = set()
        #: Length from which the model refuses a padded sequence, and what it raises, by its name.
        self._refused: dict[str, tuple[int, str]] = {}

    @cached_property
    def expected(self) -> Leaves:
        """The answer without losses over all positions, which include the pads."""
        output = super().expected
        if any(self.call.inputs.get(name) is not None for name in POINTERS):
            return {path: tensor for path, tensor in output.items() if tensor.dim()}
        return output

    def check(self) -> None:
        """Report the first change at a real token."""
        leak, outcome, settings = self._first_leak(), self.outcome, self.settings
        is_training = any(training for _, training in self.call.modes)
        if leak is not None and self.is_random(with_other_numbers=is_training):
            return
        if settings.expect == "same":
            if leak is not None:
                self._explain(leak)
        elif leak is not None:
            outcome.repeats += 1
            outcome.notes.append(f"{self.call.name} varies with padding as declared: {settings.reason}")
        elif outcome.repeats:
            outcome.text = (
                f"{self.call.name} is declared to vary with padding ({settings.reason}) and does not: "
                f"{outcome.repeats} repeated forwards gave the same answer.\n"
                "Remove expect='varies' and reason=."
            )

    def _first_leak(self) -> Leak | None:
        """Repeat the call in every way and return the first that changes the answer, or None."""
        sequences, reasons = find_sequences(self.call)
        self.outcome.skipped.extend(reasons)
        leak = self._first_of(sequences)
        tokens = [sequence for sequence in sequences if sequence.kind.unit == "tokens"]
        if leak is None and self._refused and len(tokens) > 1:
            joined = together(*tokens)
            if joined is not None:
                self._refused.clear()
                leak = self._first_of([joined])
        for name, (length, error) in self._refused.items():
            self._tell(f"{name} was not padded to {length} or more: {error}")
        return leak

    def _first_of(self, sequences: list[InputSequence]) -> Leak | None:
        tried = (self._try(sequence, made) for sequence in sequences for made in self._variants(sequence))
        return next((leak for leak in tried if leak is not None), None)

    def _variants(self, sequence: InputSequence) -> Iterator[Repetition]:
        call, settings = self.call, self.settings
        chosen, left_out = sides(call, sequence, settings.side, partial(self._decodes, sequence))
        lengths, too_long = pad_lengths(call.model, sequence, settings.lengths)
        if left_out:
            where = f"was padded on the {chosen[0]} only" if chosen else "was not padded"
            self._tell(f"{sequence.main} {where}: {left_out}")
        if too_long and settings.lengths:
            self._tell(too_long)
        elif too_long:
            self.skip(too_long)
        if settings.position_ids == "always" and not can_take_positions(call, sequence):
            self.skip(
                f"{sequence.main}: position_ids='always', and the forward takes no {sequence.kind.positions} of its own"
            )
            return
        for side in chosen:
            for pads in lengths:
                yield padded_alike(call, sequence, side, pads, settings.filler)
        if sequence.beside is not None:
            return
        yield from rows_alone(call, sequence)
        for side in chosen:
            made = ragged(call, sequence, side)
            if made is not None:
                yield made

    def _tell(self, reason: str) -> None:
        """Say that less was checked than could be expected, also where everything else holds."""
        self.skip(f"{self.call.class_name}: {reason}")
        self.outcome.notes.append(self.outcome.skipped[-1])

    def _decodes(self, sequence: InputSequence) -> bool | None:
        """Tell whether the model decodes, by what it says of itself or by what it does; None where neither tells."""
        said = model_traits.decodes(self.model)
        return is_causal(self.call, sequence, self.expected, self.tolerances) if said is None else said

    def _try(self, sequence: InputSequence, made: Repetition) -> Leak | None:
        """Run a repetition, and where the test gave its padded rows no mask, with the mask too."""
        is_own = made.recorded == "actual"  # rows that the test itself padded: it is to pass what they need
        leak = self._with_positions(sequence, made, is_own=is_own)
        if leak is None or not (is_own and sequence.is_mask_inferred and sequence.takes_mask):
            return leak
        with_mask = self._with_positions(sequence, masked(sequence, made), is_own=is_own)
        return replace(leak, lacks="mask") if with_mask is None or with_mask.lacks else with_mask

    def _with_positions(self, sequence: InputSequence, made: Repetition, *, is_own: bool) -> Leak | None:
        """Run a repetition as it is, and with position ids where these may help."""
        mode, main = self.settings.position_ids, sequence.main
        can_take = can_take_positions(self.call, sequence)
        has_positions = can_take and (mode == "always" or (main in self._needs_positions and not is_own))
        repetition = numbered(self.call, sequence, made) if has_positions else made
        is_moved = made.side == "left" and not has_positions
        may_move = is_moved and can_take
        mismatch = self._run(sequence, repetition, with_caches=not is_moved or main not in self._numbers_caches)
        if mismatch is None or (may_move and mode == "never" and mismatch.is_in_cache):
            return None
        is_in_keys = mismatch.is_in_cache and mismatch.path.endswith(".keys")
        if is_in_keys and is_moved and not can_take:  # rotated further; it takes no positions to undo that
            self._numbers_caches.add(main)
            return None
        if not may_move or mode != "auto":
            return Leak(self.call, sequence, repetition, mismatch)
        with_positions = numbered(self.call, sequence, made)
        second = self._run(sequence, with_positions)
        if second is not None and second.is_in_cache:  # PaliGemma counts from 1 where no one gives it positions
            second = self._run(sequence, replace(with_positions, recorded=""))
        if second is not None and (second.is_in_cache or not mismatch.is_in_cache):
            return Leak(self.call, sequence, with_positions, second)
        if is_own and not mismatch.is_in_cache:
            return Leak(self.call, sequence, made, mismatch, lacks="positions")
        if mismatch.is_in_cache:  # rotary keys carry their positions, and attention sees only distances
            self._numbers_caches.add(main)
        else:
            self._needs_positions.add(main)
            self.outcome.notes.append(f"{self.call.class_name} needs {sequence.kind.positions} under left padding")
        return None

    def _run(self, sequence: InputSequence, made: Repetition, *, with_caches: bool = True) -> Mismatch | None:
        if made.alignment.total >= self._refused.get(sequence.name, (sys.maxsize, ""))[0]:
            return None
        found = self.attempt(made, promises_finite=self._promises_finite, with_caches=with_caches)
        if found is None or not found.error:
            return found
        plain = [made.expected_inputs, without_pads(made.inputs, sequence)] if sequence.is_exact else []
        if plain and not any(map(self.is_refused, plain)):
            return found
        self._refused[sequence.name] = made.alignment.total, found.error
        self.cannot_ask(made.label, found)
        return None

    def _explain(self, leak: Leak) -> None:
        def fails(made: Repetition) -> bool | None:
            self._refused.pop(leak.sequence.name, None)
            is_other = self._run(leak.sequence, made) is not None
            return is_other or (None if leak.sequence.name in self._refused else False)

        label = leak.repetition.label
        if leak.mismatch.error:
            self.report(label, leak.mismatch)
        elif leak.lacks:  # the model is right: no line of its own is to blame
            self.report(label, leak.mismatch, None, *diagnose(leak))
        else:
            located = locate(self.call, leak.repetition, self.tolerances, is_padded=True)
            found = replace(examined(leak, fails), located=located)
            self.report(label, leak.mismatch, located, *diagnose(found))


def is_causal(call: ObservedCall, sequence: InputSequence, expected: Leaves, tolerances: Tolerances) -> bool | None:
    """Change the second half of each row's tokens, and tell whether the first half of the answer stays as it is.

    None where that cannot be seen: the answer has no axis along the sequence, or its rows are too short. Inside
    ``call.restored``.
    """
    if sequence.axis != 1:
        return None
    real = torch.ones(sequence.batch, sequence.length, dtype=torch.bool)
    real = real if sequence.mask is None else sequence.mask.cpu()
    is_earlier = real.cumsum(1) <= real.sum(1, keepdim=True) // 2
    if not bool((real & is_earlier).any(1).all()):
        return None
    try:
        output = call.leaves(_changed(call.inputs, sequence, real & ~is_earlier))
    except Exception:  # noqa: BLE001 - a model that refuses these tokens has told nothing
        return None
    at = Alignment(sequence.length, 0, sequence.length, sequence.batch, mask=real & is_earlier)
    laid = [
        found
        for path, tensor in expected.items()
        if path in output and (found := lay(path, tensor, output[path], at, tolerances)) is not None
    ]
    along = [comparison for aligned, comparison in laid if aligned.axes]
    return not any(comparison.problem for comparison in along) if along else None


def _changed(inputs: Mapping[str, object], sequence: InputSequence, where: torch.Tensor) -> dict[str, object]:
    """Return the inputs of a call with other tokens at some positions; only ids that it has, where it has several."""
    main = inputs[sequence.main]
    assert isinstance(main, torch.Tensor)  # noqa: S101 - what carries a sequence
    where = where.to(main.device).reshape(*where.shape, *(1,) * (main.dim() - where.dim()))
    if main.is_floating_point():
        return {**inputs, sequence.main: torch.where(where, -main, main)}
    ids = torch.unique(main)
    first = ids[0] if len(ids) > 1 else (ids[0] - 1).abs()
    return {**inputs, sequence.main: torch.where(where, torch.where(main == first, ids[-1], first), main)}

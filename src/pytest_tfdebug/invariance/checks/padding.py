"""``padding_invariant``: repeat a call with padding and see whether anything changes at the real tokens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tfdebug.invariance import family
from pytest_tfdebug.invariance.alignment import Alignment
from pytest_tfdebug.invariance.holding import NothingToCompareError, first_mismatch
from pytest_tfdebug.invariance.outcome import Mismatch, Outcome, Repetition
from pytest_tfdebug.invariance.sides import sides, sweep
from pytest_tfdebug.invariance.streams import POINTERS, find_streams
from pytest_tfdebug.invariance.variants import can_take_positions, padded_variant, ragged_variant, rows_alone

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.invariance.observed import Leaves, ObservedCall
    from pytest_tfdebug.invariance.settings import PaddingSettings, Side
    from pytest_tfdebug.invariance.streams import Stream
    from pytest_tfdebug.invariance.variants import Variant

#: The alignment of a call with itself.
_AS_IT_WAS = Alignment(real=1, start=0, total=1, batch=1)


@dataclass(frozen=True)
class Leak:
    """Padding that changed the answer.

    Args:
        stream: The sequence that was padded.
        repetition: The repetition that shows it.
        mismatch: The first output that changed.
        variant: Makes the repetition with or without position ids.
        has_positions: The repetition was given position ids built from the mask.
    """

    stream: Stream
    repetition: Repetition
    mismatch: Mismatch
    variant: Variant
    has_positions: bool


@dataclass
class PaddingCheck:
    """The padding check of one observed call; to be used inside ``call.restored()``.

    Args:
        call: The call.
        settings: What the marker asks for.
        outcome: What has been found so far.
    """

    call: ObservedCall
    settings: PaddingSettings
    outcome: Outcome = field(default_factory=Outcome)
    _expected: Leaves = field(default_factory=dict)
    _needs_positions: set[str] = field(default_factory=set)
    _numbers_caches: set[str] = field(default_factory=set)
    _refused: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._tolerances = self.settings.tolerances()
        self._promises_finite = family.is_pretrained(self.call.model)

    def first_leak(self) -> Leak | None:
        """Repeat the call in every way and return the first that changes the answer, or None."""
        call = self.call
        streams, reasons = find_streams(call.model, call.inputs)
        self.outcome.skipped.extend(reasons)
        if not streams:
            return None
        self._expected = call.output if call.are_weights_unchanged() else call.leaves(call.inputs)
        if any(call.inputs.get(name) is not None for name in POINTERS):  # their loss is over all positions, pads too
            self._expected = {path: tensor for path, tensor in self._expected.items() if tensor.dim()}
        for stream in streams:
            for side, variant in self._variants(stream):
                leak = self.try_variant(stream, side, variant)
                if leak is not None:
                    return leak
        return None

    def try_variant(self, stream: Stream, side: Side, variant: Variant) -> Leak | None:
        """Run one variant: plainly, and with position ids where those may help."""
        mode = self.settings.position_ids
        can_take = can_take_positions(self.call, stream)
        positions = can_take and (mode == "always" or stream.main in self._needs_positions)
        repetition = variant(positions)
        may_move = side == "left" and can_take and not positions
        mismatch = self.run(stream, repetition, with_caches=not may_move or stream.main not in self._numbers_caches)
        if mismatch is None or (may_move and mode == "never" and mismatch.is_in_cache):
            return None
        if not may_move or mode != "auto":
            return Leak(stream, repetition, mismatch, variant, positions)
        with_positions = variant(True)  # noqa: FBT003 - the variant's one argument
        second = self.run(stream, with_positions)
        if second is not None:
            return Leak(stream, with_positions, second, variant, has_positions=True)
        if mismatch.is_in_cache:  # rotary keys carry their positions, and attention sees only distances
            self._numbers_caches.add(stream.main)
        else:
            self._needs_positions.add(stream.main)
            name = type(family.unwrapped(self.call.model)).__name__
            self.outcome.notes.append(f"{name} needs {stream.kind.positions} under left padding")
        return None

    def run(self, stream: Stream, repetition: Repetition, *, with_caches: bool = True) -> Mismatch | None:
        """Run one repetition and hold its outputs to the expected ones."""
        call = self.call
        if stream.main in self._refused:
            return None
        try:
            if repetition.recorded == "expected":
                expected, actual = self._expected, call.leaves(repetition.inputs)
            elif repetition.recorded == "actual":
                expected, actual = call.leaves(repetition.expected_inputs), self._expected
            else:
                expected, actual = call.leaves(repetition.expected_inputs), call.leaves(repetition.inputs)
        except Exception as error:  # noqa: BLE001 - whatever the model raises is the finding
            text = f"{type(error).__name__}: {error}"
            if stream.kind.unit == "tokens":
                return Mismatch(None, error=text)
            self._refused.add(stream.main)
            self.outcome.skipped.append(f"{repetition.label}: the model refuses it ({text})")
            return None
        try:
            mismatch = first_mismatch(
                expected,
                actual,
                repetition.alignment,
                self._tolerances,
                promises_finite=self._promises_finite,
                with_caches=with_caches,
            )
        except NothingToCompareError as error:
            self.outcome.skipped.append(f"{repetition.label}: {error}")
            return None
        self.outcome.repeats += 1
        return mismatch

    def is_repeatable(self) -> bool:
        """Tell whether the call, made again as it was, gives the answer that it gave."""
        call = self.call
        if not self._agrees(call.leaves(call.inputs)):
            return False
        if not any(training for _, training in call.modes):
            return True
        rng, call.rng = call.rng, {}  # other random numbers: those that follow the last call
        try:
            return self._agrees(call.leaves(call.inputs))
        finally:
            call.rng = rng

    def _agrees(self, leaves: Leaves) -> bool:
        found = first_mismatch(self._expected, leaves, _AS_IT_WAS, self._tolerances, allows_nan=True)
        return found is None

    def _variants(self, stream: Stream) -> Iterator[tuple[Side, Variant]]:
        call, settings = self.call, self.settings
        chosen, left_out = sides(call.model, stream, settings)
        pads, too_long = sweep(call.model, stream, settings)
        self.outcome.skipped.extend(reason for reason in (left_out, too_long) if reason)
        if settings.position_ids == "always" and not can_take_positions(call, stream):
            self.outcome.skipped.append(
                f"{stream.main}: position_ids='always', and the forward takes no {stream.kind.positions} of its own"
            )
            return
        for side in chosen:
            for number in pads:
                yield side, padded_variant(call, stream, side, number, settings.filler)
        yield from rows_alone(call, stream)
        for side in chosen:
            ragged = ragged_variant(call, stream, side)
            if ragged is not None:
                yield side, ragged

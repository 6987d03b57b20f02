"""What the sister checks share: repeat, hold, and report the first difference."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.invariance.alignment import Alignment
from pytest_tfdebug.invariance.holding import NothingToCompareError, first_mismatch
from pytest_tfdebug.invariance.located import locate
from pytest_tfdebug.invariance.outcome import Mismatch, Outcome, Repetition
from pytest_tfdebug.invariance.streams import find_streams
from pytest_tfdebug.report.invariance import render_drift, render_headline, render_output, render_place, wrapped

if TYPE_CHECKING:
    from pytest_tfdebug.invariance.located import TracePair
    from pytest_tfdebug.invariance.observed import Leaves, ObservedCall
    from pytest_tfdebug.invariance.streams import Stream
    from pytest_tfdebug.parity.tolerance import Tolerances


@dataclass
class Sister:
    """One check of one observed call; to be used inside ``call.restored()``.

    Args:
        call: The call.
        tolerances: What is allowed.
        verdict: What a failure says of the model, ``is not invariant to its batch``.
        outcome: What has been found so far.
    """

    call: ObservedCall
    tolerances: Tolerances
    verdict: str
    outcome: Outcome = field(default_factory=Outcome)

    def expected(self) -> Leaves:
        """Return the output that the test saw; made again if the weights have changed since."""
        return self.call.output if self.call.are_weights_unchanged() else self.call.leaves(self.call.inputs)

    def draws_random_numbers(self) -> bool:
        """Tell whether the call's answer depends on random numbers, and say so among what was skipped."""
        call = self.call
        rng, call.rng = call.rng, {}
        torch.manual_seed(0)
        try:
            first = call.leaves(call.inputs)
            torch.manual_seed(1)
            second = call.leaves(call.inputs)
        finally:
            call.rng = rng
        if first_mismatch(first, second, unpadded(call), self.tolerances) is None:
            return False
        self.outcome.repeats = 0
        self.outcome.skipped.append(
            f"{call.name} draws random numbers that change its answer, as with dropout in training mode: call "
            "model.eval() first"
        )
        return True

    def hold(
        self, label: str, expected: Leaves, actual: Leaves, alignment: Alignment, *, with_caches: bool = True
    ) -> Mismatch | None:
        """Hold one output to another; nothing that could be compared is a reason, not a failure."""
        try:
            mismatch = first_mismatch(expected, actual, alignment, self.tolerances, with_caches=with_caches)
        except NothingToCompareError as error:
            self.outcome.skipped.append(f"{label}: {error}")
            return None
        self.outcome.repeats += 1
        return mismatch

    def fail_with_error(self, label: str, error: str) -> None:
        """Put an exception of the model into words."""
        lines = render_output(None, error)
        self.outcome.failure = "\n".join([render_headline(self.call.name, self.verdict, label), *lines])

    def fail(
        self, repetition: Repetition, mismatch: Mismatch, diagnosis: str, traces: TracePair | None = None
    ) -> Outcome:
        """Put a difference into words: what was repeated, the culprit, the tensors, the diagnosis."""
        located = locate(self.call, repetition, self.tolerances, traces)
        self.outcome.culprit = located.culprit
        self.outcome.failure = "\n".join(
            [
                render_headline(self.call.name, self.verdict, repetition.label),
                *render_place("The difference arises", located.culprit, located.parity, located.tokens, located.reason),
                *render_output(mismatch.leaf, mismatch.error),
                *render_drift(located.parity, located.culprit),
                *wrapped(f"Diagnosis: {diagnosis}"),
            ]
        )
        return self.outcome


def main_input(call: ObservedCall) -> tuple[str, torch.Tensor] | None:
    """Return name and tensor of the input that carries the batch; None when there is none."""
    streams, _ = find_streams(call.model, call.inputs)
    if streams:
        return streams[0].main, call.inputs[streams[0].main]
    return next(
        ((name, value) for name, value in call.inputs.items() if isinstance(value, torch.Tensor) and value.dim()), None
    )


def token_stream(call: ObservedCall) -> Stream | None:
    """Return the sequence that a call's output runs along: the decoder's, else the encoder's."""
    streams, _ = find_streams(call.model, call.inputs)
    by_name = {stream.kind.name: stream for stream in streams}
    return by_name.get("decoder") or by_name.get("encoder")


def unpadded(call: ObservedCall) -> Alignment:
    """Return the alignment of a call with one of equal shapes, only the test's real tokens compared."""
    stream = token_stream(call)
    if stream is not None and stream.axis == 1:
        return Alignment(stream.length, 0, stream.length, stream.batch, mask=stream.mask)
    main = main_input(call)
    return Alignment(1, 0, 1, main[1].shape[0] if main else 1)

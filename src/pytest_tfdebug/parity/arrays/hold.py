"""Hold arrays to a golden or trace: read, pair, compare the outputs by their elements, find where they part.

Of an engine that gives tokens and log-probabilities, hold these to the reference's logits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.data.arrays import Array
from pytest_tfdebug.errors import TFDebugError, counted
from pytest_tfdebug.parity.arrays.cause import find_interval, prove, vouched
from pytest_tfdebug.parity.arrays.given import as_tensor, labelled
from pytest_tfdebug.parity.arrays.output import Output
from pytest_tfdebug.parity.arrays.pairing import ReferenceValues, pair
from pytest_tfdebug.parity.arrays.result import ArraysReport, report_of
from pytest_tfdebug.tracing.values.precision import HALF_PRECISION, add_floors
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.values import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.tracing.trace import Trace


def hold_arrays(
    expected: Trace,
    arrays: object,
    tolerances: Tolerances,
    again: Callable[[], Rerun] | None = None,
    seconds: float | None = None,
) -> ArraysReport:
    """Hold arrays of any runtime, which are read one at a time, to a recorded forward, without names.

    ``again`` returns the reference's forward, to be run with changes where the arrays differ, for as many
    seconds of work, or as users wait; its own without one.

    Raises:
        TFDebugError: If there is no array, or the reference's values are not known.
    """
    values = expected.again.values() if expected.again is not None else None
    if values is None or not values.values:
        raise TFDebugError(
            "The golden holds no values of its forward, in which arrays are looked up: record it again.\n"
            "A trace has them as long as its model exists unchanged."
        )
    reference, held = ReferenceValues(values), list[Array]()
    records = {record.leaf: record for record in (expected.calls[0].outputs or () if expected.calls else ())}
    results = enumerate(values.results, -len(values.results))  # floors of outputs are the last
    outputs = [Output(records[leaf], index, values.floors, at) for at, (leaf, index) in results if leaf in records]
    for place, (label, tensor) in enumerate(labelled(arrays)):
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype in HALF_PRECISION and dtype not in values.floors and isinstance(expected.again, Rerun):
            add_floors(expected, values, dtype)
        held.append(Array(label, Fingerprint.of(tensor), tuple(tensor.shape), dtype))
        near = reference.partners(held[-1].print, dtype)[0]
        for output in outputs:
            output.offer(place, tensor, is_partner=output.value in near)
    if not held:
        raise TFDebugError("There is no array to compare: the runtime gave none.")
    pair(reference, held)
    wrong = _compare(reference, held, outputs, tolerances)
    interval = find_interval(reference, held, wrong)
    run = again() if interval is not None and again is not None else expected.again
    proof = None
    if interval is not None and isinstance(run, Rerun):
        proof = prove(reference, held, outputs, interval, run, seconds=seconds)
    return report_of(reference, held, outputs, interval, proof)


def _compare(reference: ReferenceValues, held: list[Array], outputs: list[Output], tolerances: Tolerances) -> set[int]:
    """Compare the outputs with the arrays that may be these; return those that differ."""
    said = {place for place, array in enumerate(held) if array.how != "says nothing"}
    maybe = (place for output in outputs for place, _ in output.candidates.values())
    said.update(place for place in maybe if held[place].vouches)  # nan is an answer too
    last = max(said, default=0)
    for output in outputs:
        output.compare(tolerances, last)
        if output.agrees and output.array is not None and held[output.array].is_open:
            held[output.array].become("crop" if output.crop else "value", (output.value,))
    right = vouched(reference, held)
    wrong = set()
    for output in outputs:
        if output.array is None or output.agrees:
            continue
        if output.value in right and output.value not in held[output.array].partners:
            output.array = output.comparison = None  # an array of its shape, and not this output
        else:
            wrong.add(output.value)
    if not wrong and not held[last].partners:  # what the runtime returns is not what it had before, and should be
        given_back = next((output for output in reversed(outputs) if output.differs_from(last, tolerances)), None)
        return set() if given_back is None else {given_back.value}
    for array in held:  # elements say more than moments
        if not wrong.isdisjoint(array.partners):
            array.how, array.partners = "", ()
    return wrong


@dataclass(frozen=True)
class LogprobsReport:
    """What an engine's tokens and log-probabilities are worth."""

    positions: int  # how many were compared
    flip: int | None  # the first of them whose token is not the reference's, though no tie
    lead: float  # by how much the reference's choice leads over the engine's there, in nats
    ties: int  # positions where two tokens lead by less than the margin, so that either is right
    greatest: float  # greatest difference of a log-probability from the reference's of the same token
    place: int  # where that is
    margin: float  # what was allowed

    @property
    def ok(self) -> bool:
        """Whether every token is the reference's, ties apart, and every log-probability within the margin."""
        return self.flip is None and self.greatest <= self.margin

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        off = f"log-probabilities are off by up to {self.greatest:.3g}, at position {self.place}"
        counts = f"{counted(self.positions, 'position')} compared, {counted(self.ties, 'near tie')} not counted"
        if self.flip is not None:
            lead = f"the reference's token leads by {self.lead:.3g}"
            return f"Token {self.flip} is not the reference's: {lead}.\n  Its {off}.\n  {counts}."
        return f"{'Parity' if self.ok else 'The tokens agree'}: {off} ({self.margin:g} allowed).\n  {counts}."


def hold_logprobs(logits: torch.Tensor, token_ids: Any, logprobs: Any, margin: float) -> LogprobsReport:  # noqa: ANN401
    """Hold tokens and log-probabilities, as ``check_logprobs`` takes them, to logits ``(batch, tokens, vocabulary)``.

    Raises:
        TFDebugError: If shapes do not fit, or a token is not in the vocabulary.
    """
    ids, given = as_tensor("token_ids", token_ids).long(), as_tensor("logprobs", logprobs).double()
    ids, given = (held[None] if held.dim() == 1 else held for held in (ids, given))
    expected = logits.double().log_softmax(-1).reshape(-1, *logits.shape[-2:])
    batch, tokens, size = expected.shape
    if ids.shape != given.shape or ids.shape[:-1] != (batch,) or not 0 < ids.shape[-1] <= tokens:
        raise TFDebugError(
            f"token_ids {tuple(ids.shape)} and logprobs {tuple(given.shape)} do not fit the reference's logits "
            f"{tuple(expected.shape)}: give one of each for every position, or for the last ones."
        )
    if not 0 <= int(ids.min()) <= int(ids.max()) < size:
        raise TFDebugError(f"token_ids holds {int(ids.max())}, and the reference has {size} tokens.")
    expected = expected[:, -ids.shape[1] :]
    first, second = expected.topk(2, -1).values.unbind(-1)
    theirs = expected.gather(-1, ids[..., None])[..., 0]
    lead, off = (first - theirs).flatten(), (given - theirs).abs().flatten().nan_to_num(nan=float("inf"))
    flip = next(iter((lead > margin).nonzero().flatten().tolist()), None)
    ties, place = int((first - second <= margin).sum()), int(off.argmax())
    return LogprobsReport(
        ids.numel(), flip, 0.0 if flip is None else float(lead[flip]), ties, float(off[place]), place, margin
    )

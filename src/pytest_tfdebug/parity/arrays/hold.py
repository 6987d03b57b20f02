"""Hold arrays to a golden or trace: read, pair, compare the outputs by their elements, find where they part.

Of an engine that gives tokens and log-probabilities, hold these to the reference's logits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import permutations
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.errors import TFDebugError, counted
from pytest_tfdebug.parity.arrays.cause import find_interval, prove, vouched
from pytest_tfdebug.parity.arrays.given import as_tensor, labelled
from pytest_tfdebug.parity.arrays.pairing import Array, ReferenceValues, pair
from pytest_tfdebug.parity.arrays.result import ArraysReport, report_of
from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.parity.tensors.tolerance import Tolerance
from pytest_tfdebug.records import LeafComparison, TensorRecord
from pytest_tfdebug.tracing.values.digest import places
from pytest_tfdebug.tracing.values.precision import HALF_PRECISION, add_floors
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.values import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.tracing.trace import Trace


#: Roundings of the reference in half precision that an output may be from it, by norm; ports come to 1.3 at most.
_ROUNDINGS = 1.75
#: Axes of a tensor of which every order is tried.
_MOST_AXES = 5


@dataclass
class Output:
    """One output of the reference."""

    record: TensorRecord  # what is kept of it
    value: int  # its index among the reference's values
    # name of a dtype -> numbers of which the one at a place is the norm of what rounding makes of it, over its own
    floors: dict[str, list[float]]
    place: int
    #: Arrays that may be it, with their places: those with its fingerprint, and of others the last of a shape.
    candidates: dict[object, tuple[int, torch.Tensor]] = field(default_factory=dict, repr=False)
    array: int | None = None  # place of the array that it was compared with
    comparison: LeafComparison | None = None
    crop: str = ""  # what part was compared, in words; empty for all of it

    @property
    def agrees(self) -> bool:
        """Whether it was compared, and is the same."""
        return self.comparison is not None and not self.comparison.problem

    def offer(self, place: int, tensor: torch.Tensor, *, is_partner: bool) -> None:
        """Keep an array if it may be this output; of those without its fingerprint, the last of each shape."""
        key = place if is_partner else tuple(tensor.shape)
        if next(_parts(self.record, tuple(tensor.shape)), None) is not None:
            self.candidates.pop(key, None)  # they stay in the order of their places
            self.candidates[key] = place, tensor.clone()

    def compare(self, tolerances: Tolerances, last: int) -> None:
        """Compare it with its candidates: the first that agrees, else the last, a whole one before a crop.

        Of those that differ only the last array of all counts as a crop, and only of places.
        """
        for place, tensor in self.candidates.values():
            for part in _parts(self.record, tuple(tensor.shape)):
                if self.agrees:
                    return
                found = part.compare(tensor, self.record, self._allowed(tensor, tolerances))
                is_crop_of_places = place == last and part.axis < len(self.record.shape) - 1 and self.comparison is None
                if found is not None and (not found.problem or not part.crop or is_crop_of_places):
                    self.array, self.comparison, self.crop = place, found, part.crop

    def _allowed(self, tensor: torch.Tensor, tolerances: Tolerances) -> Tolerance:
        """Return what is allowed of an array: in half precision by what rounding makes of the reference there."""
        dtype = str(tensor.dtype).removeprefix("torch.")
        share = _ROUNDINGS * self.floors[dtype][self.place] if dtype in self.floors else 0.0
        if not share:
            return tolerances.of("", dtype if dtype in HALF_PRECISION else self.record.dtype, self.record.floor)
        return Tolerance(share, share, scaled=True, noise=share, least_scale=0.0)

    def differs_from(self, place: int, tolerances: Tolerances) -> bool:
        """Hold it to the array at a place instead; tell whether that has its shape and differs."""
        tensor = dict(self.candidates.values()).get(place)
        part = None if tensor is None else next(_parts(self.record, tuple(tensor.shape)))
        if tensor is None or part is None or part.crop:
            return False
        self.array, self.crop = place, ""
        self.comparison = part.compare(tensor, self.record, self._allowed(tensor, tolerances))
        return not self.agrees


class _Piece(NamedTuple):
    """A part of an output, or all of it."""

    axis: int  # along which it is a part, from a start, with a length
    start: int
    length: int
    order: tuple[int, ...]  # of an array's axes in it
    crop: str = ""  # what it is in words; empty for the whole

    def compare(self, tensor: torch.Tensor, record: TensorRecord, allowed: Tolerance) -> LeafComparison | None:
        """Compare an array with the part of an output; None where nothing is kept of that."""
        shape = [self.length if axis == self.axis else length for axis, length in enumerate(record.shape)]
        actual = tensor.squeeze().permute(self.order).reshape(shape).to(getattr(torch, record.dtype))
        if self.crop:
            at, elements = self._kept(record)
            if not len(at):
                return None
            actual, record = actual.reshape(-1)[at], TensorRecord(record.leaf, tuple(at.shape), record.dtype, elements)
        given = TensorRecord(record.leaf, tuple(actual.shape), record.dtype, actual)
        return compare_leaf("output", given, record, allowed)

    def _kept(self, record: TensorRecord) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the places in the part whose elements are kept of an output, and these."""
        digest, every = record.digest, torch.arange(prod(record.shape))
        if record.tensor is not None:
            at, elements = every, record.tensor.reshape(-1)
        elif digest is not None:
            count = digest.elements.numel()
            at = torch.cat((every if count >= len(every) else places(len(every), count), digest.top_places))
            elements = torch.cat((digest.elements, digest.tops))
        else:
            return every[:0], every[:0]
        part = every.reshape(record.shape).narrow(self.axis, self.start, self.length).reshape(-1).contiguous()
        is_inside = torch.isin(at, part)
        return torch.searchsorted(part, at[is_inside]), elements[is_inside]


def _parts(record: TensorRecord, shape: tuple[int, ...]) -> Iterator[_Piece]:
    """Yield the parts of an output that an array of some shape can be, the likeliest first."""
    given = tuple(length for length in shape if length > 1)
    full = record.shape
    if not prod(full):
        return
    yield from (_Piece(0, 0, full[0] if full else 1, order) for order in _orders(given, full))
    if prod(given) >= prod(full):
        return
    for axis, length in enumerate(full):
        size, rest = divmod(prod(given), prod(full) // length)
        if not rest and 0 < size < length:
            for order in _orders(given, (*full[:axis], size, *full[axis + 1 :])):
                yield _Piece(axis, length - size, size, order, f"the last {size} of {length} along axis {axis}")
                yield _Piece(axis, 0, size, order, f"the first {size} of {length} along axis {axis}")


def _orders(given: tuple[int, ...], wanted: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield the orders of an array's axes that give it a shape; the one that it has, where that fits."""
    target = tuple(length for length in wanted if length > 1)
    if given == target:
        yield tuple(range(len(given)))
    elif sorted(given) == sorted(target) and len(given) <= _MOST_AXES:
        orders = permutations(range(len(given)))
        yield from (order for order in orders if tuple(given[axis] for axis in order) == target)


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

"""The change of the reference after which it gives what the arrays are: the cause, in a port whose code is unseen."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.arrays.interval import vouched
from pytest_tfdebug.parity.arrays.pairing import TOLERANCE
from pytest_tfdebug.parity.explain.culprit import places_of, sentence
from pytest_tfdebug.parity.explain.forward import Forward
from pytest_tfdebug.parity.explain.proof import PHASES, SECONDS, Proof
from pytest_tfdebug.parity.explain.search import Budget, Expected, Search, WantedOutput
from pytest_tfdebug.parity.values.matching import Matches
from pytest_tfdebug.parity.values.open_values import OpenValues
from pytest_tfdebug.parity.values.value_graph import Side
from pytest_tfdebug.tracing.values.tape import Tape
from pytest_tfdebug.values import Value, Values

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_tfdebug.parity.arrays.hold import Output
    from pytest_tfdebug.parity.arrays.interval import Interval
    from pytest_tfdebug.parity.arrays.pairing import Array, ReferenceValues
    from pytest_tfdebug.records import Call, SourceRange
    from pytest_tfdebug.tracing.values.rerun import Rerun


class ArraysProof(NamedTuple):
    """A change of the reference that was tried, and after which it gives what the arrays are."""

    told: str  # the change, in a sentence
    call: Call  # whose code does it
    lines: SourceRange | None  # the lines that are changed


class _Within(OpenValues):
    """The open values of a reference; the change may also be where a step of the interval ends.

    Few arrays tell little of what stands before these, so that the first open value is often none that is wrong.
    """

    ends: Sequence[int] = ()

    def first(self, among: Collection[int] | None = None) -> list[Value]:
        """Return the values computed from matched ones alone, and the ends."""
        found = super().first(among)
        return found if among is not None else [*found[:1], *(self._values[index] for index in self.ends)]


def prove(
    reference: ReferenceValues,
    arrays: Sequence[Array],
    outputs: Sequence[Output],
    interval: Interval,
    again: Rerun,
) -> ArraysProof | None:
    """Search for the change of one place of the reference that gives the arrays' outputs.

    ``again`` is its forward; there is no proof if it is not the one that was recorded.
    """
    held = [(output, output.array) for output in outputs if output.array is not None and not output.crop]
    tape = Tape()
    table = again.values([output.record.tensor for output in outputs], tape=tape) if held else None
    if table is None or [it.operator for it in table.values] != [it.operator for it in reference.values]:
        return None
    mine, others = Side(table), Side(Values([_as_value(*each) for each in enumerate(arrays)]))
    matches, known = Matches(mine, others), frozenset(table.parameters)
    expected = [
        Expected((output.value,), (WantedOutput(arrays[at].print, dict(output.candidates.values())[at]),))
        for output, at in held
    ]
    wrong = {output.value for output in outputs if not output.agrees}
    opened = _Within(
        *(mine, matches, TOLERANCE, [output.value for output, _ in held]),
        known=known,
        right=vouched(reference, arrays, wrong),
    )
    opened.ends = [max(step) for strength, step in interval.steps.items() if step and strength != "before"]
    forward = Forward(mine, tape)
    share = min(1.0, len(arrays) / sum(value.origin == "operator" for value in mine.values))
    search = Search(forward, matches, others.values, Matches(others, mine), opened, expected, share)
    budget = Budget(SECONDS)
    mends = next(filter(None, (search.run(most, budget, share) for share, most in PHASES)), None)
    if mends is None:
        return None
    proof = Proof(forward, tuple(mends), is_reverse=True)
    places = places_of(proof, known, "")
    return ArraysProof(sentence(proof, places), places[0].finding.call, places[0].lines)


def _as_value(place: int, array: Array) -> Value:
    return Value(place, "", "input", array.label, None, (), (), array.shape, array.dtype, array.print)

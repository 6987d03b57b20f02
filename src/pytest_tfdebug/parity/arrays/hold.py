"""Hold arrays to a golden or trace: read, pair, compare the outputs, find where they part."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.arrays.given import labelled
from pytest_tfdebug.parity.arrays.interval import find_interval, vouched
from pytest_tfdebug.parity.arrays.outputs import Output
from pytest_tfdebug.parity.arrays.pairing import Array, pair
from pytest_tfdebug.parity.arrays.proof import prove
from pytest_tfdebug.parity.arrays.reference import ReferenceValues
from pytest_tfdebug.parity.arrays.result import ArraysReport, report_of
from pytest_tfdebug.tracing.values.floors import HalfPrecision, add_floors
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.values import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.values import Values


def hold_arrays(
    expected: Trace, arrays: object, tolerances: Tolerances, again: Callable[[], Rerun] | None = None
) -> ArraysReport:
    """Hold arrays of any runtime, which are read one at a time, to a recorded forward, without names.

    ``again`` returns the reference's forward, to be run with changes where the arrays differ; its own without one.

    Raises:
        TFDebugError: If there is no array, or the reference's values are not known.
    """
    values = expected.again.values() if expected.again is not None else None
    if values is None or not values.values:
        raise TFDebugError(
            "The golden holds no values of its forward, in which arrays are looked up: record it again.\n"
            "A trace has them as long as its model exists unchanged."
        )
    reference, held, outputs = ReferenceValues(values), list[Array](), _outputs(expected, values)
    for place, (label, tensor) in enumerate(labelled(arrays)):
        dtype = str(tensor.dtype).removeprefix("torch.")
        if dtype in get_args(HalfPrecision) and dtype not in values.floors and isinstance(expected.again, Rerun):
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
    proof = prove(reference, held, outputs, interval, run) if interval is not None and isinstance(run, Rerun) else None
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


def _outputs(expected: Trace, values: Values) -> list[Output]:
    records = {record.leaf: record for record in (expected.calls[0].outputs or () if expected.calls else ())}
    places = enumerate(values.results, -len(values.results))  # floors of outputs are the last
    return [Output(records[leaf], index, values.floors, place) for place, (leaf, index) in places if leaf in records]

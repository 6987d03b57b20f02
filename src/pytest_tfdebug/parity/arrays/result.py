"""What holding arrays to a reference gives: the report, with the interval as lines of the reference."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_tfdebug.data.arrays import ArraysResult, IntervalStep, ReferenceStatement
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.find.values import lines_of
from pytest_tfdebug.parity.result import ParityReport
from pytest_tfdebug.parity.settle import settled
from pytest_tfdebug.records import Coverage, SourceRange
from pytest_tfdebug.tracing.values.slicing import text_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    import pandas as pd

    from pytest_tfdebug.data.arrays import Array
    from pytest_tfdebug.parity.arrays.cause import ArraysProof, Interval
    from pytest_tfdebug.parity.arrays.output import Output
    from pytest_tfdebug.parity.arrays.pairing import ReferenceValues
    from pytest_tfdebug.records import Kind
    from pytest_tfdebug.report.check_text import CheckText
    from pytest_tfdebug.values import Value

#: Columns of a report's table.
_COLUMNS = ("label", "shape", "dtype", "how", "distance")


@dataclass(frozen=True, repr=False)
class ArraysReport(ArraysResult, ParityReport):
    """A comparison of arrays without names, to be shown; see :class:`ParityReport`."""

    def check_text(self) -> CheckText:
        """Return the parts of the report."""
        from pytest_tfdebug.report.comparison import arrays_text

        return arrays_text(self)

    def to_dataframe(self) -> pd.DataFrame:
        """Return a row for each array: label, shape, dtype, how it was paired, and how far it is from its partner."""
        from pytest_tfdebug.report.tables import table

        return table([(it.label, it.shape, it.dtype, it.how, it.distance) for it in self.arrays], _COLUMNS)


def report_of(
    reference: ReferenceValues,
    arrays: list[Array],
    outputs: list[Output],
    interval: Interval | None,
    proof: ArraysProof | None = None,
) -> ArraysReport:
    """Return the report on paired arrays and compared outputs; without an interval nothing is open."""
    compared = [(output.comparison, output.crop) for output in outputs if output.comparison is not None]
    calls = {call.index for call in reference.table.calls}
    seen = {reference.at(index).call for array in arrays for index in array.partners}
    report = ArraysReport(
        None,
        [],
        [],
        sum(bool(array.partners) for array in arrays),
        coverage=Coverage(len(calls & seen), len(calls), root=bool(compared)),
        by_values=True,
        arrays=arrays,
        outputs=compared,
        uncompared=[output.record.leaf for output in outputs if output.comparison is None],
    )
    if interval is None:
        return report
    steps = [
        IntervalStep(strength, tuple(_statements(reference, found, interval.bound)))
        for strength, found in interval.steps.items()
        if found
    ]
    claim = _claim(reference, interval)
    if proof is not None:
        lines = proof.lines or claim.reference
        if lines is not None:
            lines = _with_code(lines)
            steps.insert(0, IntervalStep("proved", (ReferenceStatement(lines),)))
        claim = replace(
            claim,
            evidence=Evidence.INFERRED_PROOF,
            path=proof.call.path,
            class_name=proof.call.class_name,
            reference=lines,
            proved=f"Proved: {proof.told}.",
        )
    return replace(report, culprit=settled(claim), steps=steps, first=interval.first, factor=interval.factor)


def _claim(reference: ReferenceValues, interval: Interval) -> Claim:
    call, last = reference.call_of(reference.at(interval.bound)), interval.last
    own = next((found.lines for found in _statements(reference, [interval.bound], interval.bound)), call.source)
    label = f"{interval.first.label!r}" if interval.first is not None else "No array"
    proved = f"{label} is {interval.factor:.6g} times what these lines compute." if interval.factor else ""
    kind: Kind = "module" if call.index not in reference.callers else "glue"
    found = "No array before it is a value of the reference."
    if last is not None:
        is_value = f"{_told(reference, last.partners[0])} (distance {last.distance:.1e})"
        found = f"{last.label!r} is the last array before it that was found: {is_value}."
    why = f"{found}\nThe first value that was not found: {_told(reference, interval.bound)}."
    return Claim(call.path, kind, Evidence.NO_ARRAY, call.class_name, why, reference=own, proved=proved)


def _told(reference: ReferenceValues, index: int) -> str:
    value = reference.at(index)
    call = reference.call_of(value)
    is_output = index in (other for _, other in reference.table.outputs.get(call.index, ()))
    what = "the output" if is_output else f"{value.operator or value.origin} {value.name}".rstrip()
    return f"{what} of {call.name}, shape {value.shape}"


def _statements(reference: ReferenceValues, indices: Sequence[int], bound: int) -> Iterator[ReferenceStatement]:
    """Yield the statements that asked for some values, each once; those of constants last."""
    around = {call.index for call in reference.around(reference.at(bound).call)}
    found: dict[SourceRange, ReferenceStatement] = {}
    for index in sorted(indices, key=lambda index: (not reference.weighted[index], index)):
        shown = _lines(reference, reference.at(index), around)
        if shown:
            found.setdefault(shown[0], ReferenceStatement(shown[0], tuple(shown[1:])))
    yield from found.values()


def _lines(reference: ReferenceValues, value: Value, around: Collection[int]) -> list[SourceRange]:
    """Return the lines that led to a value, innermost first.

    How a constant is made is told by the line that a reader of the bound's forward and of those around it comes upon.
    """
    lines = [lines_of(line) for line in value.lines]
    calls = [*reference.around(value.call)]
    if not reference.weighted[value.index]:
        inside = [call for call in calls if call.index not in around]
        lines, calls = ([], inside[-1:]) if inside else (lines[-1:], [])
    elif value.call in reference.callers and lines:
        calls = []
    called = [call.called_at for call in calls if call.called_at is not None]
    return [_with_code(each) for each in lines + called[:1]]


def _with_code(lines: SourceRange) -> SourceRange:
    return SourceRange(lines.file, lines.first, lines.last, lines.code or text_of(lines.file, lines.first, lines.last))

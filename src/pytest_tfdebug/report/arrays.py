"""The text of a comparison of arrays: the lines of the reference between what is there and what is not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.report.check_text import CheckText, next_step
from pytest_tfdebug.report.parity import code_of, describe

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.arrays.result import ArrayPlace, ArraysReport, IntervalStep

#: Statements that are shown of each strength, and lines of each.
_STATEMENTS, _CODE = 8, 3
#: Strength -> what is said of its lines.
_TOLD = {
    "proved": "reference, does what the arrays do once this is changed:",
    "before": "before that, only inferred or only moved (a norm hides a scale, a permutation keeps the numbers):",
    "statement": "reference, does what no array shows:",
    "module": "or later, up to where the reference's next module hands on a tensor of this size:",
    "latest": "or later still, up to the last value that the array can stand for:",
}


def arrays_text(report: ArraysReport) -> CheckText:
    """Return the text of a report."""
    around = (*_around(report), *(f"Note: {note}" for note in report.notes), *report.facts)
    culprit = report.culprit
    if culprit is None:
        return CheckText(
            f"Parity: {report.tensors} of {counted(len(report.arrays), 'array')} are values of the reference, and "
            "nothing that its outputs need is missing.",
            circumstances=around,
        )
    place = f"{culprit.reference} in " if culprit.reference else ""
    label = repr(report.first.label) if report.first is not None and report.first.label else "no array"
    what = "is the first array that differs" if label != "no array" else "shows what these lines compute"
    return CheckText(
        f"{place}{culprit.path} ({culprit.class_name}): {label} {what}",
        tuple(_code(report.steps)),
        (*([culprit.proved] if culprit.proved else []), *_why(report.last, report.first)),
        tuple(next_step(report.advice)),
        tuple(_figures(report)),
        circumstances=around,
        repro=tuple(report.repro),
    )


def _code(steps: list[IntervalStep]) -> Iterator[str]:
    for step in steps:
        yield f"  {_TOLD[step.strength]}"
        for lines, via in step.statements[:_STATEMENTS]:
            yield f"    {lines}{f', called at {via[-1]}' if via else ''}"
            text = code_of(lines)
            yield from (f"      {line}" for line in text[:_CODE])
            if len(text) > _CODE:
                yield "          ..."
        if len(step.statements) > _STATEMENTS:
            yield f"    and {counted(len(step.statements) - _STATEMENTS, 'statement')} more"


def _why(last: ArrayPlace | None, first: ArrayPlace | None) -> Iterator[str]:
    if last is not None:
        yield f"{last.label!r} is the last before it that is there: {last.value} (distance {last.distance:.1e})."
    else:
        yield "No array before it is a value of the reference."
    if first is not None:
        yield f"The first value that is not there: {first.value}."


def _figures(report: ArraysReport) -> Iterator[str]:
    for leaf, crop in report.outputs:
        if leaf.problem:
            yield f"Output {leaf.leaf}{f', {crop}' if crop else ''}: shape {leaf.shape}, {leaf.dtype}"
            yield from (f"  {line}" for line in describe(leaf))


def _around(report: ArraysReport) -> Iterator[str]:
    said = [array for array in report.arrays if array.how != "says nothing"]
    yield f"{report.tensors} of {counted(len(said), 'array')} are values of the reference."
    alone = [array.label for array in report.unpaired_arrays]
    if alone:
        yield f"Without partner: {listed(alone)}."
    if len(said) < len(report.arrays):
        left = counted(len(report.arrays) - len(said), "array")
        yield f"Not compared: {left} of one number throughout, or of fewer than 4 elements."
    for leaf, crop in report.outputs:
        if crop:
            yield f"Of output {leaf.leaf} only {crop} was compared."
    if report.uncompared:
        yield f"Outputs that were not compared by elements: {listed(report.uncompared)}."

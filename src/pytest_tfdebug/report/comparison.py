"""The text of a comparison: of two forwards, or of arrays."""

from __future__ import annotations

import linecache
import re
from math import isnan
from pathlib import PurePath
from textwrap import dedent
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.records import FAILING, as_they_ended
from pytest_tfdebug.report.check_text import CheckText, next_step

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_tfdebug.data.arrays import ArraysResult, IntervalStep
    from pytest_tfdebug.data.comparison import ComparisonResult
    from pytest_tfdebug.records import CallComparison, ChangeRecord, Culprit, Divergence, LeafComparison, SourceRange


#: Rows of the drift table in the short form; with the rest the report stays under 40 lines.
_DRIFT_ROWS = 16
#: Lines of code that are shown of each side.
_CODE = 8
#: Problems of outputs that the drift table shows.
_SHOWN = ("", *FAILING)
#: Kind of a culprit -> what is wrong, where nothing more is known.
_WHAT = {
    "module": "gives another output for the same inputs",
    "glue": "goes wrong in these lines of its forward",
    "not-called": "is never called",
    "extra-call": "is called, and should not be",
    "inputs": "was given other inputs",
    "dtype": "computes in another dtype",
    "mode": "is in another mode",
    "compiler": "is compiled into something else",
    "weights": "has other weights",
    "random": "draws random numbers",
    "gradient": "spoils a gradient here",
    "step": "makes another step",
    "loss": "gives another loss",
}
#: What is said of every culprit that is not certain.
UNSURE = "Not certain: the bug is in these lines or in their inputs."
_LAYER = re.compile(r"\.\d+$|^\d+$")


def parity_text(report: ComparisonResult) -> CheckText:
    """Return the text of a report."""
    culprit = report.culprit
    around = (*(f"Note: {note}" for note in report.notes), *report.facts)
    rename = rename_argument(report.suggested)
    names = ("The modules have other names here; they were compared under", f"  {rename}") if rename else ()
    if culprit is None:
        outputs = [f"Outputs: {'; '.join(report.output_notes)}."] if report.output_notes else []
        told = (*outputs, *([f"Noise: {report.noise}"] if report.noise else []))
        calls = sum(item.expected is not None for item in report.calls)
        answer = report.agreement or f"Parity: {report.tensors} tensors of {calls} calls agree."
        return CheckText(answer, why=told, advice=names, circumstances=around, repro=tuple(report.repro))
    what = culprit.wrong or _WHAT[culprit.kind] + (f": {culprit.weights[0]}" if culprit.weights else "")
    why = culprit.why[:1].upper() + culprit.why[1:]
    where = f"{culprit.source} in " if culprit.source else ""
    ranks = f" {culprit.ranks}" if culprit.ranks else ""
    count = len(report.divergences)
    about = " ".join(filter(None, (f"{report.subject}.", told_part(report), why)))
    reasons = (about, report.unused, how_sure(culprit), report.told_of_search)
    return CheckText(
        f"{where}{culprit.path} ({culprit.class_name}){ranks}: {what}",
        (*_others(report), *_code(culprit)),
        (*report.between, *filter(None, reasons)),
        (*next_step(report.advice), *names),
        tuple(facts_of(culprit.divergence) if culprit.divergence is not None else ()),
        tuple(drift_table(report.calls, culprit, count, verbose=False)),
        (*drift_table(report.calls, culprit, count, verbose=True), *_all_divergences(report.divergences)),
        around,
        tuple(report.repro),
    )


def told_part(report: ComparisonResult) -> str:
    """Say what alone was looked into, and what not; empty for the whole."""
    rest = report.rest or "the others were not looked into"
    return f"This is about {report.part}, which differ as well; {rest}." if report.part else ""


def rename_argument(rules: Mapping[str, str]) -> str:
    """Return the argument that gives a port's modules the reference's names; empty if none was tried."""
    return "rename={" + ", ".join(f'"{own}": "{expected}"' for own, expected in rules.items()) + "}" if rules else ""


def _code(culprit: Culprit) -> Iterator[str]:
    inside = f" in {culprit.function}" if culprit.function else ""
    for side, lines in (
        (f"here, {culprit.source}{inside}{_called(culprit)}", culprit.source),
        (f"reference, {culprit.reference}", culprit.reference),
    ):
        if lines is not None:
            yield f"  {side}:"
            yield from (f"      {line}" for line in code_of(lines)[:_CODE])


def _others(report: ComparisonResult) -> Iterator[str]:
    """Yield how many faults there are, then a line for each but the first; nothing where one was found."""
    others = report.culprits[1:]
    if not others:
        return
    told, first = report.told_of_faults, report.culprits[0]
    mend = f" This one: {_mend(first.changes[0])}." if first.changes and not first.proved else ""
    yield f"  {len(others) + 1} faults{f': {told}' if told else ''}.{mend} Behind this one:"
    for each in others:
        change = next(iter(each.changes), None)
        what = each.wrong or _WHAT[each.kind]
        mend = "" if change is None else f"; {_mend(change)}{_elsewhere(change, each)}"
        like = f" (reference: {each.reference})" if each.reference is not None else ""
        yield f"    {f'{each.source} in ' if each.source else ''}{each.path} ({each.class_name}): {what}{mend}{like}"


def _mend(change: ChangeRecord) -> str:
    """Return what mends a fault, in a few words."""
    if change.side == "reference" and change.kind == "left out":
        return f"lacks {change.old} of {PurePath(change.file).name}:{change.line}"
    there = "" if change.side == "port" else " in the reference"
    if change.kind == "weights":
        return f"{change.new}{there}"
    if not change.old:
        return f"{f'times {change.new}' if change.kind == 'number' else f'{change.new} added'}{there}"
    return f"{f'{change.new} instead of' if change.new else 'without'} {change.old}{there}"


def _elsewhere(change: ChangeRecord, fault: Culprit) -> str:
    """Say where the line of a change of the port is, if it is none of the fault's."""
    lines = fault.source
    if (
        change.side != "port"
        or lines is None
        or (lines.file == change.file and lines.first <= change.line <= lines.last)
    ):
        return ""
    return f" at {PurePath(change.file).name}:{change.line}"


def _called(culprit: Culprit) -> str:
    """Say which lines lead to those of a culprit, in a few words; nothing where they stand in the forward itself."""
    known = culprit.source.file if culprit.source is not None else ""
    places = [f":{lines.first}" if lines.file == known else str(lines) for lines in culprit.callers]
    return f", called at {' and '.join(places)}" if places else ""


def how_sure(culprit: Culprit) -> str:
    """Return what proves a culprit, or that nothing does; empty where it was compared on all sides."""
    return f"Proved: {culprit.proved}." if culprit.proved else "" if culprit.certain else UNSURE


def code_of(lines: SourceRange) -> list[str]:
    """Return some lines of source without their common indentation; empty if they cannot be read."""
    text = lines.code or "".join(linecache.getline(lines.file, number) for number in range(lines.first, lines.last + 1))
    return dedent(text).rstrip().splitlines()


def facts_of(divergence: Divergence) -> list[str]:
    """Return which tensor diverges, and by how much, in lines."""
    leaf = divergence.comparison
    which = f"{leaf.direction} {leaf.leaf}".rstrip() + " of"
    if leaf.direction == "write":
        which = f"{leaf.leaf} as written by"
    tensor = f"Tensor: {which} {divergence.name!r}, shape {leaf.shape}, {leaf.dtype}"
    return [f"  {line}" for line in (tensor, *describe(leaf))]


def describe(leaf: LeafComparison) -> Iterator[str]:
    """Yield what is wrong with one tensor, in the words of ``torch.testing.assert_close``."""
    if leaf.problem == "shape":
        yield f"Shapes differ: {leaf.shape}, expected {leaf.expected.shape if leaf.expected else ()}"
    elif leaf.problem == "dtype":
        yield f"Dtypes differ: {leaf.dtype}, expected {leaf.expected.dtype if leaf.expected else ''}"
    elif leaf.problem == "missing":
        yield f"The tensor is missing: expected shape {leaf.shape}, {leaf.dtype}"
    elif leaf.problem == "extra":
        yield "The expected forward has no such tensor"
    metrics = leaf.metrics
    if metrics is None:
        return
    share, is_estimate = metrics.mismatched / metrics.total, metrics.sampled > 0
    seen = f", estimated from the {metrics.sampled} that the golden keeps" if is_estimate else ""
    yield f"Mismatched elements: {'about ' * is_estimate}{metrics.mismatched} / {metrics.total} ({share:.1%}){seen}"
    place = f"at index {metrics.max_abs_index}" if metrics.max_abs_index or not is_estimate else "beside those kept"
    yield (
        f"Greatest absolute difference: {'at least ' * is_estimate}{metrics.max_abs:.3g} {place} "
        f"(up to {metrics.allowed:.1e} allowed)"
    )
    if not isnan(metrics.max_rel):
        yield f"Greatest relative difference: {metrics.max_rel:.3g} at index {metrics.max_rel_index}"
    by_sums = ", estimated from sums over all elements" if is_estimate else ""
    yield f"RMSE {metrics.rmse:.3g}, relative L2 {metrics.relative_l2:.3g}, cosine {metrics.cosine:.6f}{by_sums}"
    if metrics.non_finite_expected or metrics.non_finite_actual:
        yield f"Non-finite elements: {metrics.non_finite_actual}, expected {metrics.non_finite_expected}"


def drift_table(calls: Sequence[CallComparison], culprit: Culprit, count: int, *, verbose: bool) -> Iterator[str]:
    """Yield the error along depth: the culprit's neighbours and every layer; every call when ``verbose``."""
    measured = [item for item in as_they_ended(calls) if item.outputs and _worst(item).problem in _SHOWN]
    if not measured:
        return
    rows = measured if verbose else _selected(measured, culprit)
    width = max(len(item.call.name) for item in rows)
    yield f"  Drift ({counted(count, 'tensor')} outside tolerance):"
    yield f"    {'output of':<{width}}  relative L2   max abs"
    for item in rows:
        leaf = _worst(item)
        told = f"{leaf.problem or 'equal':>11}"
        if leaf.metrics:
            told = f"{leaf.metrics.relative_l2:11.2e}  {leaf.metrics.max_abs:8.2e}"
        elif leaf.problem:
            told += " " * 10
        mark = "  <- outside tolerance" if leaf.problem else ""
        yield f"    {item.call.name:<{width}}  {told}{mark}"


def _worst(item: CallComparison) -> LeafComparison:
    return next((leaf for leaf in item.outputs if leaf.problem in FAILING), item.outputs[0])


def _selected(measured: list[CallComparison], culprit: Culprit) -> list[CallComparison]:
    first = next((place for place, item in enumerate(measured) if _worst(item).problem), 0)
    near = range(max(0, first - 2), min(len(measured), first + 2))
    layers = [place for place, item in enumerate(measured) if _LAYER.search(item.call.path) or item.call.parent is None]
    if len(layers) > _DRIFT_ROWS - len(near):
        after = [place for place in layers if place >= first]
        room = _DRIFT_ROWS - len(near) - 1
        step = max(1, -(-len(after) // room))
        layers = [*after[::step], layers[-1]]
    own = [place for place, item in enumerate(measured) if item.call.path == culprit.path][:1]
    return [measured[place] for place in sorted({*near, *layers, *own})]


def _all_divergences(divergences: Sequence[Divergence]) -> Iterator[str]:
    yield "  Every tensor outside tolerance, in the order of computation:"
    for item in divergences:
        yield f"    {item.name} {item.direction} {item.leaf}: {'; '.join(describe(item.comparison))}"


#: Statements that are shown of each strength, and lines of each.
_STATEMENTS, _LINES = 8, 3
_NO_ARRAY = "no array shows what these lines compute"
#: Strength -> what is said of its lines.
_TOLD = {
    "proved": "reference, gives what the arrays give with this change:",
    "before": "before that, only inferred or only moved (a norm hides a scale, a permutation keeps the numbers):",
    "statement": "reference, does what no array shows:",
    "module": "or later, up to where the reference's next module returns a tensor of this size:",
    "latest": "or later still, up to the last value that the array can stand for:",
}


def arrays_text(report: ArraysResult) -> CheckText:
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
    told = f"{report.first.label!r} is the first array that differs" if report.first is not None else _NO_ARRAY
    return CheckText(
        f"{place}{culprit.path} ({culprit.class_name}): {told}",
        tuple(_statements(report.steps)),
        (*([culprit.proved] if culprit.proved else []), *culprit.why.splitlines()),
        tuple(next_step(report.advice)),
        tuple(_figures(report)),
        circumstances=around,
        repro=tuple(report.repro),
    )


def _statements(steps: list[IntervalStep]) -> Iterator[str]:
    for step in steps:
        yield f"  {_TOLD[step.strength]}"
        for lines, via in step.statements[:_STATEMENTS]:
            yield f"    {lines}{f', called at {via[-1]}' if via else ''}"
            text = code_of(lines)
            yield from (f"      {line}" for line in text[:_LINES])
            if len(text) > _LINES:
                yield "          ..."
        if len(step.statements) > _STATEMENTS:
            yield f"    and {counted(len(step.statements) - _STATEMENTS, 'statement')} more"


def _figures(report: ArraysResult) -> Iterator[str]:
    for leaf, crop in report.outputs:
        if leaf.problem:
            yield f"Output {leaf.leaf}{f', {crop}' if crop else ''}: shape {leaf.shape}, {leaf.dtype}"
            yield from (f"  {line}" for line in describe(leaf))


def _around(report: ArraysResult) -> Iterator[str]:
    said = [array for array in report.arrays if array.how != "says nothing"]
    yield f"{report.tensors} of {counted(len(said), 'array')} are values of the reference."
    alone = [array.label for array in report.arrays if array.is_open]
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

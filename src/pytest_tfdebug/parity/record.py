"""A comparison as the record of a finished check, which pages and files are made from."""

from __future__ import annotations

from dataclasses import fields
from shlex import quote
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.check_record import CheckRecord
from pytest_tfdebug.parity.forward_record import forward_record
from pytest_tfdebug.parity.tensors.outputs import shown
from pytest_tfdebug.records import CulpritRecord
from pytest_tfdebug.report.comparison import facts_of, how_sure, told_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.records import Culprit


def culprit_record(culprit: Culprit | None, *, is_listed: bool = False) -> CulpritRecord | None:
    """Return a culprit without its tensor, which is told in text; in a list without a sentence on its proof.

    ``proved`` says that already, and a list of four faults would be half as long again.
    """
    if culprit is None:
        return None
    given = {each.name: getattr(culprit, each.name) for each in fields(CulpritRecord)}
    tensor, *figures = facts_of(culprit.divergence) if culprit.divergence is not None else ("",)
    return CulpritRecord(
        **{
            **given,
            "why": culprit.why if is_listed and culprit.proved else f"{culprit.why} {how_sure(culprit)}".strip(),
            "tensor": tensor.strip().removeprefix("Tensor: "),
            "figures": tuple(figure.strip() for figure in figures),
        }
    )


def compared(report: ParityReport) -> dict[str, Any]:
    """Return what a comparison gives to the record of its check, whatever asked for it."""
    return {
        "culprit": culprit_record(report.culprit),
        "culprits": tuple(filter(None, (culprit_record(each, is_listed=True) for each in report.culprits))),
        "coverage": report.coverage,
        "worst": report.worst,
        "search": report.search,
        "tensors": report.tensors,
        "notes": tuple(filter(None, (told_part(report), report.unused, report.told_of_search, *report.notes))),
    }


def parity_record(test: str, report: ParityReport, *, in_detail: bool, **given: Any) -> CheckRecord:  # noqa: ANN401
    """Return the record of a check against a golden."""
    return CheckRecord(
        test,
        "parity",
        "passed" if report.ok else "failed",
        report.check_text().answer,
        advice=report.advice,
        command="" if report.ok else next_command(test, report),
        outputs=tuple(report.output_notes),
        distances=tuple(_distances(report)),
        rename=dict(report.suggested),
        changed=tuple(report.changed),
        weights=tuple(report.other_weights),
        text=str(report) if in_detail else "",
        forward=forward_record(report, report.explained, report.elements) if in_detail else None,
        **compared(report),
        **given,
    )


def _distances(report: ParityReport) -> Iterator[str]:
    """Yield how far each output is from the reference's, and what that may be."""
    for leaf in (leaf for item in report.calls if item.call.parent is None for leaf in item.outputs):
        expected, metrics = leaf.expected, leaf.metrics
        if expected is None or not leaf.is_measured:
            continue
        name = shown(expected.leaf) or "the output"
        floor = "" if expected.floor is None else f"; its floor is {expected.floor:.2g}, relative"
        apart = "equal" if metrics is None else f"{metrics.max_abs:.2g} apart where {metrics.allowed:.2g} is allowed"
        yield f"{name}: {apart}{floor}"


def next_command(test: str, report: ParityReport) -> str:
    """Return what to type after a failed check: with a diff, what applies it; then the test again."""
    again = f"pytest {quote(test)}"
    has_patch = any(each.patch for each in report.culprits)
    return f"{again} --tf-patch=tfdebug.patch; git apply tfdebug.patch; {again}" if has_patch else again

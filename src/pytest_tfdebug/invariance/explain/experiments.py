"""What further repetitions say about a leak: from how many pads on, whether content, mask or positions matter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.invariance.alignment import Alignment
from pytest_tfdebug.invariance.padding import mask_of, padded, rows_of
from pytest_tfdebug.invariance.sides import sweep
from pytest_tfdebug.invariance.variants import can_take_positions, padded_variant

if TYPE_CHECKING:
    from typing import Any

    from pytest_tfdebug.invariance.outcome import Repetition
    from pytest_tfdebug.invariance.padding_check import Leak, PaddingCheck
    from pytest_tfdebug.invariance.settings import Side

#: The first number of pads is looked for one by one up to here.
_MOST_STEPS = 64


@dataclass(frozen=True)
class Evidence:
    """What was observed about a leak.

    Args:
        failing: Numbers of pads that change the answer, ascending; empty for rows of a batch.
        passing: Numbers of pads that do not.
        content_matters: Other tokens at the pads change the answer; None where that was not tried.
        mask_matters: Switching the mask on at the pads changes the answer; None where there is no mask.
        positions_help: Position ids built from the mask make the answer right.
        batch_matters: A row's answer depends on its batch without any change of padding.
        ones_matter: A mask of ones changes the answer of the call that was made without a mask.
        has_nan: The repeated output has NaN where the original has none.
    """

    failing: tuple[int, ...] = ()
    passing: tuple[int, ...] = ()
    content_matters: bool | None = None
    mask_matters: bool | None = None
    positions_help: bool = False
    batch_matters: bool = False
    ones_matter: bool = False
    has_nan: bool = False


def gather(check: PaddingCheck, leak: Leak) -> tuple[Evidence, Repetition]:
    """Return what can be observed about a leak, and the repetition with the fewest pads that shows it."""
    failing, passing = _profile(check, leak)
    smallest = leak.repetition
    if failing and failing[0] != smallest.pads:
        smallest = _of_pads(check, leak, failing[0])
    metrics = leak.mismatch.leaf.metrics if leak.mismatch.leaf else None
    has_nan = metrics is not None and metrics.non_finite_actual > metrics.non_finite_expected
    if leak.mismatch.error:
        return Evidence(failing, passing), smallest
    evidence = Evidence(
        failing,
        passing,
        _content_matters(check, leak, smallest),
        _mask_matters(check, leak, smallest),
        _positions_help(check, leak),
        _batch_matters(check, leak, smallest),
        _ones_matter(check, leak, smallest),
        has_nan,
    )
    return evidence, smallest


def _of_pads(check: PaddingCheck, leak: Leak, pads: int) -> Repetition:
    side: Side = "left" if leak.repetition.side == "left" else "right"
    variant = padded_variant(check.call, leak.stream, side, pads, check.settings.filler)
    return variant(leak.has_positions)


def _profile(check: PaddingCheck, leak: Leak) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the numbers of pads that change the answer and those that do not, the first one found step by step."""
    if leak.repetition.alignment.rows is not None:
        return (), ()
    pads, _ = sweep(check.call.model, leak.stream, check.settings)
    results = {number: check.run(leak.stream, _of_pads(check, leak, number)) is not None for number in pads}
    first = min((number for number, fails in results.items() if fails), default=leak.repetition.pads)
    if leak.stream.is_exact:
        for number in range(1, min(first, _MOST_STEPS)):
            if number not in results:
                results[number] = check.run(leak.stream, _of_pads(check, leak, number)) is not None
                if results[number]:
                    break
    failing = tuple(sorted(number for number, fails in results.items() if fails))
    return failing, tuple(sorted(number for number, fails in results.items() if not fails))


def _differs(check: PaddingCheck, leak: Leak, inputs: dict[str, Any], others: dict[str, Any]) -> bool:
    """Tell whether two ways to make the same padded call differ at real tokens."""
    return check.run(leak.stream, replace(_same_length(leak), inputs=inputs, expected_inputs=others)) is not None


def _same_length(leak: Leak) -> Repetition:
    """Return a repetition whose two sides are padded alike: only the real tokens count."""
    made, at = leak.repetition, leak.repetition.alignment
    mask = torch.zeros(at.batch, at.total, dtype=torch.bool)
    rows = range(at.batch) if at.rows is None else at.rows
    for place, row in enumerate(rows):
        mask[row, at.start : at.start + at.real] = True if at.mask is None else at.mask[place].cpu()
    return replace(made, alignment=Alignment(at.total, 0, at.total, at.batch, mask=mask), recorded="")


def _content_matters(check: PaddingCheck, leak: Leak, made: Repetition) -> bool | None:
    at = made.alignment
    if at.rows is not None or leak.stream.kind.unit == "pixels":
        return None
    other = padded(
        check.call.model, check.call.inputs, leak.stream, (at.start, at.total - at.real - at.start), "random"
    )
    changed = {**made.inputs, leak.stream.main: other[leak.stream.main]}
    return _differs(check, replace(leak, repetition=made), changed, made.inputs)


def _mask_matters(check: PaddingCheck, leak: Leak, made: Repetition) -> bool | None:
    name = leak.stream.kind.mask
    if not leak.stream.takes_mask or leak.stream.kind.unit != "tokens" or made.inputs.get(name) is None:
        return None
    changed = {**made.inputs, name: torch.ones_like(mask_of(made.inputs, leak.stream))}
    return _differs(check, replace(leak, repetition=made), changed, made.inputs)


def _positions_help(check: PaddingCheck, leak: Leak) -> bool:
    if leak.has_positions or not can_take_positions(check.call, leak.stream):
        return False
    return check.run(leak.stream, leak.variant(True)) is None  # noqa: FBT003 - the variant's one argument


def _batch_matters(check: PaddingCheck, leak: Leak, made: Repetition) -> bool:
    at = made.alignment
    if at.rows is None:
        return False
    alone = rows_of(made.inputs, at.rows, at.batch)
    alignment = Alignment(at.total, 0, at.total, at.batch, rows=at.rows)
    repeated = replace(made, alignment=alignment, expected_inputs=alone, recorded="")
    return check.run(leak.stream, repeated) is not None


def _ones_matter(check: PaddingCheck, leak: Leak, made: Repetition) -> bool:
    stream = leak.stream
    if check.call.inputs.get(stream.kind.mask) is not None or not stream.takes_mask or made.recorded != "expected":
        return False
    at = Alignment(stream.length, 0, stream.length, stream.batch)
    inputs = {**check.call.inputs, stream.kind.mask: mask_of(check.call.inputs, stream)}
    return check.run(stream, replace(made, inputs=inputs, alignment=at)) is not None

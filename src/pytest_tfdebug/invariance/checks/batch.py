"""``batch_invariant``: a row alone gives the answer that it gives in its batch, in any order of the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.invariance.outcome import Outcome, Repetition
from pytest_tfdebug.invariance.padding import rows_of
from pytest_tfdebug.invariance.sister import Sister, main_input, unpadded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.invariance.observed import ObservedCall
    from pytest_tfdebug.invariance.settings import Settings

_DIAGNOSIS = "a row's answer depends on the rows beside it: statistics over the batch, a shared buffer or capacity."


def check_batch(call: ObservedCall, settings: Settings) -> Outcome:
    """Repeat a call row by row and with its rows in reverse."""
    with call.restored():
        sister = Sister(call, settings.tolerances(), "depends on its batch")
        main = main_input(call)
        if main is None:
            sister.outcome.skipped.append(f"{call.name} was given no tensor by name")
            return sister.outcome
        expected = sister.expected()
        for repetition in _repetitions(call, *main):
            if repetition.recorded == "actual":
                sides = call.leaves(repetition.expected_inputs), expected
            else:
                sides = expected, call.leaves(repetition.inputs)
            mismatch = sister.hold(repetition.label, *sides, repetition.alignment)
            if mismatch is not None and sister.draws_random_numbers():
                return sister.outcome
            if mismatch is not None:
                return sister.fail(repetition, mismatch, _DIAGNOSIS)
        return sister.outcome


def _repetitions(call: ObservedCall, name: str, main: object) -> Iterator[Repetition]:
    import torch

    assert isinstance(main, torch.Tensor)  # noqa: S101 - main_input says so
    batch, at = main.shape[0], unpadded(call)
    if batch == 1:
        doubled = rows_of(call.inputs, [0, 0], 1)
        other = main.flip(-1) if main.dim() > 1 else main
        doubled[name] = torch.cat([main, other])
        alignment = replace(at, rows=(0,), batch=2)
        yield Repetition("the row beside another one, against the row alone", doubled, alignment, call.inputs)
        return
    for row in range(batch):
        alone = rows_of(call.inputs, [row], batch)
        mask = None if at.mask is None else at.mask[row : row + 1]
        alignment = replace(at, rows=(row,), batch=batch, mask=mask)
        label = f"row {row} in its batch of {batch}, against the row alone"
        yield Repetition(label, call.inputs, alignment, alone, recorded="actual")
    backwards = tuple(reversed(range(batch)))
    reversed_rows = rows_of(call.inputs, backwards, batch)
    alignment = replace(at, rows=backwards, batch=batch)
    yield Repetition("the rows in reverse order", reversed_rows, alignment, call.inputs)

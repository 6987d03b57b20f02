"""``batch_invariant``: a row alone gives the answer that it gives in its batch, in any order of the rows."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.invariance.calls.sequences import main_input
from pytest_tfdebug.invariance.checks.base import Check
from pytest_tfdebug.invariance.checks.settings import Settings
from pytest_tfdebug.invariance.repeat.repetition import Repetition
from pytest_tfdebug.invariance.repeat.rows import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIAGNOSIS = "a row's answer depends on the rows beside it: statistics over the batch, a shared buffer or capacity."


class BatchCheck(Check[Settings]):
    """The call is repeated row by row, and with its rows in reverse."""

    needs = "Call a model with a batch"
    verdict = "depends on its batch"

    def check(self) -> None:
        """Report the first row that gives another answer."""
        main = main_input(self.call)
        if main is None:
            self.skip(f"{self.call.name} was given no tensor by name")
            return
        for repetition in self._repetitions(*main):
            try:
                outputs = self.outputs(repetition)
            except Exception as error:  # noqa: BLE001 - rows that share an image cannot be told apart, say
                self.skip(f"{self.call.name} cannot be asked that way: {repetition.label} ({self.raised(error).error})")
                return
            mismatch = self.compare(repetition.label, *outputs, repetition.alignment)
            if mismatch is not None and not self.is_noise(repetition, mismatch):
                self.fail(repetition, mismatch, _DIAGNOSIS)
                return

    def _repetitions(self, name: str, main: torch.Tensor) -> Iterator[Repetition]:
        inputs, batch, at = self.call.inputs, main.shape[0], self.unpadded
        if batch == 1:
            doubled = rows_of(inputs, [0, 0], 1)
            doubled[name] = torch.cat([main, main.flip(-1) if main.dim() > 1 else main])
            alignment = replace(at, rows=(0,), batch=2)
            yield Repetition("the row beside another one, against the row alone", doubled, alignment, inputs)
            return
        for row in range(batch):
            mask = None if at.mask is None else at.mask[row : row + 1]
            alignment = replace(at, rows=(row,), batch=batch, mask=mask)
            label = f"row {row} in its batch of {batch}, against the row alone"
            yield Repetition(label, inputs, alignment, rows_of(inputs, [row], batch), recorded="actual")
        backwards = tuple(reversed(range(batch)))
        alignment = replace(at, rows=backwards, batch=batch)
        yield Repetition("the rows in reverse order", rows_of(inputs, backwards, batch), alignment, inputs)

"""``batch``: a row alone gives the answer that it gives in its batch, in any order of the rows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.invariance.calls.inputs import Repetition, items_of, rows_of
from pytest_tfdebug.invariance.calls.sequences import main_input
from pytest_tfdebug.invariance.checks.base import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

    from pytest_tfdebug.invariance.compare.outputs import Mismatch

    Pick = Callable[[Mapping[str, Any], Sequence[int], int], dict[str, Any]]

_DIAGNOSIS = "a row's answer depends on the rows beside it: statistics over the batch, a shared buffer or capacity."


class BatchCheck(Check):
    """The call is repeated row by row, and with its rows in reverse."""

    needs = "Call a model with a batch"
    verdict = "depends on its batch"

    def check(self) -> None:
        """Report the first row that gives another answer, also when each row brings its own items of an input."""
        main = main_input(self.call)
        if main is None:
            self.skip(f"{self.call.name} was given no tensor by name")
            return
        found = self._first_difference(*main, rows_of)
        if found is not None and any(items_of(value, len(main[1])) > 1 for value in self.call.inputs.values()):
            skipped, pick = len(self.outcome.skipped), partial(rows_of, with_shares=True)
            if self._first_difference(*main, pick) is None and len(self.outcome.skipped) == skipped:
                return
        if found is not None:
            self.fail(*found)

    def _first_difference(self, name: str, main: torch.Tensor, pick: Pick) -> tuple[Repetition, Mismatch] | None:
        for made in self._of_rows(name, main, pick):
            try:
                outputs = self.outputs(made)
            except Exception as error:  # noqa: BLE001 - rows that share an image cannot be told apart, say
                self.cannot_ask(made.label, self.raised(error))
                return None
            mismatch = self.compare(made, outputs)
            if mismatch is not None:
                return made, mismatch
        return None

    def _of_rows(self, name: str, main: torch.Tensor, pick: Pick) -> Iterator[Repetition]:
        inputs, batch, at = self.call.inputs, main.shape[0], self.unpadded
        if batch == 1:
            doubled = rows_of(inputs, [0, 0], 1)
            doubled[name] = torch.cat([main, main.flip(-1) if main.dim() > 1 else main])
            alignment = replace(at, rows=(0,), batch=2)
            label = "the row beside another one, against the row alone"
            yield Repetition(label, doubled, alignment, inputs, diagnosis=_DIAGNOSIS)
            return
        for row in range(batch):
            mask = None if at.mask is None else at.mask[row : row + 1]
            alignment = replace(at, rows=(row,), batch=batch, mask=mask)
            label = f"row {row} in its batch of {batch}, against the row alone"
            alone = pick(inputs, [row], batch)
            yield Repetition(label, inputs, alignment, alone, recorded="actual", diagnosis=_DIAGNOSIS)
        backwards = tuple(reversed(range(batch)))
        alignment = replace(at, rows=backwards, batch=batch)
        reverse = pick(inputs, backwards, batch)
        yield Repetition("the rows in reverse order", reverse, alignment, inputs, diagnosis=_DIAGNOSIS)

"""The elements of a tensor that differs from its golden, from a forward that is made once more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.parity.tensors.elements import axis_names, element_grid
from pytest_tfdebug.tracing.record.recorder import watched_forward
from pytest_tfdebug.tracing.record.selection import Selection

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.check_record import ElementGrid
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.records import Call, LeafComparison
    from pytest_tfdebug.tracing.record.leaves import Leaf

    Inputs = tuple[tuple[Any, ...], dict[str, Any]]

_BATCH_AND_TOKENS = 2


def failing_elements(
    report: ParityReport, model: torch.nn.Module, inputs: Inputs, tolerances: Tolerances
) -> ElementGrid | None:
    """Return the elements of the first differing tensor that both sides have whole.

    The comparison no longer holds the tensors under test, so the forward is made once more and that one tensor kept.
    """
    for call, leaf in _candidates(report):
        expected = leaf.expected.tensor if leaf.expected is not None else None
        if expected is None or tuple(expected.shape) != leaf.shape:
            continue
        actual = _made_again(model, inputs, call, leaf)
        if actual is not None and actual.shape == expected.shape:
            what = f"{leaf.direction} {leaf.leaf}".rstrip() + f" of {call.name}"
            names = axis_names(leaf.shape, _ids(inputs))
            return element_grid(what, expected, actual, tolerances.of(call.path, leaf.dtype), names)
    return None


def _candidates(report: ParityReport) -> Iterator[tuple[Call, LeafComparison]]:
    culprit = report.culprit
    meant = culprit.divergence if culprit is not None else None
    by_name = {(item.call.path, item.call.call): item.call for item in report.calls}
    for divergence in (meant, *report.divergences):
        if divergence is not None and divergence.metrics is not None:
            yield by_name[divergence.path, divergence.call], divergence.comparison
    for item in report.calls:
        yield from ((item.call, leaf) for leaf in item.outputs if leaf.problem == "values")


class _KeepOne:
    """The consumer that keeps one tensor of a forward."""

    def __init__(self, call: Call, leaf: LeafComparison) -> None:
        self._wanted, self._direction, self._leaf = (call.path, call.call), leaf.direction, leaf.leaf
        self.kept: torch.Tensor | None = None

    def enter(self, call: Call, leaves: list[Leaf], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ARG002
        self._look("input", call, leaves)

    def leave(self, call: Call, leaves: list[Leaf], output: Any) -> None:  # noqa: ANN401, ARG002
        self._look("output", call, leaves)

    def fail(self, call: Call) -> None:
        """Nothing to keep."""

    def wrote(self, call: Call, leaves: list[Leaf], before: int | None) -> None:  # noqa: ARG002
        self._look("write", call, leaves)

    def _look(self, direction: str, call: Call, leaves: list[Leaf]) -> None:
        if direction == self._direction and (call.path, call.call) == self._wanted and self.kept is None:
            self.kept = next((leaf.tensor.clone() for leaf in leaves if leaf.path == self._leaf), None)


def _made_again(model: torch.nn.Module, inputs: Inputs, call: Call, leaf: LeafComparison) -> torch.Tensor | None:
    keeper = _KeepOne(call, leaf)
    picked = Selection(include=(call.path,)) if call.parent is not None else Selection(level="layers")
    try:
        watched_forward(model, keeper, picked, keeper.wrote, inputs)
    except Exception:  # noqa: BLE001 - a picture that cannot be made must not cost the report
        return None
    return keeper.kept


def _ids(inputs: Inputs) -> tuple[int, ...]:
    """Return the shape ``(batch, tokens)`` of the first input that has these axes alone."""
    for value in (*inputs[0], *inputs[1].values()):
        if isinstance(value, torch.Tensor) and value.dim() == _BATCH_AND_TOKENS:
            return tuple(value.shape)
    return ()

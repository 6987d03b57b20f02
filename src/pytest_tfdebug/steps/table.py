"""A forward with its backward as plain data: its values, what each got as gradient, and what left the graph."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.steps.gradients import NOTHING, GradientSums

if TYPE_CHECKING:
    from pytest_tfdebug.steps.rows import ParameterRows
    from pytest_tfdebug.values import Line, Value, Values


class Switch(NamedTuple):
    """Where gradients were switched off."""

    lines: tuple[Line, ...]  # the source lines, innermost first
    call: int | None  # ``index`` of the call that was under way


class Mark(NamedTuple):
    """What may keep a gradient from passing, or change it: a line that leaves the graph, a hook."""

    values: tuple[int, ...]  # values that it was given
    name: str  # ``detach``, ``item``, ``register_hook``
    lines: tuple[Line, ...]
    call: int | None


@dataclass(slots=True)
class Graph:
    """What autograd knows of a value."""

    has_graph: bool = False  # whether it requires a gradient
    is_leaf: bool = True  # whether no operator with a gradient made it
    is_grad_on: bool = True  # whether gradients were on as it was made
    is_recomputed: bool = False  # whether the backward made it
    is_unheard: bool = False  # whether its gradient passes no hook, for a view of it was written to in place
    own_backward: str = ""  # name of the ``torch.autograd.Function`` that made it, where that is not torch's
    is_piece: bool = False  # whether it is a view whose gradient is told by that of its whole
    switch: Switch | None = None  # where gradients were switched off, where they were
    is_changed: bool = False  # whether its numbers were changed behind autograd's back
    total: GradientSums = NOTHING  # its gradient
    # what this operator alone sends to each value that it was given, by that value's index
    sent: dict[int, GradientSums] = field(default_factory=dict)


def is_measured(value: Value) -> bool:
    """Tell whether the gradient of a value is summed; that of a matrix of weights is only compared row by row."""
    return value.origin != "parameter" or len(value.shape) < 2  # noqa: PLR2004 - a vector


@dataclass
class Backward:
    """A forward with its backward."""

    values: Values
    graph: list[Graph]  # of each value, in the order of the table
    loss: float  # what the forward returned; nan where several did or it trained by itself
    last: int | None  # index of the loss
    rows: ParameterRows  # the gradients of the parameters
    marks: list[Mark] = field(default_factory=list)
    frozen: tuple[str, ...] = ()  # parameters that require no gradient
    # parameters and modules that had a hook on their gradient before the run, with the line of the hook
    hooks: dict[str, Line] = field(default_factory=dict)

    def times(self, k: float) -> Backward:
        """Return the backward of k times the loss."""
        graph = [
            replace(each, total=each.total.times(k), sent={key: sums.times(k) for key, sums in each.sent.items()})
            for each in self.graph
        ]
        return replace(self, graph=graph, loss=self.loss * k, rows=type(self.rows).together([self.rows], [k]))

    def ancestors(self) -> list[int]:
        """Return of each value the set of those that it was computed from, as a bit mask."""
        found: list[int] = []
        for value in self.values.values:
            mask = 0
            for made in value.producers:
                mask |= found[made] | (1 << made)
            found.append(mask)
        return found

    def users(self) -> dict[int, list[Value]]:
        """Return the values that were computed from each."""
        found: dict[int, list[Value]] = {}
        for value in self.values.values:
            for made in value.producers:
                found.setdefault(made, []).append(value)
        return found

"""A forward with some changes made for good: its tape and its values as if the port had been written so."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.parity.proof.changes import SHORTENED
from pytest_tfdebug.parity.proof.forward import Replay, Run
from pytest_tfdebug.tracing.values.tape import Ref, Step, Tape
from pytest_tfdebug.values import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_tfdebug.parity.proof.changes import Change
    from pytest_tfdebug.parity.proof.forward import Edit, Given
    from pytest_tfdebug.values import Values


def changed_forward(
    values: Values, tape: Tape, changes: Sequence[Change], given: Mapping[int, torch.Tensor]
) -> tuple[Values, Tape]:
    """Return a forward after some changes, and with some values given instead of those that it computed.

    Args:
        values: Its values.
        tape: What ran in it.
        changes: What is changed.
        given: Tensors in the place of some values, by their index.

    Returns:
        Its values, those that the changes reach with other fingerprints, and its tape.
    """
    steps, producers = list(tape.steps), {}
    edits: dict[int, Edit] = {}
    instead: dict[int, torch.Tensor] = dict(given)
    with torch.no_grad():
        for change in changes:
            instead |= change.instead or {}
            for place, edit in change.edits.items():
                asked = _asked(tape, place, edit)
                edits[place] = edit
                steps[place] = _with_edit(steps[place], edit, asked)
                for out in (out for out in steps[place].outs if out is not None and out >= 0):
                    kept = () if change.kind in SHORTENED and asked else values.values[out].producers
                    producers[out] = tuple(dict.fromkeys((*kept, *(each for each in asked if each >= 0))))
        changed = Replay(tape).run(edits, instead)
    for index, tensor in instead.items():
        if index in tape.maker:
            steps[tape.maker[index]] = _with_result(steps[tape.maker[index]], index, tensor)
    new = Tape()
    new.steps, new.maker = steps, dict(tape.maker)
    new.tensors = {**tape.tensors, **changed}
    return _with_prints(values, new, changed, producers), new


def _with_prints(
    values: Values, tape: Tape, changed: Mapping[int, torch.Tensor], producers: Mapping[int, tuple[int, ...]]
) -> Values:
    """Return a table with the fingerprints of what has changed, and what some values are computed from now."""
    table = copy.copy(values)
    table.values, table.parameters = list(values.values), dict(values.parameters)
    for index in {*changed, *producers}:
        if index < 0:
            continue
        old = table.values[index]
        tensor = tape.tensors[index]
        print_ = Fingerprint.of(tensor)
        made = producers.get(index, old.producers)
        table.values[index] = replace(old, print=print_, producers=made, shape=tuple(tensor.shape))
        if old.origin == "parameter":
            table.parameters[old.name] = (print_, table.parameters[old.name][1])
    return table


class _Asked:
    """A run that notes which values an edit asks it for."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.indices: list[int] = []

    def now(self, index: int) -> torch.Tensor:
        """Return a value as it was recorded."""
        self.indices.append(index)
        return self._tape.tensors[index]


def _asked(tape: Tape, place: int, edit: Edit) -> list[int]:
    """Return the values that an edit uses beside what its step is given."""
    run: Any = _Asked(tape)
    step = tape.steps[place]
    edit(run, step, _recorded(tape, step))
    return list(dict.fromkeys(run.indices))


def _recorded(tape: Tape, step: Step) -> Given:
    return Run(tape, {}).given(step)


class _GivenRun:
    """A run that has the values alone that an edit asks for."""

    def __init__(self, held: dict[int, torch.Tensor]) -> None:
        self.now = held.__getitem__


def _with_edit(step: Step, edit: Edit, asked: Sequence[int]) -> Step:
    """Return a step that does what an edit makes of it; what that asks for becomes its last argument."""

    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any operator
        *own, held = args
        now: Any = _GivenRun(dict(zip(asked, held, strict=True)))
        return edit(now, step, (tuple(own), kwargs))

    return Step(step.operator, run, (*step.args, tuple(map(Ref, asked))), step.kwargs, step.outs)


def _with_result(step: Step, at: int, tensor: torch.Tensor) -> Step:
    """Return a step one of whose results is a tensor; it is computed from nothing where it has no other.

    That is no operator's step any more, of which another form could be tried.
    """
    if len(step.outs) == 1:
        return Step("given", lambda: tensor, (), {}, step.outs)

    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any operator
        out = step.run(*args, **kwargs)
        if not isinstance(out, (list, tuple)):
            return tensor
        return [tensor if index == at else each for index, each in zip(step.outs, out, strict=False)]

    return Step(step.operator, run, step.args, step.kwargs, step.outs)

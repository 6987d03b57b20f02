"""A forward with some changes made for good: its tape and its values as if the port had been written so."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch

from pytest_tfdebug.parity.proof.changes import SHORTENED
from pytest_tfdebug.parity.proof.forward import NOT_COMPUTED, Replay, Run
from pytest_tfdebug.tracing.values.tape import Ref, Step, Tape
from pytest_tfdebug.values import Fingerprint

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from pytest_tfdebug.parity.proof.changes import Change
    from pytest_tfdebug.parity.proof.forward import Edit, Given
    from pytest_tfdebug.parity.proof.second_call import Ran
    from pytest_tfdebug.values import Value, Values


@dataclass(frozen=True)
class Mended:
    """Changes after which every output of two forwards agrees."""

    ran: tuple[Ran, Ran]  # the port and the reference, unchanged
    port: tuple[tuple[Change, ...], ...] = ()  # changes of the port; each set is of the forward after those before it
    reference: tuple[Change, ...] = ()  # changes of the reference, which then gives what the port gives

    def on(self, port: Ran, reference: Ran) -> tuple[Elsewhere, Elsewhere] | None:
        """Return both forwards on other inputs after the same changes; None where a step to change is not run there."""
        try:
            return _changed(port, self.ran[0], self.port), _changed(reference, self.ran[1], (self.reference,))
        except (KeyError, *NOT_COMPUTED):
            return None


class Elsewhere(NamedTuple):
    """A forward on other inputs."""

    ran: Ran
    indices: dict[int, int]  # value of the forward as it was searched -> the same value in this one


def _changed(ran: Ran, before: Ran, sets: Iterable[Sequence[Change]]) -> Elsewhere:
    """Return a forward after changes of the same forward on other inputs."""
    places, indices = _aligned(before, ran)
    for changes in filter(None, sets):
        values, tape = changed_forward(*ran, [_elsewhere(change, places, indices) for change in changes], {})
        ran = ran._replace(values=values, tape=tape)
    return Elsewhere(ran, indices)


def _elsewhere(change: Change, places: Mapping[int, int], indices: Mapping[int, int]) -> Change:
    """Return a change with the steps and values of another run; a ``KeyError`` says that these did not run."""

    def there(edit: Edit) -> Edit:
        return lambda run, step, given: edit(cast("Run", _RunElsewhere(run, indices)), step, given)

    place = places[change.place] if change.edits else change.place
    more = {places[each]: there(edit) for each, edit in (change.more or {}).items()}
    instead = {indices[each]: tensor for each, tensor in (change.instead or {}).items()}
    return replace(change, place=place, edit=there(change.edit), more=more, instead=instead)


class _RunElsewhere:
    """A run that is asked for values by the numbers that they have in another one."""

    def __init__(self, run: Run, indices: Mapping[int, int]) -> None:
        self._run, self._indices = run, indices

    def now(self, index: int) -> torch.Tensor:
        """Return a value as it is in this run."""
        return self._run.now(self._indices[index])


def _aligned(one: Ran, other: Ran) -> tuple[dict[int, int], dict[int, int]]:
    """Return which steps and values of a forward are which of the same forward on other inputs.

    Masks that hide nothing are left out by some code, and a batch of one row is multiplied by other operators: the last
    of these gives the same product.
    """
    mine, theirs = ([_key(ran.values, step) for step in ran.tape.steps] for ran in (one, other))
    places: dict[int, int] = {}
    for what, own, own_end, there, there_end in SequenceMatcher(None, mine, theirs, autojunk=False).get_opcodes():
        if what == "equal":
            places.update(zip(range(own, own_end), range(there, there_end), strict=True))
        elif what == "replace":
            ends = [_computed(one, range(own, own_end)), _computed(other, range(there, there_end))]
            if all(ends) and mine[ends[0][-1]][1:] == theirs[ends[1][-1]][1:]:
                places[ends[0][-1]] = ends[1][-1]
    before, now = _begins(one.values), _begins(other.values)
    indices = {index: now[key] for key, index in before.items() if key in now}
    for own, there in places.items():
        outs = zip(one.tape.steps[own].outs, other.tape.steps[there].outs, strict=False)
        indices |= {index: new for index, new in outs if index is not None and new is not None}
    return places, indices


def _computed(ran: Ran, places: Iterable[int]) -> list[int]:
    """Return the steps that compute something, and move nothing."""
    outs = ((place, out) for place in places for out in ran.tape.steps[place].outs[:1] if out is not None and out >= 0)
    return [place for place, out in outs if not ran.values.values[out].is_moved]


def _key(values: Values, step: Step) -> tuple[Hashable, ...]:
    """Return what tells a step in a run from all others: its operator, line and call."""
    value = next((values.values[out] for out in step.outs if out is not None and out >= 0), None)
    return (step.operator,) if value is None else (step.operator, *value.lines[:2], _path(values, value))


def _path(values: Values, value: Value) -> str:
    return "" if value.call is None else values.calls[value.call].path


def _begins(values: Values) -> dict[Hashable, int]:
    """Return the values that were there before a forward, by what they are: constants of one call in their order."""
    found: dict[Hashable, int] = {}
    counts: Counter[Hashable] = Counter()
    for value in values.values:
        if not value.operator:
            key = value.origin, value.name, _path(values, value) if value.origin == "constant" else ""
            found[key, counts[key]] = value.index
            counts[key] += 1
    return found


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
    """Return a step one of whose results is a tensor; it is computed from nothing where it has no other."""
    if len(step.outs) == 1:
        return Step(step.operator, lambda: tensor, (), {}, step.outs)

    def run(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any operator
        out = step.run(*args, **kwargs)
        if not isinstance(out, (list, tuple)):
            return tensor
        return [tensor if index == at else each for index, each in zip(step.outs, out, strict=False)]

    return Step(step.operator, run, step.args, step.kwargs, step.outs)

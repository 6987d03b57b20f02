"""A forward on other inputs than those that were searched: its steps and values by the numbers that they had there.

Example: on rows without padding ``0.25 instead of 0.5`` at step 40 mends the port. On the whole batch that step is the
46th, for the port makes a mask first: there the number is changed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from pytest_tfdebug.parity.proof.changes import together
from pytest_tfdebug.parity.proof.forward import Replay
from pytest_tfdebug.parity.proof.made_changes import changed_forward
from pytest_tfdebug.tracing.values.edited import Edited
from pytest_tfdebug.tracing.values.tape import NotTriedError, Target

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping

    from pytest_tfdebug.parity.proof.changes import Change
    from pytest_tfdebug.parity.proof.forward import Edit, Run
    from pytest_tfdebug.tracing.values.rerun import Rerun
    from pytest_tfdebug.tracing.values.tape import Step, Tape
    from pytest_tfdebug.values import Value, Values


class Ran(NamedTuple):
    """A forward that has run."""

    values: Values
    tape: Tape

    @property
    def outputs(self) -> dict[str, torch.Tensor]:
        """What it gave, with all elements, by leaf path."""
        return {leaf: self.tape.tensors[index] for leaf, index in self.values.results}

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        """The parameters that it used, by name."""
        values, tensors = self.values.values, self.tape.tensors
        return {v.name: tensors[v.index] for v in values if v.origin == "parameter" and v.index in tensors}

    @property
    def operators(self) -> list[str]:
        """What ran in it, in order."""
        return [step.operator for step in self.tape.steps]


def after(forward: Rerun, ran: Ran, changes: Iterable[Change]) -> dict[str, torch.Tensor]:
    """Return what a forward gives that is run again with some changes, by leaf path; see :mod:`.edited`.

    Raises:
        NotTriedError: If one of them is of an operator that writes in place.
    """
    edits, instead = together(changes)
    steps = [ran.tape.steps[place] for place in edits]
    if any(isinstance(each, Target) for step in steps for _, each in step.given):
        msg = "what an operator writes in place is known on its tape alone"
        raise NotTriedError(msg)
    return forward.edited(Edited(ran.values, ran.tape, edits, instead))


class Elsewhere(NamedTuple):
    """A forward on other inputs; a ``KeyError`` says that it lacks a step or a value of the one that was searched."""

    ran: Ran
    places: dict[int, int]  # step of the forward as it was searched -> the same step in this one
    indices: dict[int, int]  # the same for its values

    @classmethod
    def of(cls, searched: Ran, ran: Ran) -> Elsewhere:
        """Return a forward on other inputs than those that were searched."""
        return cls(ran, *_aligned(searched, ran))

    def tensor(self, index: int) -> torch.Tensor:
        """Return what a value of the searched forward is here."""
        return self.ran.tape.tensors[self.indices[index]]

    def tensor_after(self, changes: Iterable[Change]) -> Callable[[int], torch.Tensor]:
        """Return what says what a value of the searched forward is here, after some changes."""
        with torch.no_grad():
            changed = Replay(self.ran.tape).run(*together(map(self.there, changes)))

        def tensor(index: int) -> torch.Tensor:
            found = changed.get(self.indices[index])
            return self.tensor(index) if found is None else found

        return tensor

    def after(self, changes: Iterable[Change], given: Mapping[int, torch.Tensor] | None = None) -> Elsewhere:
        """Return it with some changes made for good, and some values of the searched forward given."""
        there = {self.indices[index]: tensor for index, tensor in (given or {}).items()}
        return self._replace(ran=Ran(*changed_forward(*self.ran, [*map(self.there, changes)], there)))

    def there(self, change: Change) -> Change:
        """Return a change of the searched forward as one of this."""
        indices = self.indices

        def edit_there(edit: Edit) -> Edit:
            return lambda run, step, given: edit(cast("Run", _RunElsewhere(run, indices)), step, given)

        place = self.places[change.place] if change.edits else change.place
        more = {self.places[each]: edit_there(edit) for each, edit in (change.more or {}).items()}
        instead = {indices[each]: tensor for each, tensor in (change.instead or {}).items()}
        return replace(change, place=place, edit=edit_there(change.edit), more=more, instead=instead)


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
    for what, own, own_end, there, there_end in SequenceMatcher(None, mine, theirs).get_opcodes():
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

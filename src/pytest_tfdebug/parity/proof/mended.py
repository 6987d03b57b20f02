"""The changes that mend two forwards, made in these on other inputs: what is wrong there beside shows.

Example: on rows without padding ``0.25 instead of 0.5`` at step 40 mends the port. On the whole batch that step is the
46th, for the port makes a mask first: there the number is changed, and what padded rows still differ by is another
fault.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, NamedTuple, cast

from pytest_tfdebug.parity.proof.forward import NOT_COMPUTED
from pytest_tfdebug.parity.proof.made_changes import changed_forward

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    import torch

    from pytest_tfdebug.parity.proof.changes import Change
    from pytest_tfdebug.parity.proof.forward import Edit, Run
    from pytest_tfdebug.parity.proof.second_call import Ran
    from pytest_tfdebug.tracing.values.tape import Step
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

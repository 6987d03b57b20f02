"""A forward that is made again with some of its operators done otherwise.

A tape runs the operators that were recorded, one by one. It cannot follow code that reads numbers of a tensor and goes
on by them, ``rows.split(counts.tolist())`` of experts: after a change these numbers may be others. Here the code itself
runs again, and an operator is known by its name, its lines and its module, and how often it ran there before.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.tracing.values.tape import Ref, put, results_of

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence

    import torch

    from pytest_tfdebug.tracing.values.tape import Step, Tape
    from pytest_tfdebug.values import Line, Values

    #: What a step does instead, from a run, the step and its arguments.
    Edit = Callable[[Any, Step, Any], Any]


class Edited:
    """The operators of a recorded forward that are done otherwise.

    Args:
        values: The recorded forward.
        tape: What ran in it.
        edits: What some of its steps do instead, by their place on the tape.
        instead: Tensors in the place of some of its values.
    """

    def __init__(
        self, values: Values, tape: Tape, edits: Mapping[int, Edit], instead: Mapping[int, torch.Tensor]
    ) -> None:
        self._tape, self._edits, self._instead = tape, edits, dict(instead)
        self._now: dict[int, torch.Tensor] = {}
        self._counts: Counter[Hashable] = Counter()
        self._places: dict[Hashable, int] = {}
        counts: Counter[Hashable] = Counter()
        for place, step in enumerate(tape.steps):
            made = next((out for out in step.outs if out is not None and out >= 0), None)
            if step.operator and made is not None:
                value = values.values[made]
                path = "" if value.call is None else values.calls[value.call].path
                key = step.operator, value.lines, path
                self._places[key, counts[key]] = place
                counts[key] += 1

    def now(self, index: int) -> torch.Tensor:
        """Return a value of the recorded forward as it is in this one."""
        for known in (self._instead, self._now):
            if index in known:
                return known[index]
        return self._tape.tensors[index]

    def run(self, func: torch._ops.OpOverload, lines: Sequence[Line], path: str, given: tuple[Any, Any]) -> Any:  # noqa: ANN401
        """Run an operator, as it is or as it is changed."""
        key = func.overloadpacket.__name__, lines, path
        place = self._places.get((key, self._counts[key]))
        self._counts[key] += 1
        args, kwargs = given
        if place is None:
            return func(*args, **kwargs)
        step = self._tape.steps[place]
        args, kwargs = self._put_in(step, given)
        result = func(*args, **kwargs)
        edit = self._edits.get(place)
        if edit is not None:
            made = [
                old if new is None or new is old else new.clone()
                for old, new in zip(results_of(result), results_of(edit(self, step, (args, kwargs))), strict=False)
            ]
            result = type(result)(made) if isinstance(result, (list, tuple)) else made[0]
        self._now |= {out: new for out, new in zip(step.outs, results_of(result), strict=False) if out is not None}
        return result

    def _put_in(self, step: Step, given: tuple[Any, Any]) -> tuple[Any, Any]:
        for path, each in step.given:
            if isinstance(each, Ref) and each in self._instead:
                given = put(given, path, self._instead[each])
        return given

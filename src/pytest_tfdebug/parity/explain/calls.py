"""What may be wrong with a call of a module as a whole."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.parity.explain.changes import Change
from pytest_tfdebug.parity.explain.transforms import ACTIVATIONS
from pytest_tfdebug.tracing.record.modules import NUMBER

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from pytest_tfdebug.parity.explain.forward import Forward
    from pytest_tfdebug.parity.explain.replay import Given, Run
    from pytest_tfdebug.tracing.values.tape import Step

#: Kinds of changes of whole calls.
OF_CALLS = ("call left out", "activation")
#: Steps of a call that may be another activation; one that takes a weight is none.
_SHORT = 12
#: What a module is called: the last name of its path, with the numbers behind it.
_NAME = re.compile(r"[^.]+(?:\.\d+)*")


def changes_of_calls(forward: Forward, near: Collection[int]) -> Iterator[Change]:
    """Yield changes of whole calls: left out, or another activation."""
    table = forward.side.table
    for call in table.calls:
        given, made = table.inputs.get(call.index, []), table.outputs.get(call.index, [])
        if call.parent is None or not given or not made:
            continue
        x, y = given[0][1], made[0][1]
        place = forward.tape.maker.get(y)
        if place is None or place not in near or x == y or forward.tensor(x).shape != forward.tensor(y).shape:
            continue
        steps = _steps_between(forward, x, y)
        path, key, edit = call.path, NUMBER.sub("*", _NAME.findall(call.path)[-1]), partial(_handed_on, x)
        yield Change(1.4, f"{path} left out", place, edit, "call left out", key, other=x, call=call.index)
        is_short = len(steps) <= _SHORT and not any(forward.takes_weight(each) for each in steps)
        for name, function in ACTIVATIONS.items() if is_short else ():
            edit = partial(_activated, function, x)
            yield Change(1, f"{name} instead of {path}", place, edit, "activation", (key, name), call=call.index)


def _steps_between(forward: Forward, x: int, y: int) -> list[int]:
    """Return the steps by which a value was computed from another one, in order."""
    found: set[int] = set()
    leads: dict[int, bool] = {x: True}

    def comes_from(index: int) -> bool:
        if index not in leads:
            leads[index] = False
            place = forward.tape.maker.get(index)
            step = None if place is None else forward.tape.steps[place]
            if place is not None and step is not None and (index < 0 or x < index):
                leads[index] = bool(sum(map(comes_from, step.refs)))  # all are looked at
                if leads[index]:
                    found.add(place)
        return leads[index]

    comes_from(y)
    return sorted(found)


def _handed_on(x: int, run: Run, step: Step, _given: Given) -> Any:  # noqa: ANN401
    return (run.now(x), *([None] * (len(step.outs) - 1)))


def _activated(function: Any, x: int, run: Run, step: Step, _given: Given) -> Any:  # noqa: ANN401
    return (function(run.now(x)), *([None] * (len(step.outs) - 1)))

"""A recorded forward, run again from where something is changed."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.tracing.values.tape import Ref

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_tfdebug.tracing.values.tape import Step, Tape

    #: Arguments and keyword arguments of a step.
    Given = tuple[tuple[Any, ...], dict[str, Any]]
    #: Gives what a step gives after a change, from the run under way, the step, and what it is given.
    Edit = Callable[["Run", Step, Given], Any]


#: What operators raise of operands that they cannot take; whatever else is raised is an error of ours.
NOT_COMPUTED = (RuntimeError, IndexError, TypeError, ValueError, ArithmeticError)


class Run:
    """One run: the values that are others than recorded."""

    def __init__(self, tape: Tape, instead: Mapping[int, torch.Tensor]) -> None:
        self._recorded = tape.tensors
        self.values: dict[int, torch.Tensor] = dict(instead)

    def now(self, index: int) -> torch.Tensor:
        """Return a value as it is in this run."""
        found = self.values.get(index)
        return self._recorded[index] if found is None else found

    def given(self, step: Step) -> Given:
        """Return the arguments of a step in this run."""
        if step.plain is not None:  # most are
            args = list(step.args)
            for place in step.plain:
                args[place] = self.now(args[place])
            return tuple(args), step.kwargs
        given: Given = (step.args, step.kwargs)
        for path, each in step.given:
            if isinstance(each, Ref):
                given = put(given, path, self.now(each))
        return given


class Replay:
    """A forward that can be run again with changes."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self._users: dict[int, list[int]] = {}
        for place, step in enumerate(tape.steps):
            for ref in set(step.refs):
                self._users.setdefault(ref, []).append(place)

    def run(
        self,
        changes: Mapping[int, Edit],
        instead: Mapping[int, torch.Tensor] | None = None,
        is_enough: Callable[[int, torch.Tensor], bool] = lambda _index, _tensor: False,
    ) -> dict[int, torch.Tensor]:
        """Run what depends on some changes, and return the values that are others then."""
        instead = instead or {}
        run = Run(self.tape, instead)
        todo = sorted({*changes, *(user for index in instead for user in self._users.get(index, ()))})
        queued = set(todo)
        while todo:
            place = heapq.heappop(todo)
            step = self.tape.steps[place]
            given = run.given(step)
            edit = changes.get(place)
            output = step.run(*given[0], **given[1]) if edit is None else edit(run, step, given)
            results = output if isinstance(output, (list, tuple)) else (output,)
            for index, result in zip(step.outs, results, strict=False):
                if index is None or result is None or index in instead:
                    continue
                if _is_same(result, self.tape.tensors.get(index)):
                    continue
                run.values[index] = result
                if is_enough(index, result):
                    return run.values
                for user in self._users.get(index, ()):
                    if user not in queued:
                        queued.add(user)
                        heapq.heappush(todo, user)
        return run.values


def put(given: Any, path: tuple[Any, ...], new: Any) -> Any:  # noqa: ANN401 - any argument
    """Return nested arguments with another in one place."""
    if not path:
        return new
    items = {**given} if isinstance(given, dict) else list(given)
    items[path[0]] = put(items[path[0]], path[1:], new)
    return items if isinstance(items, dict) else type(given)(items)


def _is_same(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    return other is not None and one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other)

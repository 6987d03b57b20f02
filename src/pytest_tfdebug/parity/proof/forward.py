"""A recorded forward as changes see it: what an operator could have been given, and the run after a change."""

from __future__ import annotations

import heapq
from collections import Counter
from functools import cached_property
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.module_path import starred
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.proof.budget import work_of
from pytest_tfdebug.tracing.values.tape import NotTriedError, Ref, put
from pytest_tfdebug.values import HUGE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping

    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.tracing.values.tape import Step, Tape
    from pytest_tfdebug.values import Line

    Given = tuple[tuple[Any, ...], dict[str, Any]]
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
        self.work = 0.0  # seconds of work that runs have taken so far
        self._works: dict[int, float] = {}
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
            self.work += self._work_of(place)
            output = step.run(*given[0], **given[1]) if edit is None else edit(run, step, given)
            results = output if isinstance(output, (list, tuple)) else (output,)
            for index, result in zip(step.outs, results, strict=False):
                if index is None or result is None or index in instead:
                    continue
                recorded = self.tape.tensors.get(index)
                if is_same(result, recorded):
                    continue
                if recorded is not None and result.dim() != recorded.dim():
                    raise NotTriedError("what follows counts axes")  # and an axis that is not there is an error
                run.values[index] = result
                if is_enough(index, result):
                    return run.values
                for user in self._users.get(index, ()):
                    if user not in queued:
                        queued.add(user)
                        heapq.heappush(todo, user)
        return run.values

    def _work_of(self, place: int) -> float:
        if place not in self._works:
            self._works[place] = work_of(self.tape.steps[place], self.tape)
        return self._works[place]


def is_same(one: torch.Tensor, other: torch.Tensor | None) -> bool:
    """Tell whether two tensors are equal, in shape and dtype, too, on whatever devices."""
    if other is None or (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    return torch.equal(one, other.to(one.device))


def is_near(tensor: torch.Tensor, target: torch.Tensor) -> bool:
    """Tell whether a tensor is another one but for rounding, element for element."""
    if tensor.shape != target.shape or tensor.dtype != target.dtype:
        return False
    target = target.to(tensor.device)
    told = target.abs() < HUGE
    apart = float((tensor[told] - target[told]).norm())
    return torch.equal(told, tensor.abs() < HUGE) and apart <= AGREE * float(target[told].norm())


#: Values before an operator that it could have been given.
_NEAR = 110


class Forward:
    """A forward that can be run again."""

    def __init__(self, side: Side, tape: Tape) -> None:
        self.side, self.tape, self.replay = side, tape, Replay(tape)
        values = side.values
        self._given = [value.index for value in values if value.origin in ("parameter", "buffer", "input")]
        self._called: dict[int, str] = {}
        self._nearest: dict[str, list[int]] = {}
        self._given += [value.index for value in values if value.operator == "t" and self.named(value.index)]

    def tensor(self, index: int) -> torch.Tensor:
        """Return a value as it was recorded."""
        return self.tape.tensors[index]

    def maker(self, index: int) -> Step | None:
        """Return the operator that gave a value."""
        place = self.tape.maker.get(index)
        return None if place is None else self.tape.steps[place]

    def operands_of(self, index: int) -> list[int]:
        """Return the values that a value was computed from; images are seen through."""
        step = self.maker(index)
        refs = () if step is None else step.refs
        return [each for ref in refs for each in ([ref] if ref >= 0 else self.operands_of(ref))]

    def made_of(self, index: int) -> set[int]:
        """Return a value with all values and images that a run computes it from."""
        found: set[int] = set()
        todo = [index]
        while todo:
            at = todo.pop()
            if at not in found:
                found.add(at)
                step = self.maker(at)
                todo += () if step is None else step.refs
        return found

    def is_given(self, index: int) -> bool:
        """Whether a value was there before the forward, or was made of nothing."""
        return bool(self.named(index)) or not self.operands_of(index)

    def takes_weight(self, place: int) -> bool:
        """Whether a step is given a parameter."""
        return any(self.side.parameter(ref) for ref in self.tape.steps[place].refs if ref >= 0)

    def named(self, index: int) -> str:
        """Return the name of the parameter or buffer that a value shows; empty for others."""
        value = self.side.computed(self.side.values[index])
        return value.name if value.origin in ("parameter", "buffer") else ""

    def described(self, index: int) -> str:
        """Return what a value is called."""
        if index not in self._called:
            self._called[index] = self._described(index)
        return self._called[index]

    def _described(self, index: int) -> str:
        value = self.side.values[index]
        if name := self.named(index) or value.name:
            return f"the input {name}" if value.origin == "input" else name
        bases = list(self.side.bases(index))
        value = next((each for each in bases if each.name), bases[-1])
        line = value.lines[0] if value.lines else None
        return f"the {value.operator.strip('_') or 'value'}" + (f" of line {line.line}" if line else "")

    def role_of(self, index: int) -> Hashable:
        """Return what a value is, and what it shows, in words that hold for the same line of another layer."""
        bases = self.side.bases(index)
        made = ((each.operator, *((line.file, line.line) for line in each.lines[:2])) for each in bases)
        return starred(self.named(index)), *made

    def scope_of(self, place: int) -> list[int]:
        """Return the values that an operator could have been given, the nearest first."""
        made = self.outs_of(place)
        if not made:
            return []
        near = range(made[0] - 1, max(-1, made[0] - _NEAR), -1)
        values = self.side.values
        found = [index for index in near if values[index].shape and values[index].operator not in ("t", "detach")]
        path = self.side.call_of(values[made[0]]).path
        if path not in self._nearest:
            self._nearest[path] = sorted(self._given, key=lambda index: -_shared(path, self.named(index)))
        return list(dict.fromkeys([*found, *self._nearest[path]]))

    def outs_of(self, place: int) -> list[int]:
        """Return the values that a step gave."""
        return [out for out in self.tape.steps[place].outs if out is not None and out >= 0]

    def shown_at(self, place: int) -> list[int]:
        """Return the values that a step gave; what is written in place has none of its own: those that it was given."""
        return self.outs_of(place) or [each for each in self.tape.steps[place].refs if each >= 0]

    def lines_of(self, place: int) -> tuple[Line, ...]:
        """Return the lines that asked for an operator, innermost first."""
        made = self.outs_of(place)
        return self.side.values[made[0]].lines if made else ()

    def places_before(self, index: int, depth: int) -> dict[int, int]:
        """Return the steps that a value was computed by, and how many steps each is before it."""
        first = self.tape.maker.get(index)
        found = {} if first is None else {first: 0}
        todo = list(found)
        while todo:
            place = todo.pop(0)
            for ref in self.tape.steps[place].refs if found[place] < depth else ():
                made = self.tape.maker.get(ref)
                if made is not None and made not in found:
                    found[made] = found[place] + 1
                    todo.append(made)
        return found

    def places_with(self, names: Collection[str]) -> set[int]:
        """Return the steps that consume any of some parameters, and those that hand on what comes of them alone.

        These are the outputs of calls that use no other parameters, and steps that merge the result with other data.
        """
        used: dict[int, set[str]] = {}  # in each call
        made: set[int] = set()
        alone: set[int] = set()  # what is made with these parameters alone
        for value in self.side.values if names else ():
            takes = set(self.side.parameters_of(value)) - {""}
            others = {each for each in value.producers if self.side.weighted[each] and not self.side.parameter(each)}
            if not takes.isdisjoint(names):
                made.add(value.index)
                alone.add(value.index)
            elif not alone.isdisjoint(others):
                (alone if alone.issuperset(others) else made).add(value.index)
            for call in self.side.around(value.call) if takes else ():
                used.setdefault(call.index, set()).update(takes)
        outputs = self.side.table.outputs
        made |= {out for call, takes in used.items() if takes.issubset(names) for _, out in outputs.get(call, ())}
        return {self.tape.maker[each] for each in made if each in self.tape.maker}

    def places_like(self, place: int) -> tuple[list[int], ...]:
        """Return the steps that do the same as a step, the fewest first.

        In every layer, as the same of the operators on the same lines of all functions around it; for whoever calls its
        function; then whatever of them its line runs in every layer, on its line, and anywhere.
        """
        step, path, lines, turn = self.tape.steps[place], self._path_at(place), self.lines_of(place), self._turns[place]
        same = [k for k, each in enumerate(self.tape.steps) if each.operator == step.operator]
        on_line = [k for k in same if self.lines_of(k)[:1] == lines[:1]]
        layers = [k for k in on_line if self._path_at(k) == path]
        alike = [k for k in on_line if self._turns[k] == turn]
        called = [k for k in alike if k in layers and self.lines_of(k) == lines]
        return called, alike, layers, on_line, same

    @cached_property
    def _turns(self) -> list[int]:
        """How often the lines of each step have run its operator in its call before."""
        counts: Counter[Hashable] = Counter()
        turns = []
        for place, step in enumerate(self.tape.steps):
            made = self.outs_of(place)
            key = step.operator, self.lines_of(place), self.side.values[made[0]].call if made else None
            turns.append(counts[key])
            counts[key] += 1
        return turns

    def path_of(self, call: int | None) -> str:
        """Return the path of a call's module, without the numbers of layers."""
        return "" if call is None else starred(self.side.calls[call].path)

    def _path_at(self, place: int) -> str:
        made = self.outs_of(place)
        return self.path_of(self.side.call_of(self.side.values[made[0]]).index) if made else ""


def _shared(path: str, name: str) -> int:
    """Return how many modules a path and a name have in common."""
    return sum(
        1 for _ in takewhile(lambda parts: parts[0] == parts[1], zip(path.split("."), name.split("."), strict=False))
    )

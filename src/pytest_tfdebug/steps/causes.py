"""What may spoil the first gradient that differs: each cause with its line, and a change that would prove it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytest_tfdebug.steps.compare import is_same_gradient, is_same_value
from pytest_tfdebug.steps.gradients import SAME
from pytest_tfdebug.steps.remedies import Remedy
from pytest_tfdebug.steps.rows import PROJECTIONS
from pytest_tfdebug.steps.watch import LEAVES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pytest_tfdebug.steps.compare import BackwardPair, Wrong
    from pytest_tfdebug.steps.gradients import GradientSums
    from pytest_tfdebug.steps.remedies import RemedyKind
    from pytest_tfdebug.steps.table import Backward, Mark, Switch
    from pytest_tfdebug.values import Line, Value


@dataclass(frozen=True)
class Cause:
    """Something that may spoil a gradient."""

    lines: tuple[Line, ...]  # innermost first
    call: int | None  # of the port: the ``index`` of the call that was under way
    wrong: str  # what is wrong there, in a few words
    remedy: Remedy | None = None  # what would mend it
    mended: str = ""  # the same in words: ``without this detach``
    is_seen: bool = False  # whether the graph itself shows it
    reference: tuple[Line, ...] = ()  # the reference's lines that do it otherwise


#: What a mark is named by -> what is wrong, the remedy, and the remedy in words.
_MARKS: dict[str, tuple[str, RemedyKind | None, str]] = {
    "register_hook": ("a hook changes the gradient here", "unhook", "without this hook"),
    "register_post_accumulate_grad_hook": ("a hook changes the gradient here", "unhook", "without this hook"),
    "item": ("a number is taken out of torch here, and no gradient passes it", None, ""),
    "tolist": ("numbers are taken out of torch here, and no gradient passes them", None, ""),
    "numpy": ("numbers are taken out of torch here, and no gradient passes them", None, ""),
    "requires_grad_": ("a gradient is switched off here", "stay", "with a gradient"),
    "data": (".data leaves the graph here", "stay", "with the tensor in place of its .data"),
}


class CauseSearch:
    """The causes of a gradient that differs, the likeliest first.

    Args:
        pair: Both backwards.
        wrong: The first gradient that differs: what comes after it in the forward agrees.
    """

    def __init__(self, pair: BackwardPair, wrong: Wrong) -> None:
        self._pair, self._wrong = pair, wrong
        self._port, self._reference = pair.port, pair.reference
        self._values = pair.port.values.values

    def causes(self) -> list[Cause]:
        """Return the causes, each line once."""
        finders: tuple[Callable[[], Iterable[Cause]], ...] = (
            self._frozen,
            self._untied,
            self._hooked,
            self._unhooked,
            self._recomputed,
            self._cut,
            self._changed,
            self._marked,
            self._lost,
            self._extra,
            self._used,
        )
        found: dict[object, Cause] = {}
        for finder in finders:
            for cause in finder():
                key = (cause.lines[0][:2] if cause.lines else None, cause.remedy.kind if cause.remedy else None)
                found.setdefault(key, cause)
        return [*found.values()]

    # --- where to look

    @cached_property
    def _users(self) -> dict[int, list[Value]]:
        return self._port.users()

    @cached_property
    def region(self) -> dict[int, Value]:
        """What is computed from the value, up to the next that both sides compute and that gets a gradient.

        What gets none passes none on, though another value with its numbers may get the gradient: straight through.
        """
        across, graph = self._pair.across, self._port.graph

        def stops(value: Value) -> bool:
            return bool(across[value.index]) and graph[value.index].total.size > 0

        return _reach(self._users, self._wrong.members, stops)

    @cached_property
    def _expected_region(self) -> dict[int, Value]:
        back = self._pair.back
        return _reach(self._reference.users(), self._wrong.mates, lambda value: value.index in back)

    @cached_property
    def _inside(self) -> set[int]:
        return {*self._wrong.members, *self.region}

    @cached_property
    def _near(self) -> set[int]:
        """The same, and what a piece was cut from: its gradient is told by that of the whole."""
        found, todo = set(self._inside), sorted(self._wrong.members)
        while todo:
            index = todo.pop()
            found.add(index)
            if self._port.graph[index].is_piece:
                todo += self._values[index].producers
        return found

    @property
    def _value(self) -> Value | None:
        return None if self._wrong.value is None else self._values[self._wrong.value]

    # --- finders

    def _frozen(self) -> Iterator[Cause]:
        """A parameter that requires no gradient, or that nothing used."""
        name = self._wrong.parameter
        if name and name in self._port.frozen:
            yield self._at_use(name, f"{name} has requires_grad=False", is_seen=True)
        elif name and self._value is None:
            yield Cause((), None, f"{name} is not used", is_seen=True)

    def _untied(self) -> Iterator[Cause]:
        """Two parameters that are one on the reference's side: each gets a part of its gradient."""
        name, pairs = self._wrong.parameter, self._pair.parameters
        own = pairs.paired.get(name)
        if own is None:
            return
        twins = [other for other, pair in pairs.paired.items() if other not in own.names and pair.runs == own.runs]
        if not twins:
            return
        rows = [pairs.beside(each, self._port.rows, self._reference.rows) for each in (name, *twins)]
        apart = float(np.abs(sum(mine[:, :PROJECTIONS] for mine, _ in rows) - rows[0][1][:, :PROJECTIONS]).max())
        is_seen = apart <= SAME * float(np.abs(rows[0][1]).max())
        told = f"{' and '.join((name, *twins))} are one parameter in the reference, {own.others[0]}, and not tied here"
        yield self._at_use(name, told, is_seen=is_seen)

    def _hooked(self) -> Iterator[Cause]:
        """Hooks that were put before the run: on the parameter, or on a module that the gradient passes."""
        hooks, name = self._port.hooks, self._wrong.parameter
        if name in hooks:
            told = f"a hook on {name} changes its gradient"
            yield Cause((hooks[name],), None, told, Remedy("unhook", hooks[name], name), "without this hook")
        inside = (self._values[index] for index in sorted(self._inside))
        for value in (each for each in inside if each.operator.startswith("BackwardHookFunction")):
            made = (self._values[index].call for index in value.producers)  # of a module that is over, its last value
            calls = (call for index in (value.call, *made) for call in self._pair.sides[1].around(index))
            for call in {each.path: each for each in calls if each.path in hooks}.values():
                line = hooks[call.path]
                told = f"a hook on {call.path} changes the gradient"
                yield Cause((line,), call.index, told, Remedy("unhook", line, call.path), "without this hook")

    def _unhooked(self) -> Iterator[Cause]:
        """A hook that the reference puts on the gradient, and the port does not."""
        own = any(_is_hook(mark.name) and not self._inside.isdisjoint(mark.values) for mark in self._port.marks)
        for mark in self._reference.marks:
            if _is_hook(mark.name) and not own and not self._wrong.mates.isdisjoint(mark.values):
                told = "the reference puts a hook on the gradient of what is used here"
                used = (replace(each, wrong=told, remedy=None, reference=mark.lines) for each in self._used())
                yield from islice(used, 1)
                return

    def _recomputed(self) -> Iterator[Cause]:
        """What the backward computes again and the forward never computed: dropout, a buffer that has changed."""
        forward: dict[object, list[Value]] = {}
        for value in self._values:
            if not self._port.graph[value.index].is_recomputed:
                forward.setdefault((value.operator, value.lines[:1]), []).append(value)
        made = [value for value in self._values if self._port.graph[value.index].is_recomputed]
        for value in made:
            if not value.operator or not value.print.elements or value.operator in LEAVES:
                continue
            same = forward.get((value.operator, value.lines[:1]), ())
            if same and not any(is_same_value(value, other) for other in same):
                wrong = f"{value.operator} gives another value when the backward makes it again"
                yield Cause(value.lines, same[0].call, wrong)
                return

    def _cut(self) -> Iterator[Cause]:
        """A value that has no gradient of its own: the operator that left the graph, or the switch."""
        if self._value is None or self._wrong.parameter:
            return
        graph = self._port.graph
        if any(graph[index].has_graph for index in self._wrong.members):
            return
        todo, met, taken = [self._value], set(), list[Cause]()
        while todo:
            value = todo.pop(0)
            if self._is_cut_here(value):
                yield self._left(value, graph[value.index].switch)
                return
            if value.origin in {"operator", "constant"} and not value.producers:
                yield from self._made_anew(value)
            for made in value.producers:
                if made not in met:
                    met.add(made)
                    todo.append(self._values[made])
                    taken += self._takes_what_left(value, self._values[made])
        yield from taken
        mask = self._pair._ancestors[1][self._value.index]  # noqa: SLF001 - of the pair that this search is of
        for value in self._values[: self._value.index]:
            if mask >> value.index & 1 and value.name in self._port.frozen:
                yield self._at_use(value.name, f"{value.name} has requires_grad=False", is_seen=True)
                return

    def _takes_what_left(self, value: Value, made: Value) -> Iterator[Cause]:
        """What takes a value that has rightly left the graph, where the reference's step is on one that has not.

        It is told where that value is at hand, not in a helper that is given it.
        """
        theirs = self._reference.graph
        is_live = any(theirs[mate].has_graph for mate in self._pair.across[value.index])
        if made.operator in LEAVES and made.lines and value.lines and is_live:
            left = made.lines[0]
            at = next((place for place, each in enumerate(value.lines) if each.function == left.function), 0)
            told = f"takes what {made.operator} gave at {Path(left.file).name}:{left.line}, which gets no gradient"
            yield Cause(value.lines[at:], value.call, told)

    def _made_anew(self, value: Value) -> Iterator[Cause]:
        """A tensor that is made of numbers which another value has, and which were taken out of torch."""
        alike = self._pair.own[value.index]
        if not any(self._port.graph[index].has_graph for index in alike):
            return
        for mark in self._port.marks:
            if mark.name in LEAVES and not set(alike).isdisjoint(mark.values):
                yield Cause(mark.lines, mark.call, _mark(mark.name)[0], is_seen=True)
        if value.lines:
            wrong = "a tensor is made of numbers here, and no gradient passes them"
            yield Cause(value.lines, value.call, wrong, is_seen=True)

    def _left(self, value: Value, switch: Switch | None) -> Cause:
        operator = value.operator or "an operator"
        if switch is None:
            wrong, _, mended = _mark(operator)
            remedy = Remedy("stay", value.lines[0], operator) if value.lines and operator in LEAVES else None
            return Cause(value.lines, value.call, wrong, remedy, mended if remedy else "", is_seen=True)
        own = self._port.graph[value.index]
        lines, call = switch.lines, switch.call
        is_here = self._is_beside(switch, value)
        remedy = Remedy("record", lines[0]) if lines else None
        wrong = f"{operator} runs with gradients switched off"
        if own.is_recomputed:
            wrong = "is made again with gradients switched off"
        if is_here:  # a block in the function that computes it: its own line says more than the block's
            lines, call = value.lines, value.call
        return Cause(lines, call, wrong, remedy, "with gradients on", is_seen=True)

    def _is_beside(self, switch: Switch, value: Value) -> bool:
        """Tell whether the function that switched gradients off is the one that computes a value."""
        if not switch.lines or not value.lines or switch.lines[0].function != value.lines[0].function:
            return False
        source = None if switch.call is None else self._pair.sides[1].calls[switch.call].source
        is_forward = source is not None and source.holds(switch.lines[0].file, switch.lines[0].line)
        return not is_forward or source is None or source.holds(value.lines[0].file, value.lines[0].line)

    def _changed(self) -> Iterator[Cause]:
        """What was written to though a backward needs it as it was."""
        graph = self._port.graph
        near = self._inside | {made for value in self.region.values() for made in value.producers}
        for index in sorted(near):
            if not graph[index].is_changed:
                continue
            value = self._values[index]
            writes = (
                user
                for user in self._values[index:]
                if user.operator.endswith("_") and user.print.elements == value.print.elements and user.lines
            )
            by = next(writes, value)
            wrong = f"{by.operator} changes a tensor behind autograd's back, and the backward needs it as it was"
            remedy = Remedy("skip", by.lines[0], by.operator) if by.lines else None
            yield Cause(by.lines, by.call, wrong, remedy, "without this write", is_seen=True)

    def _marked(self) -> Iterator[Cause]:
        """What leaves the graph, a hook, or a Function with its own backward, in the region."""
        found = [*self._marks()]
        near = {cause.lines[0][:2] for cause in (*self._lost(), *self._extra()) if cause.lines}
        found.sort(key=lambda cause: bool(near) and cause.lines[:1] and cause.lines[0][:2] not in near)
        yield from found

    def _marks(self) -> Iterator[Cause]:
        graph, late = self._port.graph, []
        for mark in self._port.marks:
            if not self._near.isdisjoint(mark.values) and mark.lines:
                wrong, kind, mended = _mark(mark.name)
                remedy = Remedy(kind, mark.lines[0], mark.name) if kind else None
                cause = Cause(mark.lines, mark.call, wrong, remedy, mended, self._is_only_mark(mark))
                if kind == "unhook":
                    yield cause
                else:
                    late.append(cause)
        for value in self.region.values():
            own = graph[value.index].own_backward
            if graph[value.index].is_recomputed:
                continue
            if own and value.lines:
                remedy = Remedy("derive", value.lines[0], own)
                wrong = f"{own} has another backward than its forward"
                yield Cause(value.lines, value.call, wrong, remedy, f"with {own} derived by autograd")
            elif self._is_cut_here(value):
                late.append(self._left(value, graph[value.index].switch))
        yield from late

    def _is_only_mark(self, mark: Mark) -> bool:
        """Tell whether a value that gets no gradient is used by one thing alone, which takes it out of torch."""
        marks = [each for each in self._port.marks if not self._wrong.members.isdisjoint(each.values)]
        return self._wrong.effect.kind == "none" and marks == [mark] and _mark(mark.name)[1] is None

    def _is_cut_here(self, value: Value) -> bool:
        """Tell whether a value leaves the graph that the reference's same operator does not leave."""
        graph = self._port.graph
        if graph[value.index].has_graph or value.operator.startswith("new_") or value.operator.endswith("_like"):
            return False
        if not any(graph[made].has_graph for made in value.producers):
            return False
        theirs = self._reference
        mates = (theirs.values.values[mate] for mate in self._pair.across[value.index])
        return not any(not theirs.graph[mate.index].has_graph and mate.operator == value.operator for mate in mates)

    @cached_property
    def _edges(self) -> tuple[list[tuple[Value, GradientSums]], list[tuple[Value, GradientSums]]]:
        """What operators send that has no partner: the port's, and the reference's."""
        own = _sent(self._port, self.region, self._wrong.members)
        expected = _sent(self._reference, self._expected_region, self._wrong.mates)
        extra = [each for each in own if not any(is_same_gradient(each[1], other[1]) for other in expected)]
        missing = [each for each in expected if not any(is_same_gradient(each[1], other[1]) for other in own)]
        return extra, missing

    def _lost(self) -> Iterator[Cause]:
        """What the reference's operator sends, and the port's that computes the same does not."""
        extra, missing = self._edges
        for value, _ in missing:
            mine = [index for index in self._pair.back.get(value.index, ()) if index in self.region]
            if mine:
                own = self._values[mine[0]]
                told = "another gradient than the reference's" if extra else "no gradient back to what it is given"
                wrong = f"{own.operator} sends {told}"
                yield Cause(own.lines, own.call, wrong, self._rescaled(own), "", reference=value.lines)

    def _extra(self) -> Iterator[Cause]:
        """What only the port's operator sends."""
        extra, missing = self._edges
        lines = missing[0][0].lines if missing else ()
        for value, _ in reversed(extra):
            wrong = f"{value.operator} sends another gradient than the reference's"
            yield Cause(value.lines, value.call, wrong, self._rescaled(value), "", reference=lines)

    def _rescaled(self, user: Value) -> Remedy | None:
        what = self._wrong.effect
        if what.kind != "factor" or not what.factor or not user.lines:
            return None
        return Remedy("factor", user.lines[0], "", 1 / what.factor)

    def _used(self) -> Iterator[Cause]:
        """The first that is computed from the value, and has a gradient if one has."""
        graph = self._port.graph
        for value in sorted(self.region.values(), key=lambda each: (not graph[each.index].has_graph, each.index)):
            if value.lines:
                yield Cause(value.lines, value.call, f"{value.operator} uses it first", self._rescaled(value))
                return
        if self._value is not None:
            yield Cause(self._value.lines, self._value.call, f"{self._value.operator} is not used as in the reference")

    def _at_use(self, name: str, wrong: str, *, is_seen: bool = False) -> Cause:
        users = (value for value in self._values if any(self._values[made].name == name for made in value.producers))
        use = next(users, None)
        return Cause(use.lines if use else (), use.call if use else None, wrong, is_seen=is_seen)


def _is_hook(name: str) -> bool:
    return _mark(name)[1] == "unhook"


def _mark(name: str) -> tuple[str, RemedyKind | None, str]:
    kind: RemedyKind | None = "stay" if name in LEAVES else None
    return _MARKS.get(name, (f"{name} leaves the graph here", kind, f"without this {name}"))


def _reach(users: dict[int, list[Value]], start: Iterable[int], stops: Callable[[Value], bool]) -> dict[int, Value]:
    first = set(start)
    todo, found = sorted(first), dict[int, "Value"]()
    while todo:
        for user in users.get(todo.pop(), ()):
            if user.index not in found:
                found[user.index] = user
                if user.index in first or not stops(user):
                    todo.append(user.index)
    return found


def _sent(side: Backward, region: dict[int, Value], to: Iterable[int]) -> list[tuple[Value, GradientSums]]:
    wanted = set(to)
    return [
        (value, sums)
        for value in region.values()
        for made, sums in side.graph[value.index].sent.items()
        if made in wanted
    ]

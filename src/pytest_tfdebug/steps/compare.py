"""Two backwards side by side: which value is which, and whose gradient is another.

Values pair by what they are, as in a forward. All values of one side with the same numbers are one group: what a group
gets is the sum over those that no other of the group comes before, so that a port may compute a value twice, copy it or
move its elements.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pytest_tfdebug.parity.proof.matching import Matches
from pytest_tfdebug.parity.proof.value_graph import Side
from pytest_tfdebug.steps.gradients import NOISE, NOTHING, SAME, Effect, GradientSums, difference, effect
from pytest_tfdebug.steps.rows import PROJECTIONS, ParameterPairs
from pytest_tfdebug.steps.table import is_measured
from pytest_tfdebug.values import distance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.steps.gradients import Floats
    from pytest_tfdebug.steps.table import Backward
    from pytest_tfdebug.values import Value

#: Distance of two fingerprints up to which they are of one value: see ``parity.proof.matching.TOLERANCES``.
SAME_VALUE = 2e-5
#: Share of the greatest gradient below which that of a parameter is rounding: of a bias before a norm nothing is left.
_ROUNDING = 1e-6
#: Share of its size by which a loss may differ.
SAME_LOSS = 1e-5


@dataclass(frozen=True)
class Wrong:
    """A value or a parameter whose gradient is not the reference's."""

    value: int | None  # index of the port's value; None for a parameter that its forward never used
    parameter: str  # name of the port's parameter, empty for a value
    effect: Effect
    error: float
    members: frozenset[int]  # the port's values with the same numbers
    mates: frozenset[int]  # the reference's
    position: float  # where it stands in the order of the forward; a parameter stands before its first use


@dataclass
class HeldGradients:
    """What came of holding one backward to another."""

    wrong: list[Wrong]
    values: int = 0  # groups of values whose gradients were compared
    parameters: int = 0  # parameters whose gradients were compared
    worst: float = 0.0  # greatest error of a gradient that agrees
    unpaired: tuple[str, ...] = ()  # parameters of the port that hold no numbers of the reference
    missing: tuple[str, ...] = ()  # parameters of the reference that the port does not hold
    silent: tuple[str, ...] = ()  # parameters that get no gradient on the reference's side
    first: Wrong | None = None  # the one that a backward comes to first: what comes after it in the forward agrees


#: Where a gradient ends.
_ENDS = frozenset({"parameter", "input"})


class BackwardPair:
    """Two backwards."""

    def __init__(self, reference: Backward, port: Backward) -> None:
        self.reference, self.port = reference, port
        self.sides = Side(reference.values), Side(port.values)
        self.parameters = ParameterPairs(port.rows, reference.rows)
        self._ancestors = reference.ancestors(), port.ancestors()

    @cached_property
    def across(self) -> list[list[int]]:
        """The reference's values that each value of the port is."""
        found = Matches(self.sides[1], self.sides[0])
        return [found.within(value.index, SAME_VALUE) for value in self.port.values.values]

    @cached_property
    def own(self) -> list[list[int]]:
        """The values of the port that each of its values is, itself included."""
        return _groups(self.sides[1])

    @cached_property
    def back(self) -> dict[int, list[int]]:
        """The port's values that each value of the reference is."""
        found: dict[int, list[int]] = {}
        for index, mates in enumerate(self.across):
            for mate in mates:
                found.setdefault(mate, []).append(index)
        return found

    @cached_property
    def alive(self) -> int:
        """The port's values, as a bit mask, that lead to the loss, or out of the graph, or into what is written to."""
        port, ancestors = self.port, self._ancestors[1]
        ends = [index for mark in port.marks for index in mark.values]
        ends += [value.index for value, graph in zip(port.values.values, port.graph, strict=True) if graph.is_changed]
        ends += [value.index for value in port.values.values if value.operator in _WRITES]
        mask = 0
        for index in (*ends, *(() if port.last is None else (port.last,))):
            mask |= ancestors[index] | 1 << index
        return mask

    def gradients(self, members: Sequence[int], *, is_port: bool) -> list[GradientSums]:
        """Return the ways to take the gradient of a group: all of it, or what one root gets. None if unheard."""
        side, ancestors = (self.port, self._ancestors[1]) if is_port else (self.reference, self._ancestors[0])
        first = _first_of(members, ancestors)
        if any(side.graph[index].is_unheard for index in first):
            return []
        roots = [side.graph[index].total for index in first]  # one of several may be cut on purpose, and get nothing
        total = sum((each for each in roots if each.size), NOTHING)
        if total.size:
            return [total, *(roots if len(roots) > 1 else ())]
        # straight-through: all roots are cut on purpose, and what was made a leaf again does not take their place
        inside = [index for index in members if not side.graph[index].is_leaf or side.graph[index].is_recomputed]
        heard = [index for index in inside if side.graph[index].total.size]
        return [sum((side.graph[index].total for index in _first_of(heard, ancestors)), NOTHING)]

    @property
    def has_same_loss(self) -> bool:
        """Whether both losses are one, up to the rounding of the numbers that they are summed from."""
        own, expected = self.port.loss, self.reference.loss
        size = max(abs(own), abs(expected), _summed(self.reference))
        return not abs(own - expected) > SAME_LOSS * size

    @property
    def scale(self) -> float:
        """How many times the reference's gradients the port's are, where one side scales the other's loss."""
        if self.port.last is None or self.reference.last is None:
            return 1.0
        own = [float(self.port.graph[index].total.sums[0]) for index in self.back.get(self.reference.last, ())]
        theirs = [float(self.reference.graph[index].total.sums[0]) for index in self.across[self.port.last]]
        return next((k for k in (*own, *(1 / k for k in theirs if k)) if k), 1.0)

    def compare(self, unseen: frozenset[str] = frozenset(), trained: frozenset[str] = frozenset()) -> HeldGradients:
        """Compare the gradients of all that pairs.

        Args:
            unseen: Parameters that are left out, and what gets a gradient for them alone: no optimiser sees theirs.
            trained: Parameters of which steps have shown that their gradients are right.
        """
        found = HeldGradients([])
        known = zip(self.reference.values.values, self.reference.graph, strict=True)
        floor = NOISE * max((value.print.rms * float(graph.total.sizes[1]) for value, graph in known), default=0.0)
        for value in self.port.values.values:
            self._compare_value(value, floor, found)
        if unseen:
            seen = sum(1 << each.index for each in self.port.values.values if self._is_seen(each, unseen))
            found.wrong = [each for each in found.wrong if not self._is_of_unseen(each, seen)]
        self._compare_parameters(found, unseen, trained)
        if any(self._is_shown(each, found) for each in found.wrong):
            found.first = self._first(found.wrong)
        return found

    @staticmethod
    def _is_seen(value: Value, unseen: frozenset[str]) -> bool:
        return value.origin == "input" or (value.origin == "parameter" and value.name not in unseen)

    def _is_of_unseen(self, one: Wrong, seen: int) -> bool:
        """Tell whether a value gets a gradient that it should not, for parameters alone that no optimiser sees."""
        return one.effect.kind == "extra" and one.value is not None and not self._ancestors[1][one.value] & seen

    def _is_shown(self, one: Wrong, found: HeldGradients) -> bool:
        """Tell whether training would show what is wrong: in the gradient of an input, or of a parameter.

        A value within may rightly get another one, where the reference computes in one step what the port does in two:
        what it passes on to then agrees. Where nothing of that was compared, nobody knows, and it counts.
        """
        if one.value is None or self.port.values.values[one.value].origin in _ENDS:
            return True
        before = self._ancestors[1][one.value] & self._ends
        uncompared = {value.index for value in self.port.values.values if value.name in found.unpaired}
        return before > 0 and not before & ~sum(1 << index for index in uncompared)

    @cached_property
    def _ends(self) -> int:
        """The port's parameters and inputs that require a gradient, as a bit mask."""
        known = zip(self.port.values.values, self.port.graph, strict=True)
        return sum(1 << value.index for value, graph in known if value.origin in _ENDS and graph.has_graph)

    def _first(self, wrong: list[Wrong]) -> Wrong | None:
        """Return the one nearest to the loss: from which nothing is computed that is wrong too.

        A piece gets what its whole gets there: where that is wrong, another use of the whole may be.
        """
        wrong = [each for each in wrong if not self._is_only_in_wrong(each)] or wrong
        ancestors, bits = self._ancestors[1], [sum(1 << index for index in each.members) for each in wrong]
        masks = [
            0 if each.value is None else ancestors[each.value] & ~own for each, own in zip(wrong, bits, strict=True)
        ]
        last = [each for each, own in zip(wrong, bits, strict=True) if not any(mask & own for mask in masks)]
        return max(last or wrong, key=lambda each: each.position, default=None)

    def _is_only_in_wrong(self, one: Wrong) -> bool:
        """Tell whether a value is a piece of another, and sends on to that what it should: its other uses are wrong."""
        if one.value is None or not self.port.graph[one.value].is_piece:
            return False
        if one.members.intersection(self.port.values.values[one.value].producers):  # it is the whole, in another order
            return False
        own = self.port.graph[one.value].sent.values()
        expected = [each for mate in one.mates for each in self.reference.graph[mate].sent.values()]
        return any(is_same_gradient(mine, theirs) for mine in own for theirs in expected if mine.size)

    def _compare_value(self, value: Value, floor: float, found: HeldGradients) -> None:
        graph, known = self.port.graph[value.index], self.reference.values.values
        mates = [mate for mate in self.across[value.index] if is_measured(known[mate])]
        is_inside_function = not graph.is_grad_on and graph.switch is None and graph.is_leaf
        if value.origin in {"parameter", "buffer"} or not mates or not value.print.elements or graph.is_recomputed:
            return
        members = [index for index in self.own[value.index] if not self.port.graph[index].is_recomputed]
        if is_inside_function or not self.alive >> value.index & 1 or min(members) != value.index:
            return
        all_mates = sorted(mates)
        own = self.gradients(self.own[value.index], is_port=True)
        expected = self.gradients(all_mates, is_port=False)
        if not own or not expected:
            return
        if len(own) == len(expected):  # as often on both sides: all of it is to be all of it
            own, expected = own[:1], expected[:1]
        rms = value.print.rms
        seen = difference(own, expected, floor / rms if rms else 0.0)
        found.values += 1
        if seen.error <= SAME:
            found.worst = max(found.worst, seen.error)
            return
        what = effect(seen.own.sums, seen.expected.sums, seen.own.size, seen.expected.size)
        alike = [index for index in members if is_same_gradient(self.port.graph[index].total, seen.own)]
        if not alike:  # computed several times
            totals = [self.reference.graph[mate].total for mate in all_mates]
            pairs = [(index, self.port.graph[index].total) for index in members]
            alike = [index for index, own in pairs if not any(is_same_gradient(own, each) for each in totals)]
        last = max(alike, default=value.index)  # of a value that is handed on, the gradient came by the last
        found.wrong.append(Wrong(last, "", what, seen.error, frozenset(members), frozenset(all_mates), last))

    def _compare_parameters(self, found: HeldGradients, unseen: frozenset[str], trained: frozenset[str]) -> None:
        port, reference = self.port, self.reference
        found.unpaired, found.missing = self.parameters.unpaired, self.parameters.missing
        names = [name for name in self.parameters.paired if name not in unseen]
        beside = {name: self.parameters.beside(name, port.rows, reference.rows) for name in names}
        greatest = max((float(np.abs(own[:, -1]).max(initial=0.0)) for _, own in beside.values()), default=0.0)
        uses = self._first_uses()
        places = {value.name: value.index for value in port.values.values if value.origin == "parameter"}
        named = {value.name: value.index for value in reference.values.values if value.origin == "parameter"}
        silent = [name for name in self.parameters.paired if name in unseen]
        for name, (mine, theirs) in beside.items():
            found.parameters += 1
            error = row_error(mine, theirs, greatest)
            if not theirs[:, -1].any():
                silent.append(name)
            together = self.parameters.paired[name].names
            if error <= SAME or name in trained or name != together[0]:
                found.worst = max(found.worst, min(error, SAME))
                continue
            own, expected = mine[:, :PROJECTIONS].ravel(), theirs[:, :PROJECTIONS].ravel()
            sizes = [float(np.linalg.norm(each[:, -1])) * np.sqrt(len(own)) for each in (mine, theirs)]
            what = effect(own, expected, *sizes)
            index = places.get(name)
            used = [uses.get(places[each], places[each]) - 0.5 for each in together if each in places]
            position = min(used, default=-1.0)  # of several nobody knows which
            mates = frozenset(named[other] for other in self.parameters.paired[name].others if other in named)
            members = frozenset() if index is None else frozenset([index])
            found.wrong.append(Wrong(index, name, what, error, members, mates, position))
        found.silent = tuple(silent)

    def _first_uses(self) -> dict[int, int]:
        found: dict[int, int] = {}
        for value in self.port.values.values:
            for made in value.producers:
                found.setdefault(made, value.index)
        return found


def _first_of(members: Sequence[int], ancestors: Sequence[int]) -> list[int]:
    """Return those of some values that no other of them comes before."""
    mask = sum(1 << index for index in set(members))
    return [index for index in members if not ancestors[index] & mask]


def is_same_gradient(one: GradientSums, other: GradientSums) -> bool:
    """Tell whether two gradients are one, as far as their sums tell."""
    size = max(float(one.sizes.max()), float(other.sizes.max()), 1e-300)
    return float(np.abs(one.sums - other.sums).max()) <= SAME * size


#: Operators that write where nobody who reads the line of the value would look.
_WRITES = frozenset({"add_", "mul_", "sub_", "div_", "copy_", "clamp_", "index_add_", "masked_fill_", "zero_", "fill_"})


def _summed(side: Backward) -> float:
    """Return how large the numbers are that a loss is summed from: they may cancel each other."""
    todo, met = [side.last] if side.last is not None else [], set()
    found = 0.0
    while todo:
        index = todo.pop()
        if index in met:
            continue
        met.add(index)
        value, total = side.values.values[index], side.graph[index].total
        if value.print.elements > 1:
            found = max(found, value.print.rms * float(total.sizes[1]))
        else:
            todo += value.producers
    return found


def row_error(mine: Floats, theirs: Floats, greatest: float) -> float:
    """Return how far what one parameter holds is from what it should, as a share; 0 for what is only rounding.

    Args:
        mine: Projections and size of each row, ``(rows, PROJECTIONS + 1)``.
        theirs: The same of the reference.
        greatest: Norm of the greatest row of all parameters.
    """
    broken, should_be = (~np.isfinite(rows).all(1) for rows in (mine, theirs))
    if (broken != should_be).any():  # a number that is none is as far off as can be
        return math.inf
    mine, theirs, greatest = mine[~broken], theirs[~broken], greatest if math.isfinite(greatest) else 0.0
    apart = float(np.sqrt(np.square(mine[:, :PROJECTIONS] - theirs[:, :PROJECTIONS]).sum() / PROJECTIONS))
    size = max(float(np.linalg.norm(mine[:, -1])), float(np.linalg.norm(theirs[:, -1])))
    if apart < _ROUNDING * greatest * len(mine) ** 0.5:
        return 0.0
    return float(apart / max(size, 1e-5 * greatest * len(mine) ** 0.5, 1e-300))


def _groups(side: Side) -> list[list[int]]:
    """Return of each value those with the same numbers, itself first."""
    found = Matches(side, side)
    groups = []
    for value in side.values:
        near = found.within(value.index, SAME_VALUE)
        groups.append(sorted({value.index, *near}))
    return groups


def is_same_value(one: Value, other: Value) -> bool:
    """Tell whether two values have the same numbers."""
    return distance(one.print, other.print) <= SAME_VALUE

"""Which value of a port stands for which of its reference, once two values count as one up to a tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from pytest_tfdebug.parity.closeness import SAME
from pytest_tfdebug.parity.proof.matching import OpenValues
from pytest_tfdebug.parity.proof.value_graph import hidden_share, is_same_share, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.values import Value

#: What is wrong with the first value that nothing explains.
Fault = Literal["replaced", "operand", "left-out", "extra", "weights", "unknown", "order", "proved"]


@dataclass
class Finding:
    """What the values of two forwards say."""

    fault: Fault  # what is wrong
    call: Call  # the port's call that is to blame
    # the port's values that are shown, the first alone if they lie too far apart; empty where it has none
    values: list[Value]
    reference: Value | None  # the first value of the reference that the port never computes
    reference_call: Call | None  # the call of the reference that holds its line
    weights: tuple[str, ...] = ()  # names of parameters that are wrong
    depth: int = 0  # which of a value's lines is meant: 0 for the innermost, 1 for its caller's
    # how many times further the first value is from the reference's than what it is computed from
    growth: float = math.inf


#: Likeness from which a value stands for another.
_LEAST = 1.5
#: Lines around an open value that may be wrong as well, where nothing tells which.
_AROUND = 3
#: As many lines as a value has.
ALL_LINES = 99


class Counterparts:
    """The two forwards at one tolerance."""

    def __init__(self, pair: ForwardPair, tolerance: float, results: Sequence[int], expected: Sequence[int]) -> None:
        self.pair, self.port, self.reference = pair, pair.port, pair.reference
        self.weights, self.back = pair.weights, pair.back
        self.matches, self.back_matches = pair.matches, pair.back_matches
        self.tolerance = tolerance
        self.port_open = OpenValues(pair.port, pair.matches, tolerance, results, known=pair.weights.known)
        self.reference_open = OpenValues(pair.reference, pair.back_matches, tolerance, expected, known=pair.back.known)

    @cached_property
    def _explained(self) -> list[int]:
        """The port's values that lead to its outputs and are not open."""
        return sorted(self.port.live - self.port_open.open)

    def found(
        self,
        fault: Fault,
        call: Call,
        values: list[Value],
        reference: Value | None = None,
        *,
        weights: tuple[str, ...] = (),
        depth: int = 0,
    ) -> Finding:
        """Return a finding; the reference's call is the one that computed its value."""
        around = None if reference is None or reference.call is None else self.reference.calls[reference.call]
        return Finding(fault, call, values, reference, around, weights, depth)

    def corresponds(self, mine: int, theirs: int) -> bool:
        """Tell whether a value of the port is one of the reference's, or a mask that hides the same share."""
        name = self.port.parameter(mine)
        shares = hidden_share(self.port.values[mine]), hidden_share(self.reference.values[theirs])
        if not self.port.weighted[mine] and is_same_share(*shares):
            return True
        if name:
            partners = self.weights.partners.get(name, ())
            counts = [side.values[at].print.elements for side, at in ((self.port, mine), (self.reference, theirs))]
            is_part = len(partners) == 1 and counts[0] != counts[1]  # some rows of a table are not the table
            return self.reference.parameter(theirs) in partners and not is_part
        return theirs in self.matches.within(mine, self.tolerance)

    def counterpart(self, first: Value) -> Value | None:
        """Return the open value of the reference that does most nearly what a value of the port does."""
        best, most = None, 0.0
        for index in sorted(self.reference_open.open):
            value = self.reference.values[index]
            if not value.operator:
                continue
            score = self.likeness(first, value)
            if score > most:
                best, most = value, score
        return best if most >= _LEAST else None

    def likeness(self, mine: Value, theirs: Value) -> float:
        """Return how nearly two values are the same step: 1 for the kind, 1 for each operand, 2 for each parameter."""
        if mine.is_moved != theirs.is_moved:
            return 0.0
        shared = sum(
            1.0 + bool(self.port.parameter(made))
            for made in mine.producers
            if any(self.corresponds(made, other) for other in theirs.producers)
        )
        return shared + (1.0 if kind_of(mine) == kind_of(theirs) else 0.0)

    def open_around(self, first: Value) -> list[Value]:
        """Return the port's open values of the lines around one: any may be wrong, with nothing to hold them to."""
        values = [self.port.values[index] for index in sorted(self.port_open.open)]
        return [
            value
            for value in values
            if _is_in_same_function(value, first) and abs(value.lines[0].line - first.lines[0].line) <= _AROUND
        ] or [first]

    def apart(self, first: Value, other: Value) -> tuple[list[int], list[int]]:
        """Return the operands of two values that have no counterpart among the other's."""
        mine = [made for made in first.producers if not any(self.corresponds(made, each) for each in other.producers)]
        theirs = [made for made in other.producers if not any(self.corresponds(each, made) for each in first.producers)]
        return mine, theirs

    def operands(self, first: Value, other: Value) -> tuple[list[int], list[int]]:
        """Return the unmatched operands that depend on parameters; all unmatched operands if none does."""
        mine, theirs = self.apart(first, other)
        weighted, reference = self.port.weighted, self.reference.weighted
        mine = [made for made in mine if weighted[made] or self.port.values[made].print.elements > 1]
        mine.sort(key=lambda made: bool(self.port.parameter(made)))  # try what is computed before parameters
        if any(weighted[made] for made in mine) or any(reference[made] for made in theirs):
            return [made for made in mine if weighted[made]], [made for made in theirs if reference[made]]
        return mine, theirs

    def alike_elsewhere(self, value: Value, depth: int = 1) -> Iterator[Value]:
        """Yield values that a line gave in other places of this forward, and that lead to right results.

        An empty one, of an expert that no token goes to, is right whatever the line does.
        """
        for other in map(self.port.values.__getitem__, self._explained):
            if (
                other.operator == value.operator
                and other.lines[:depth] == value.lines[:depth]
                and other.index != value.index
                and other.print.elements
                and not self.port.leads_to(other.index, self.port_open.open)
            ):
                yield other

    def right_in_other_calls(self, value: Value) -> Iterator[Value]:
        """Yield values of the reference that a line gave in other calls of the same module.

        Its code, its numbers and its parameters are right, whatever comes of what it gave then.
        """
        path = self.port.call_of(value).path
        for other in map(self.port.values.__getitem__, self._explained):
            if (
                other.call != value.call
                and other.lines == value.lines[: len(other.lines)]
                and other.operator == value.operator
                and self.port.call_of(other).path == path
                and other.tells
                and not other.is_moved
                and self.matches.within(other.index, SAME)
            ):
                yield other

    def agrees_elsewhere(self, value: Value, depth: int = 1) -> bool:
        """Tell whether a line gave what leads to right results in another place of this forward."""
        return next(iter(self.alike_elsewhere(value, depth)), None) is not None

    def origin(self, index: int) -> Value:
        """Return the first open value of the reference that led to one of its open values."""
        values = self.reference.values
        reached: set[int] = set()
        todo = [index]
        while todo:
            at = todo.pop()
            if at not in reached and at in self.reference_open.open and values[at].operator:
                reached.add(at)
                todo += values[at].producers
        first = self.reference_open.first({at for at in reached if self.reference.weighted[at]} or reached)
        return first[0] if first else values[index]

    def wrong_weights(self, first: Value) -> tuple[str, ...]:
        """Return the parameters of a value that the reference has not, though it should.

        A parameter that is cut or joined in a way of its own is no wrong one: the reference must lack one of the same
        number of elements, or have those of other layers. Nor is one of a port that gets right results with others that
        the reference has not: batch norms that were folded into convolutions, say.
        """
        weights, table = self.weights, self.port.table.parameters
        lacking, names = self._lacking if not self._are_unknown_right else (), self.port.parameters_of(first)
        return tuple(
            name
            for name in names
            if name in weights.unknown and (table[name][0].elements in lacking or weights.is_known_elsewhere(name))
        )

    def misplaced(self, value: Value) -> tuple[str, ...]:
        """Return the parameters of a value that hold another place's, or lie in another order than in other layers."""
        table, lacking = self.port.table.parameters, self._lacking
        return tuple(
            name
            for name in filter(None, self.port.parameters_of(value))
            if self.weights.is_misplaced(name) or self.weights.is_doubled(name, lacking, table[name][0].elements)
        )

    @cached_property
    def _are_unknown_right(self) -> bool:
        """Whether the port computes what is right with parameters that the reference has not."""
        unknown, values = self.weights.unknown, map(self.port.values.__getitem__, self._explained)
        return any(
            value.tells and not value.is_moved and not unknown.isdisjoint(self.port.parameters_of(value))
            for value in (values if unknown else ())
        )

    @property
    def _lacking(self) -> set[int]:
        """The sizes of the parameters of the reference that the port does not hold."""
        return {self.reference.table.parameters[name][0].elements for name in self.back.unknown}


def _is_in_same_function(value: Value, first: Value) -> bool:
    if value.call != first.call or not value.lines or not first.lines:
        return False
    one, other = value.lines[0], first.lines[0]
    return (one.file, one.function) == (other.file, other.function)

"""From the call in which two forwards of one model part to its line: the first operator that gives something else.

Both forwards are made once more with every operator on a tape. From the tensor that differs the way goes back to what
it was computed from, inside the call, as long as that differs as well. ``probabilities = (scores + bias).softmax(-1)``,
say, where scores and bias agree at real tokens and the probabilities do not: pads have weight there.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.invariance.compare.traces import call_at, tells_apart
from pytest_tfdebug.parity.find.values import line_of, lines_of_model
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.tracing.values.slicing import feeding, statement_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.invariance.calls.alignment import Alignment
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.records import Call, Divergence
    from pytest_tfdebug.tracing.values.tape import Tape
    from pytest_tfdebug.values import Line, Value, Values


class Taped(NamedTuple):
    """A forward with every operator, and the tensors that they gave."""

    side: Side
    tape: Tape

    def call(self, path: str, number: int) -> Call | None:
        """Return a call by its module path and its number among the calls of that module."""
        return call_at(self.side.table.calls, path, number)


class Place(NamedTuple):
    """Where two forwards part, inside a call."""

    source: SourceRange  # the statement, or from the first to the last of those that may be
    function: str  # name of the function that holds it, where the forward calls it; empty in the forward itself
    callers: tuple[SourceRange, ...]  # the statements that lead to it from the forward, innermost first


class _Turn(NamedTuple):
    """An operator of a call, as the other side may have it."""

    operator: str
    line: Line
    turn: int  # how often that line has run it in the call before


@dataclass(frozen=True)
class TapedPair:
    """Two forwards of one model, operator by operator."""

    expected: Taped
    actual: Taped
    alignment: Alignment  # where the expected sequence lies in the actual one
    tolerances: Tolerances

    def is_read(self, at: Divergence) -> bool:
        """Tell whether what a call returned is used: a recurrent layer returns its last state, too, to who asks."""
        side, call = self.expected.side, self.expected.call(at.path, at.call)
        index = None if call is None else dict(side.table.outputs.get(call.index, ())).get(at.leaf)
        if call is None or index is None or call.parent is None or at.direction != "output":
            return True
        return index in side.ancestors(*(made for _, made in side.table.results))

    def place(self, path: str, at: Divergence) -> Place | None:
        """Return the lines at which both part in a call; None where operators do not tell.

        Args:
            path: Module path of the call: that which returned the tensor that differs, or gave it to another one.
            at: The tensor.
        """
        if not self.alignment.is_exact:  # frames and pixels: whatever grew is cut to its beginning
            return None
        end, side = self.actual.call(at.path, at.call), self.actual.side
        theirs, own = (self._around(each, path, at) for each in (self.expected, self.actual))
        if theirs is None or own is None or end is None:
            return None
        leaves = (side.table.inputs if at.direction == "input" else side.table.outputs).get(end.index, ())
        start = dict(leaves).get(at.leaf)
        return None if start is None else _WayBack(self, theirs, own).back_from(side.values[start])

    @staticmethod
    def _around(taped: Taped, path: str, at: Divergence) -> Call | None:
        """Return the call of a module around the one whose tensor differs, which it may be itself."""
        end = taped.call(at.path, at.call)
        around = () if end is None else taped.side.around(end.index)
        return next((each for each in around if each.path == path), None)

    def shared(self, theirs: Call, own: Call) -> dict[int, int]:
        """Return the values of a call that both sides compute, and what calls inside it return: own and expected.

        An operator and line that run more often on one side do not pair: nobody knows which is which.
        """
        table, others = self.actual.side.table, self.expected.side.table
        one, other = _computed_in(others, theirs), _computed_in(table, own)
        turns = [Counter((step.operator, step.line) for step in each) for each in (one, other)]
        found = {
            value.index: one[step].index for step, value in other.items() if turns[0][step[:2]] == turns[1][step[:2]]
        }
        for call in table.calls:
            partner = self.expected.call(call.path, call.call) if call.parent == own.index else None
            returned = {} if partner is None else dict(others.outputs.get(partner.index, ()))
            for leaf, index in table.outputs.get(call.index, ()):
                if leaf in returned:
                    found[index] = returned[leaf]
        return found


def _computed_in(values: Values, call: Call) -> dict[_Turn, Value]:
    """Return what operators gave in a call, outside of the calls inside it."""
    turns: Counter[tuple[str, Line]] = Counter()
    found = {}
    for value in values.values:
        if value.call == call.index and value.operator and value.lines:
            key = value.operator, value.lines[0]
            found[_Turn(*key, turns[key])] = value
            turns[key] += 1
    return found


class _WayBack:
    """The way back through the operators of one call."""

    def __init__(self, pair: TapedPair, theirs: Call, own: Call) -> None:
        self._pair, self._own, self._side = pair, own, pair.actual.side
        self._partners = pair.shared(theirs, own)
        self._known: dict[int, bool | None] = {}

    def back_from(self, value: Value) -> Place | None:
        """Go back from a value that differs to the first one that does, and return its lines.

        What lies between it and the nearest values that agree may be wrong, too.
        """
        while True:
            before = [*self._before(value)]
            differing = [each for each in before if self._agrees(each) is False and each.call == self._own.index]
            if not differing:
                break
            value = min(differing, key=lambda each: each.index)
        lines = self._lines(value)
        if value.call != self._own.index or not lines or value.operator == "convolution":
            return None  # a convolution is right: what it is given is to hold zeros at pads
        unknown = [self._lines(each) for each in before if not self._agrees(each)]
        place = _place([lines, *unknown])
        return place if unknown else place._replace(source=self._with_operands(place.source))

    def _with_operands(self, source: SourceRange) -> SourceRange:
        """Return some lines with the statements near them that make what they read: a mask that is left out, a number.

        A statement that only moves elements is told with what it moves.
        """
        first, todo = source.first, [source]
        while todo:
            for each in feeding(todo.pop()):
                first = min(first, each.first)
                if each.first < source.first and self._is_moved_at(each):
                    todo.append(each)
        return SourceRange(source.file, first, source.last)

    def _is_moved_at(self, lines: SourceRange) -> bool:
        made = [
            each.is_moved
            for each in self._side.values
            if each.call == self._own.index and each.lines and lines.holds(each.lines[0].file, each.lines[0].line)
        ]
        return bool(made) and all(made)

    def _before(self, value: Value) -> Iterator[Value]:
        """Yield the nearest values that a value was computed from of which something is known, and those between."""
        todo, seen = [*value.producers], {*value.producers}
        while todo:
            made = self._side.values[todo.pop()]
            if not made.operator or not self._side.is_within(made.call, self._own):
                continue
            yield made
            if self._agrees(made) is None and made.call == self._own.index:
                new = [each for each in made.producers if each not in seen]
                seen.update(new)
                todo += new

    def _agrees(self, value: Value) -> bool | None:
        """Tell whether a value is the expected one; None where nobody knows."""
        if value.index not in self._known:
            pair, partner = self._pair, self._partners.get(value.index, -1)
            own, expected = pair.actual.tape.tensors.get(value.index), pair.expected.tape.tensors.get(partner)
            differs = None
            if own is not None and expected is not None and partner >= 0:
                differs = tells_apart(expected, own, pair.alignment, pair.tolerances)
            self._known[value.index] = None if differs is None else not differs
        return self._known[value.index]

    def _lines(self, value: Value) -> tuple[Line, ...]:
        """Return the lines of the call by which a value came about, innermost first."""
        if value.call == self._own.index:
            return lines_of_model(value)
        line = line_of(self._side, value, self._own)
        return () if line is None else (line,)


def _place(found: list[tuple[Line, ...]]) -> Place:
    """Return the statements by which some values came about in the function of the first of them."""
    (first, *callers), spans = found[0], list[tuple[int, int]]()
    for lines in found:
        inner = lines[: len(lines) - len(callers)]
        if inner and lines[len(inner) :] == tuple(callers) and inner[-1].function == first.function:
            spans.append(statement_lines(first.file, inner[-1].line))
    source = SourceRange(first.file, min(span[0] for span in spans), max(span[1] for span in spans))
    called = dict.fromkeys(SourceRange(line.file, *statement_lines(line.file, line.line)) for line in callers)
    called.pop(source, None)
    return Place(source, first.function if called else "", tuple(called))

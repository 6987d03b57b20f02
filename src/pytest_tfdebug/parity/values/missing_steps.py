"""What to blame for a step of the reference that a port leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.parity.values.operator_kinds import kind_of

if TYPE_CHECKING:
    from pytest_tfdebug.parity.values.call_counterparts import CallCounterparts
    from pytest_tfdebug.parity.values.counterparts import Counterparts
    from pytest_tfdebug.parity.values.finding import Finding
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.values import Value

#: Likeness from which two values are the same step, of other operands.
_SAME_STEP = 2.0


class MissingSteps:
    """Blames the calls and lines of a port that go on without a step."""

    def __init__(self, counterparts: Counterparts, calls: CallCounterparts) -> None:
        self._counterparts, self._calls = counterparts, calls

    def left_out(self, first: Value, other: Value, mine: list[int], absent: int) -> Finding:
        """Blame what skips a step of the reference."""
        pair, port = self._counterparts, self._counterparts.port
        if mine:
            first, other, mine, absent = self._past_repeated(first, other, mine, absent)
        origin = pair.origin(absent)
        around = self._calls.holder(origin)
        source = port.computed(port.values[(mine or first.producers)[0]])
        idle = self._calls.holder_of_unused(origin)
        if idle is not None:
            ends = (first, source) if first.call == idle.index else (source, first)
            shown = [value for value in ends if port.is_within(value.call, idle)]
            return pair.found("left-out", idle, shown, origin, reference_call=around)
        if not mine:
            return self._left_out_of_none(first, origin, around)
        missing = pair.reference.values[absent]
        if max(pair.likeness(source, missing), pair.likeness(source, origin)) >= _SAME_STEP:
            return pair.found("replaced", port.call_of(source), [source], origin)
        return self._left_out(first, other, mine[0], origin, around)

    def _past_repeated(
        self, first: Value, other: Value, mine: list[int], absent: int
    ) -> tuple[Value, Value, list[int], int]:
        """Go back past what the port computes a second time: without a sum it repeats a norm."""
        pair, port, reference = self._counterparts, self._counterparts.port, self._counterparts.reference
        while True:
            source, missing = port.computed(port.values[mine[0]]), reference.computed(reference.values[absent])
            operands = zip(source.producers, missing.producers, strict=False)
            before = next((both for both in operands if both[1] in pair.reference_open.open), None)
            if before is None or kind_of(source) != kind_of(missing) or not self._is_repeated(source):
                return first, other, mine, absent
            first, other, mine, absent = source, missing, [before[0]], before[1]

    def _is_repeated(self, value: Value) -> bool:
        """Tell whether another call of the port has computed the same before."""
        pair, port = self._counterparts, self._counterparts.port
        partners = pair.matches.within(value.index, pair.tolerance)
        again = {each for partner in partners for each in pair.back_matches.within(partner, pair.tolerance)}
        return any(each < value.index and port.values[each].call != value.call for each in again)

    def _left_out_of_none(self, first: Value, origin: Value, around: Call) -> Finding:
        """Blame what skips a step and takes no value in its place."""
        pair, port = self._counterparts, self._counterparts.port
        limit = self._calls.partner_of(around)
        made = [port.computed(port.values[each]) for each in first.producers]
        left = [value for value in made if port.is_within(value.call, limit)]
        if left and not port.is_within(first.call, limit):  # the block ends without it, and the next goes on
            return pair.found("left-out", limit, left[:1], origin, reference_call=around)
        call = self._call_to_blame(first, first.producers[0], limit)
        return pair.found("left-out", call, [first], origin, reference_call=around)

    def _left_out(self, first: Value, other: Value, mine: int, origin: Value, around: Call) -> Finding:
        """Blame what goes on with another value than the one that is missing."""
        pair, port = self._counterparts, self._counterparts.port
        source = port.computed(port.values[mine])
        limit = self._calls.partner_of(around)
        if port.is_within(first.call, limit):
            call = self._call_to_blame(first, mine, limit)
            return pair.found(
                "left-out", call, self._between(source, first, origin, other), origin, reference_call=around
            )
        if port.is_within(source.call, limit):
            return pair.found("left-out", limit, [source], origin, reference_call=around)
        call = self._calls.with_operands(first, origin)
        return pair.found("left-out", call, [first], origin, reference_call=around)

    def never_computed(self, absent: Value) -> Finding:
        """Blame what skips a step, where no value of the port is open."""
        pair, port = self._counterparts, self._counterparts.port
        before = [mine for made in absent.producers for mine in pair.back_matches.within(made, pair.tolerance)]
        shown = [port.values[max(before)]] if before else []
        around = pair.reference.call_of(absent)
        call = self._calls.partner_of(around)
        if shown and not port.is_within(shown[0].call, call):
            call = port.call_of(shown[0])
        return pair.found("left-out", call, shown, absent, reference_call=around)

    def same_kind_after(self, other: Value, first: Value) -> Value | None:
        """Return the reference's value of the port's kind that was computed from another one at once."""
        reference = self._counterparts.reference
        todo = list(reference.users.get(other.index, ()))
        while todo:
            user = reference.values[todo.pop(0)]
            if kind_of(user) == kind_of(first):
                return user
            if user.is_moved:
                todo += reference.users.get(user.index, ())
        return None

    def _call_to_blame(self, first: Value, operand: int, limit: Call) -> Call:
        """Return the call, no further out than a limit, that did not already get the wrong operand from its caller."""
        port = self._counterparts.port
        call = port.call_of(first)
        while (
            call.index != limit.index
            and call.parent is not None
            and (call.source is None or self._calls.is_given(call, operand))
        ):
            call = port.calls[call.parent]
        return call

    def _between(self, source: Value, first: Value, origin: Value, other: Value) -> list[Value]:
        """Return the port's values between which a step of the reference is missing."""
        line = origin.lines[-1:]
        if any(made.lines[-1:] == line for made in self._counterparts.reference.computed_operands(origin)):
            return [source]
        if other.lines[-1:] == line or source.call != first.call:
            return [first]
        return [source, first]

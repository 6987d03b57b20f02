"""Which call of a port stands for which of its reference, by the values that were computed in them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.values.operator_kinds import kind_of

if TYPE_CHECKING:
    from pytest_tfdebug.parity.values.counterparts import Counterparts
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.values import Value


class CallCounterparts:
    """Finds the calls that are to blame for values."""

    def __init__(self, counterparts: Counterparts) -> None:
        self._counterparts = counterparts

    def partner_of(self, around: Call) -> Call:
        """Return the port's call that stands for one of the reference, or for the next one around it.

        It is the one in which most lies that is in the other, and in which least else lies; of several around each
        other the innermost, or the outermost if the reference has another one inside as well. Of norms, prefer
        the inner match.
        """
        port, reference = self._counterparts.port, self._counterparts.reference
        enclosing = ((call, self._inside(call)) for call in reference.around(around.index))
        theirs, inside = next(((call, inside) for call, inside in enclosing if any(inside)), (reference.root, []))
        sourced = [call for call in port.table.calls if call.source is not None]
        inner = 1 if all(self._inside(part) != inside for part in self._parts(theirs)) else -1
        best = max(sourced, key=lambda call: (self._fit(call, inside), inner * port.depth(call)), default=port.root)
        if not (fit := self._fit(best, inside)):
            return port.root
        if best.class_name != theirs.class_name and any(
            self._stands_for(best, part, fit) for part in self._parts(theirs)
        ):
            return next((call for call in port.around(best.parent) if call.source is not None), port.root)
        return best

    def _parts(self, theirs: Call) -> list[Call]:
        """Return the calls that a call of the reference makes."""
        return [call for call in self._counterparts.reference.table.calls if call.parent == theirs.index]

    def _stands_for(self, mine: Call, part: Call, fit: float) -> bool:
        """Tell whether a call of the port fits a part of one of the reference better than the whole."""
        fit_of_part = self._fit(mine, self._inside(part))
        short, long = sorted((mine.class_name, part.class_name), key=len)  # RMSNorm, LlamaRMSNorm
        return fit_of_part > fit or (fit_of_part == fit and long.endswith(short))

    def _inside(self, theirs: Call) -> list[bool]:
        """Return of each pair whether it lies in a call of the reference."""
        return [self._counterparts.reference.is_within(other, theirs) for _, other in self._paired_calls]

    def _fit(self, mine: Call, inside: list[bool]) -> float:
        """Return how well a call of the port holds some of the pairs: 1 if these and no others, 0 if none of them."""
        here = [self._counterparts.port.is_within(own, mine) for own, _ in self._paired_calls]
        both = sum(map(min, here, inside))
        return both**2 / (sum(here) * sum(inside)) if both else 0.0

    @cached_property
    def _paired_calls(self) -> list[tuple[int, int]]:
        """The calls in which equal values and parameters were seen, the port's and the reference's."""
        used = {
            value.name: value.call
            for value in self._counterparts.reference.values
            if value.origin == "parameter" and value.call is not None
        }
        found = []
        for value in self._counterparts.port.values:
            if value.call is None or value.print.is_constant:
                continue
            theirs = self._calls_alike(value, used)
            if len(theirs) == 1:
                found.append((value.call, theirs[0]))
        return found

    def _calls_alike(self, value: Value, used: dict[str, int]) -> list[int]:
        """Return the reference's calls that computed a value of the port, or used its parameter."""
        pair = self._counterparts
        if value.origin == "parameter":
            return [used[name] for name in pair.weights.partners.get(value.name, ()) if name in used]
        if (
            not value.operator
            or value.is_moved
            or value.index not in pair.port.live
            or value.index in pair.port_open.open
        ):
            return []
        near = [pair.reference.values[each] for each in pair.matches.within(value.index, pair.tolerance)]
        return [each.call for each in near if not each.is_moved and each.call is not None]

    def holder(self, value: Value) -> Call:
        """Return the innermost call of the reference around a value of which the port computes anything."""
        reference = self._counterparts.reference
        return next((call for call in reference.around(value.call) if self._is_begun(call)), reference.root)

    def _is_begun(self, call: Call) -> bool:
        """Tell whether the port computes anything of a call of the reference."""
        reference, is_open = self._counterparts.reference, self._counterparts.reference_open.open
        inside = (each for each in reference.values if each.producers and reference.is_within(each.call, call))
        return any(each.index not in is_open and not each.is_moved for each in inside)

    def with_operands(self, first: Value, origin: Value) -> Call:
        """Return the innermost call around a value that had all operands of a step of the reference; else its own."""
        pair, port = self._counterparts, self._counterparts.port
        operands = [pair.back_matches.within(made, pair.tolerance) for made in origin.producers]
        for call in port.around(first.call) if all(operands) else ():
            if all(
                any(port.is_within(port.values[each].call, call) or self.is_given(call, each) for each in alike)
                for alike in operands
            ):
                return call
        return port.call_of(first)

    def holder_of_unused(self, origin: Value) -> Call | None:
        """Return the port's call that should have used the parameter of a step of the reference, and did not.

        It is the call of the module that holds the parameter, or of the innermost one around that was called.
        """
        pair, port = self._counterparts, self._counterparts.port
        used = {value.name for value in port.values if value.origin == "parameter" and value.index in port.live}
        theirs = (name for made in self._made_of(origin) if (name := pair.reference.parameter(made)))
        unused = (own for name in theirs for own in pair.back.partners.get(name, ()) if own not in used)
        holders = {own.rpartition(".")[0] for own in unused}
        if len(holders) != 1:
            return None
        path = holders.pop()
        calls = {call.path: call for call in reversed(port.table.calls)}
        while path and path not in calls:
            path = path.rpartition(".")[0]
        return calls.get(path, port.root)

    def _made_of(self, origin: Value) -> list[int]:
        """Return what a step of the reference is computed from; of a call of which nothing is begun, all in it."""
        reference = self._counterparts.reference
        if origin.call is None or self._is_begun(reference.calls[origin.call]):
            return list(origin.producers)
        return [made for each in reference.values if each.call == origin.call for made in each.producers]

    def chooser(self, first: Value, meant: set[int], other: Value) -> Call:
        """Return the innermost call around a value that could have taken the value that was meant.

        A call that was given what is meant, and uses it where the reference uses something else, was given its
        arguments in the wrong order: its caller is to blame.
        """
        side = self._counterparts.port
        for call in side.around(first.call):
            given = {index for index in meant if self.is_given(call, index)}
            is_made = any(side.is_within(side.values[index].call, call) for index in meant - given)
            if call.source is not None and (is_made or (given and not self._is_misused(given, call, first, other))):
                return call
        return side.root

    def giver(self, first: Value, operand: int) -> Call:
        """Return the innermost call around a value that could have given it another operand.

        A module that is given one tensor has no choice.
        """
        side = self._counterparts.port
        for call in side.around(first.call):
            has_choice = len(side.table.inputs.get(call.index, ())) > 1 or not self.is_given(call, operand)
            if call.source is not None and has_choice:
                return call
        return side.root

    def _is_misused(self, given: set[int], call: Call, first: Value, other: Value) -> bool:
        """Tell whether a call uses a value that it was given in a step in which the reference does not."""
        port, reference = self._counterparts.port, self._counterparts.reference
        theirs = {
            each for index in given for each in self._counterparts.matches.within(index, self._counterparts.tolerance)
        }
        kinds = {kind_of(user) for index in theirs for user in reference.uses(index) if user is not other}
        return any(
            user is not first and port.is_within(user.call, call) and kind_of(user) not in kinds
            for index in given
            for user in port.uses(index)
        )

    def is_given(self, call: Call, index: int) -> bool:
        """Tell whether a call was given a value, or one that it is a view of."""
        port = self._counterparts.port
        given = {each for _, each in port.table.inputs.get(call.index, ())}
        bases = {value.index for value in port.moves(index)}
        return bool(given & {index, port.computed(port.values[index]).index, *bases})

    def with_parameters_of(self, call: Call) -> Value | None:
        """Return the first value that the reference computes with a parameter that a call of the port uses."""
        port, reference = self._counterparts.port, self._counterparts.reference
        names = {name for value in port.values if value.call == call.index for name in port.parameters_of(value)}
        theirs = {each for name in names for each in self._counterparts.weights.partners.get(name, ())}
        return next((value for value in reference.values if theirs.intersection(reference.parameters_of(value))), None)

    def user_of_parameter(self, name: str, first: Value) -> Call:
        """Return the call that first uses a parameter; that of a value where none does."""
        port = self._counterparts.port
        using = (
            port.values[user] for value in port.values if value.name == name for user in port.users.get(value.index, ())
        )
        return port.call_of(next(using, first))

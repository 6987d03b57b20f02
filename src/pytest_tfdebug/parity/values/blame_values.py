"""From the values of two forwards to the line that is wrong.

Names, nesting and layout do not matter here: only what was computed. The first open value of the port (see
:mod:`.open_values`) is held to the value of the reference that does the same with most of the same operands. What
differs between the two says what is wrong: the operator, an operand that the port takes from elsewhere, a step that it
leaves out, the order of the elements, or a parameter.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pytest_tfdebug.fingerprints import distance
from pytest_tfdebug.parity.values.call_counterparts import CallCounterparts
from pytest_tfdebug.parity.values.counterparts import Counterparts
from pytest_tfdebug.parity.values.element_order import ALL_LINES, ElementOrder
from pytest_tfdebug.parity.values.finding import Finding
from pytest_tfdebug.parity.values.missing_steps import MissingSteps
from pytest_tfdebug.parity.values.open_values import FLOOR, TOLERANCES
from pytest_tfdebug.parity.values.operator_kinds import COPIES, hidden_share, is_pure, is_same_share, kind_of
from pytest_tfdebug.parity.values.shown_values import in_same_function, open_values_around, values_beside
from pytest_tfdebug.tracing.values.slicing import statement_lines, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_tfdebug.parity.values.finding import Fault
    from pytest_tfdebug.parity.values.forward_pair import ForwardPair
    from pytest_tfdebug.values import Value

#: Growth of a distance in one step that rounding does not make.
_CLEAR = 30.0


def find_fault(pair: ForwardPair, results: Iterable[int], expected: Iterable[int]) -> Finding | None:
    """Return what is wrong with a port, from the outputs that differ."""
    results, expected = list(results), list(expected)
    unused = _not_returned(pair, results, expected)
    if unused is not None and pair.port.live.isdisjoint(value.index for value in unused.values):
        return unused
    best: tuple[float, _AtTolerance] | None = None
    for tolerance in _tolerances(pair, results, expected):
        trial = _AtTolerance(pair, tolerance, results, expected)
        if trial.first is None and not trial.missing:
            continue
        score = trial.jump()
        if best is None or score > best[0]:
            best = score, trial
        if score >= _CLEAR:
            break
    if best is None or best[0] < 1:  # what differs less than what it was computed from is rounding
        return unused
    return best[1].finding()


def _not_returned(pair: ForwardPair, results: list[int], expected: list[int]) -> Finding | None:
    """Return the module that drops an output which the reference returns and the port computes."""
    port = pair.port
    for theirs in expected if port.table.results else ():
        made = [each for each in pair.back_matches.within(theirs, TOLERANCES[0]) if port.values[each].operator]
        if not made or set(made).intersection(results) or pair.reference.values[theirs].print.is_constant:
            continue
        last = port.values[max(port.live.intersection(made) or made)]
        around = (
            call
            for call in port.around(last.call)
            if all(index not in made for _, index in port.table.outputs.get(call.index, ()))
        )
        call = next(around, port.root)
        return Finding("operand", call, [last], pair.reference.values[theirs], pair.reference.root)
    return None


def _tolerances(pair: ForwardPair, results: list[int], expected: list[int]) -> list[float]:
    """Return the distances to try, the least first; of results that differ by little, one below that."""
    mine, theirs = (
        [side.values[each].print for each in found]
        for side, found in ((pair.port, results), (pair.reference, expected))
    )
    least = min((distance(one, other) for one in mine for other in theirs), default=1.0)
    return ([least / 3] if FLOOR < least <= TOLERANCES[0] else []) + list(TOLERANCES)


class _AtTolerance:
    """The search at one tolerance."""

    def __init__(self, pair: ForwardPair, tolerance: float, results: Sequence[int], expected: Sequence[int]) -> None:
        self._counterparts = Counterparts(pair, tolerance, results, expected)
        self._port, self._reference = pair.port, pair.reference
        self._order = ElementOrder(self._counterparts)
        self._calls = CallCounterparts(self._counterparts)
        self._steps = MissingSteps(self._counterparts, self._calls)
        self.missing = self._counterparts.reference_open.first()
        self.first = self._choose(self._counterparts.port_open.first())

    def jump(self) -> float:
        """Return by how much the distance grows at the first value; 1 where the port has none."""
        return 1.0 if self.first is None else self._counterparts.port_open.jump(self.first)

    def finding(self) -> Finding:
        """Return what the first open values say."""
        if self.first is None:
            return self._steps.never_computed(self.missing[0])
        wrong = self._wrong_weights(self.first)
        if wrong:
            return self._blame_weights(wrong, self.first)
        return self._held(self.first, self._counterparts.counterpart(self.first))

    def _choose(self, values: list[Value]) -> Value | None:
        """Return the value to blame: the first that the reference computes otherwise from the same, or else the first.

        Sums are added up in another order, and norms are written out, without a fault.
        """
        ranked = [(self._rank(value), value) for value in [v for v in values if "float" in v.dtype] or values]
        most = max((rank for rank, _ in ranked), default=0)
        return next((value for rank, value in ranked if rank == most), None)

    def _rank(self, value: Value) -> int:
        """Return how likely a first open value is to blame.

        3 for one with wrong parameters, 2 for one that the reference computes from the same operands with an operator
        of the same kind, 1 with one of another kind, 0 for the rest, -1 for a part of a sum, which the reference may
        add up in another order, -2 for a part of a parameter, which the reference may cut otherwise.
        """
        if self._wrong_weights(value):
            return 3
        if value.is_moved and self._port.computed(value).origin == "parameter":
            return -2
        other = self._counterparts.counterpart(value)
        if other is None or self._counterparts.operands(value, other) != ([], []):
            return -1 if self._is_part_of_sum(value) else 0
        return 2 if kind_of(other) == kind_of(value) else 1

    def _is_part_of_sum(self, value: Value) -> bool:
        users = [self._port.values[user] for user in self._port.users.get(value.index, ())]
        return kind_of(value) == "sum" and bool(users) and all(kind_of(user) == "sum" for user in users)

    def _wrong_weights(self, value: Value) -> tuple[str, ...]:
        return self._counterparts.wrong_weights(value) or self._counterparts.misplaced(value)

    def _held(self, first: Value, other: Value | None) -> Finding:
        """Hold a value to the one of the reference that stands for it."""
        constant = self._wrong_constant(first, other)
        if constant is not None:
            return constant
        is_same = other is not None and self._counterparts.operands(first, other) == ([], [])
        if not is_same:
            reordered = self._reordered(first, is_pure=False)
            if reordered is not None:
                return reordered
        found = self._one_too_many(first) or (self._compared(first, other) if other is not None else None)
        found = found or self._given_another(first)
        return found or self._of_code("unknown", first, self.missing[0] if self.missing else None)

    def _one_too_many(self, first: Value) -> Finding | None:
        """Blame a step, or a call, whose result the port uses as the reference does what the step was given."""
        pair, call = self._counterparts, self._port.call_of(first)
        for made in first.producers if not first.is_moved else ():
            partners = set(pair.matches.within(made, pair.tolerance)) if self._port.weighted[made] else set()
            uses = [use for partner in partners for use in self._reference.uses(partner)]
            if any(kind_of(use) == kind_of(first) for use in uses):
                continue
            ends = {first.index: call}
            if call.parent is not None and self._calls.is_given(call, made):
                outputs = self._port.table.outputs.get(call.index, ())
                ends |= {index: self._port.calls[call.parent] for _, index in outputs}
            for end, around in ends.items():
                for mine, use in itertools.product(self._port.uses(end), uses):
                    own, theirs = pair.apart(mine, use)
                    if kind_of(use) == kind_of(mine) and len(own) == 1 and theirs and partners.issuperset(theirs):
                        return pair.found("extra", around, [first], use)
        return None

    def _given_another(self, first: Value) -> Finding | None:
        """Blame what a call was given, if the reference uses the call's parameters with what the port never computes.

        A norm that is written out has values of its own: what it is given tells whether it is to blame.
        """
        call = self._port.call_of(first)
        given = [index for _, index in self._port.table.inputs.get(call.index, ()) if self._port.weighted[index]]
        other, is_open = self._calls.with_parameters_of(call), self._counterparts.reference_open.open
        lacking = [made for made in other.producers if made in is_open] if other is not None else []
        if other is None or not given or not lacking or self._counterparts.port_open.open.intersection(given):
            return None
        return self._steps.left_out(first, other, given[:1], lacking[0])

    def _compared(self, first: Value, other: Value) -> Finding | None:
        """Compare the operators and operands of two values; None where these do not tell what is wrong."""
        pair = self._counterparts
        mine, theirs = pair.operands(first, other)
        if kind_of(other) != kind_of(first) and (mine or theirs or self._may_be_left_out(first, other)):
            later = self._steps.same_kind_after(other, first)
            if later is not None:
                return self._steps.left_out(first, later, mine, other.index)
            if mine or theirs:
                return None
        if not mine and not theirs:
            return self._same_operands(first, other)
        absent = [
            index for index in theirs if index in pair.reference_open.open and self._reference.values[index].operator
        ]
        without = self._without(first, other, mine, absent[0]) if absent else None
        if without is not None:
            return without
        if mine and theirs and (pair.meant(mine[0], theirs[0]) or pair.shares_parameter(first, other)):
            return self._other_operand(first, other, mine[0], theirs[0])
        return None

    def _without(self, first: Value, other: Value, mine: list[int], absent: int) -> Finding | None:
        """Blame what leaves out an operand that the port never computes, or computes and does not take."""
        part = self._part_of_fused(mine[0], absent) if mine else None
        if part is not None:
            return self._taken(part, other)
        is_step = self._counterparts.may_stand_for(mine, absent)
        return self._steps.left_out(first, other, mine, absent) if is_step else None

    def _may_be_left_out(self, first: Value, other: Value) -> bool:
        """Tell whether the port may go on without a step of the reference, such as an activation before a pooling.

        Allow reordered steps: softmax after choosing, instead of before.
        """
        is_later = any(len(user.producers) == 1 and not user.is_moved for user in self._port.uses(first.index))
        is_open = other.index in self._counterparts.reference_open.open
        return is_open and not is_later and len(first.producers) == len(other.producers) == 1

    def _wrong_constant(self, first: Value, other: Value | None) -> Finding | None:
        """Return what made a constant wrong with which a value was computed: a table, positions, a mask.

        Masks are written in many ways: they are wrong only if the reference hides another share of the elements.
        """
        pair, weighted = self._counterparts, self._reference.weighted
        theirs = [index for index in sorted(pair.reference_open.open) if not weighted[index]]
        theirs += [made for made in (other.producers if other is not None else ()) if not weighted[made]]
        shares = {index: hidden_share(self._reference.values[index]) for index in theirs}
        for made in first.producers:
            if made not in pair.port_open.open or self._port.weighted[made]:
                continue
            share = hidden_share(self._port.values[made])
            alike = [index for index in theirs if (shares[index] is None) == (share is None)]
            same = any(is_same_share(share, shares[index]) for index in alike)
            if not alike or same or pair.agrees_elsewhere(self._port.values[made]):
                continue
            found = pair.port_open.first(self._port.ancestors(made))
            if found:
                return self._blame_constant(made, found, pair.reference_open.first(alike))
        return None

    def _blame_constant(self, constant: int, found: list[Value], missing: list[Value]) -> Finding:
        """Blame the first open values that a constant was made from.

        Of a mask any line may be wrong that led to it: the reference writes it in another way. A view of a table is as
        long as it was told to be.
        """
        is_open = self._counterparts.port_open.open
        made_of = [self._port.values[made] for made in found[0].producers if made in is_open]
        shown = [value for value in made_of if value.operator] + in_same_function(found, found[0])
        behind = [self._port.values[made] for made in sorted(self._port.ancestors(constant) & is_open)]
        beside = in_same_function([value for value in behind if value.operator], found[0])
        is_mask = hidden_share(self._port.values[constant]) is not None
        is_sure = not found[0].is_moved and (
            not is_mask or {v.lines[:1] for v in beside} <= {v.lines[:1] for v in shown}
        )
        fault: Fault = "replaced" if is_sure else "unknown"
        call = self._port.call_of(found[0])
        return self._counterparts.found(fault, call, shown if is_sure else beside, missing[0] if missing else None)

    def _same_operands(self, first: Value, other: Value) -> Finding:
        """Blame a value that was computed from the right operands: their order, or the code."""
        pair = self._counterparts
        weights = pair.misplaced(first)
        if weights:
            return self._blame_weights(weights, first)
        reordered = self._reordered(first, is_pure=is_pure(first))
        if reordered is not None:
            return reordered
        return self._of_code("replaced", first, other)

    def _reordered(self, first: Value, *, is_pure: bool) -> Finding | None:
        """Blame what brought the elements of an operand into another order, its numbers being right."""
        pair = self._counterparts
        for made in first.producers:
            begin = self._order.reordered_since(made, is_pure=is_pure)
            if begin is not None and (begin.is_moved or not first.is_moved):
                weights = pair.misplaced(begin) or pair.suspect_weights(begin)
                return self._blame_weights(weights, begin) if weights else self._blame_order(begin)
        return None

    def _other_operand(self, first: Value, other: Value, mine: int, theirs: int) -> Finding:
        """Blame the choice of an operand that the reference takes from elsewhere."""
        pair = self._counterparts
        meant = pair.meant(mine, theirs) or pair.back_matches.within(theirs, pair.tolerance)
        if not meant:
            return pair.found("applied", self._calls.giver(first, mine), [first], other)
        part = self._other_part(mine, meant)
        if part is not None:
            return self._taken(part, other)
        copies = [
            value
            for value in self._port.moves(mine)
            if value.operator in COPIES and meant and value.index > min(meant) and _is_in_one_file(value)
        ]
        if copies and not pair.agrees_elsewhere(copies[-1]):
            return pair.found("operand", self._port.call_of(copies[-1]), [copies[-1]], other)
        weights = pair.misplaced(first) or pair.misplaced(self._port.computed(self._port.values[mine]))
        if weights:
            return self._blame_weights(weights, first, is_at_parameter=True)
        return pair.found("operand", self._calls.chooser(first, set(meant), other), [first], other)

    def _other_part(self, mine: int, meant: list[int]) -> Value | None:
        """Return the view by which a line took another part of a tensor than the part that was meant."""
        taken = self._port.taken(mine)
        for rather in map(self._port.taken, meant) if taken is not None else ():
            if taken and rather and rather.lines == taken.lines and rather.producers == taken.producers:
                return taken
        return None

    def _part_of_fused(self, mine: int, theirs: int) -> Value | None:
        """Return the view that took an operand from a fused result, if what the reference takes is in there as well."""
        pair, taken = self._counterparts, self._port.taken(mine)
        fused = self._port.parameters_of(self._port.computed(taken)) if taken is not None else []
        parts = {part for name in fused if name in pair.weights.joined for part in pair.weights.partners[name]}
        origin = pair.origin(theirs)
        meant = self._reference.parameters_of(origin)
        for made in self._reference.computed_operands(origin):  # a scale comes before it is taken, or later
            is_taken = made.index in pair.matches.within(mine, pair.tolerance)
            meant += [] if is_taken else self._reference.parameters_of(made)
        return None if parts.isdisjoint(meant) else taken

    def _taken(self, part: Value, other: Value) -> Finding:
        """Blame the view that takes another part of a tensor than the reference, or the weights behind it."""
        weights = self._counterparts.suspect_weights(part)
        fault: Fault = "weights" if weights else "taken"
        return self._counterparts.found(fault, self._port.call_of(part), [part], other, weights=weights)

    def _of_code(self, fault: Fault, first: Value, other: Value | None) -> Finding:
        """Blame the lines of a value, unless they do right elsewhere: then their caller, or their weights."""
        call = self._port.call_of(first)
        is_plain = is_pure(first) or kind_of(first) == "native_layer_norm" or self._order.is_turned(first)
        laid = self._order.laid_out(first) if fault == "replaced" and call.source is None and is_plain else None
        if laid is not None:
            return self._blame_order(laid)
        if not self._counterparts.agrees_elsewhere(first):
            show = values_beside if fault == "replaced" else open_values_around
            return self._counterparts.found(fault, call, show(self._counterparts, first), other)
        return self._of_use(fault, first, other)

    def _of_use(self, fault: Fault, first: Value, other: Value | None) -> Finding:
        """Blame how a line that does right elsewhere is used here: its caller, its weights or the order it is given."""
        pair, call = self._counterparts, self._port.call_of(first)
        is_in_other_call = any(
            value.call != first.call and self._port.call_of(value).path == call.path
            for value in pair.alike_elsewhere(first)
        )
        if is_in_other_call and call.parent is not None:
            return pair.found("operand", self._port.calls[call.parent], [first], other)
        if any(value.call == first.call for value in pair.alike_elsewhere(first, ALL_LINES)):
            return pair.found(fault, call, [first], other, depth=int(_is_called_again(first)))
        depth = int(len(first.lines) > 1 and not pair.agrees_elsewhere(first, 2))
        weights = pair.unverified(first) if not depth else ()
        if weights:
            return self._blame_weights(weights, first, other, is_at_parameter=True)
        laid = self._order.laid_out(first) if kind_of(first) == "matmul" and fault == "replaced" else None
        if laid is not None:
            return self._blame_order(laid)
        return pair.found(fault, call, values_beside(pair, first), other, depth=depth)

    def _blame_order(self, value: Value) -> Finding:
        return self._counterparts.found("order", self._port.call_of(value), [value], None)

    def _blame_weights(
        self, weights: tuple[str, ...], value: Value, other: Value | None = None, *, is_at_parameter: bool = False
    ) -> Finding:
        """Blame parameters."""
        call = self._calls.user_of_parameter(weights[0], value) if is_at_parameter else self._port.call_of(value)
        return self._counterparts.found("weights", call, [value], other, weights=weights)


def _is_called_again(value: Value) -> bool:
    """Tell whether the line that called the function in which a value came about calls it several times."""
    if len(value.lines) == 1:
        return True
    inner, outer = value.lines[:2]
    statement = text_of(outer.file, *statement_lines(outer.file, outer.line))
    return statement.count(f"{inner.function}(") > 1


def _is_in_one_file(value: Value) -> bool:
    return bool(value.lines) and value.lines[0].file == value.lines[-1].file

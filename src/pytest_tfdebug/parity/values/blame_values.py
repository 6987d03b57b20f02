"""From the values of two forwards to the line that is suspected.

Names, nesting and layout do not matter here: only what was computed. The first open value of the port (see
:mod:`.open_values`) is held to the value of the reference that does the same with most of the same operands. What
differs between the two is suspected: a parameter, a constant, a step too many or too few, an operand, or the code. A
suspect is certain only if it is a parameter that the reference has not; whatever else is to be certain is tried (see
:mod:`pytest_tfdebug.parity.explain`).
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pytest_tfdebug.fingerprints import distance
from pytest_tfdebug.parity.values.counterparts import ALL_LINES, Counterparts
from pytest_tfdebug.parity.values.finding import Finding
from pytest_tfdebug.parity.values.open_values import FLOOR, TOLERANCES
from pytest_tfdebug.parity.values.operator_kinds import hidden_share, is_same_share, kind_of
from pytest_tfdebug.parity.values.shown_values import in_same_function, open_values_around, values_beside
from pytest_tfdebug.tracing.values.slicing import statement_lines, text_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_tfdebug.parity.values.finding import Fault
    from pytest_tfdebug.parity.values.forward_pair import ForwardPair
    from pytest_tfdebug.records import Call
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
        dropping = (
            call
            for call in port.around(last.call)
            if all(index not in made for _, index in port.table.outputs.get(call.index, ()))
        )
        return Finding("operand", next(dropping, port.root), [last], pair.reference.values[theirs], pair.reference.root)
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
        self.missing = self._counterparts.reference_open.first()
        self.first = self._choose(self._counterparts.port_open.first())

    def jump(self) -> float:
        """Return by how much the distance grows at the first value; 1 where the port has none."""
        return 1.0 if self.first is None else self._counterparts.port_open.jump(self.first)

    def finding(self) -> Finding:
        """Return what the first open values say."""
        if self.first is None:  # the port returns what the reference goes on with
            pair = self._counterparts
            before = [
                own for made in self.missing[0].producers for own in pair.back_matches.within(made, pair.tolerance)
            ]
            return self._left_out(self._port.values[max(before)] if before else None, [], self.missing[0])
        wrong = self._wrong_weights(self.first)
        if wrong:
            return self._counterparts.found("weights", self._port.call_of(self.first), [self.first], weights=wrong)
        other = self._counterparts.counterpart(self.first)
        return (
            self._wrong_constant(self.first, other)
            or self._one_too_many(self.first)
            or self._given_another(self.first)
            or (other and self._compared(self.first, other))
            or self._of_code("unknown", self.first, self.missing[0] if self.missing else None)
        )

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

    def _one_too_many(self, first: Value) -> Finding | None:
        """Blame a step, or a call, whose result the port uses as the reference does what the step was given."""
        pair, call = self._counterparts, self._port.call_of(first)
        for made in first.producers if not first.is_moved else ():
            partners = set(pair.matches.within(made, pair.tolerance)) if self._port.weighted[made] else set()
            uses = [use for partner in partners for use in self._reference.uses(partner)]
            if any(kind_of(use) == kind_of(first) for use in uses):
                continue
            ends = {first.index: call}
            if call.parent is not None and self._port.is_given(call, made):
                outputs = self._port.table.outputs.get(call.index, ())
                ends |= {index: self._port.calls[call.parent] for _, index in outputs}
            for end, around in ends.items():
                for mine, use in itertools.product(self._port.uses(end), uses):
                    own, theirs = pair.apart(mine, use)
                    if kind_of(use) == kind_of(mine) and len(own) == 1 and theirs and partners.issuperset(theirs):
                        return pair.found("extra", around, [first], use)
        return None

    def _compared(self, first: Value, other: Value) -> Finding | None:
        """Compare the operators and operands of two values; None where these do not tell what is wrong."""
        pair = self._counterparts
        mine, theirs = pair.operands(first, other)
        is_of_one_kind = kind_of(other) == kind_of(first)
        if not is_of_one_kind and any(kind_of(use) == kind_of(first) for use in self._reference.uses(other.index)):
            return self._left_out(first, mine, other)  # the reference does this step after another one
        if not mine and not theirs:
            return self._of_code("replaced", first, other)
        if not is_of_one_kind:
            return None
        computed = [made for made in theirs if self._reference.values[made].operator]
        absent = [made for made in computed if made in pair.reference_open.open and not self._reference.parameter(made)]
        if absent:
            return self._left_out(first, mine, pair.origin(absent[0]))
        meant = {own for made in theirs for own in pair.back_matches.within(made, pair.tolerance)}
        return pair.found("operand", self._chooser(first, mine, meant), [first], other) if mine and meant else None

    def _given_another(self, first: Value) -> Finding | None:
        """Blame what a call was given, if the reference uses the call's parameters with what the port never computes.

        A norm that is written out has values of its own: what it is given tells whether it is to blame.
        """
        pair, call = self._counterparts, self._port.call_of(first)
        given = [index for _, index in self._port.table.inputs.get(call.index, ()) if self._port.weighted[index]]
        other = pair.with_parameters_of(call)
        lacking = [made for made in other.producers if made in pair.reference_open.open] if other is not None else []
        if not given or not lacking or pair.port_open.open.intersection(given):
            return None
        return self._left_out(first, given[:1], pair.origin(lacking[0]))

    def _left_out(self, first: Value | None, mine: list[int], origin: Value) -> Finding:
        """Blame the innermost call, around where a step is missed or its last operand is made, that has all it takes.

        A step of one operand could stand anywhere: then it is the call that chose what is taken instead.
        """
        pair, port = self._counterparts, self._port
        if first is None:
            return pair.found("left-out", port.root, [], origin)
        takes = [made for made in origin.producers if self._reference.weighted[made]]
        taken = [pair.back_matches.within(made, pair.tolerance) for made in takes]
        names = [pair.back.partners.get(self._reference.parameter(made), ()) for made in takes]
        made = [index for alike in taken for index in alike if self._is_computed(index)]
        last = max(made, default=first.index)
        having = [
            call
            for start in (first.call, port.values[last].call)
            for call in port.with_code(start)
            if all(
                any(port.has(call, each) for each in alike) or any(port.holds(call, name) for name in named)
                for alike, named in zip(taken, names, strict=True)
            )
        ]
        is_told = len(takes) > 1 and having
        call = max(having, key=port.depth) if is_told else self._chooser(first, mine, set())
        shown = first if port.is_within(first.call, call) else port.values[last]
        return pair.found("left-out", call, [shown], origin)

    def _is_computed(self, index: int) -> bool:
        value = self._port.values[index]
        return bool(value.operator) and not value.is_moved

    def _chooser(self, first: Value, operands: list[int], meant: set[int]) -> Call:
        """Return the innermost call around a value that chose the first of its operands that is another.

        It made the operand, or has what is meant instead, or uses the operand elsewhere as the reference does. A line
        that does right elsewhere chose nothing.
        """
        pair, port, within = self._counterparts, self._port, None
        calls = port.with_code(first.call)
        if not operands:
            return calls[0]
        theirs = pair.matches.within(operands[0], pair.tolerance)
        kinds = {kind_of(use) for each in theirs for use in self._reference.uses(each)}
        left = [use.call for use in port.uses(operands[0]) if kind_of(use) in kinds and use is not first]
        does_right = calls[0].index == first.call and pair.agrees_elsewhere(first)
        for call in calls[1:] if does_right else calls:
            left = [each for each in left if within is None or not port.is_within(each, within)]
            is_used = any(port.is_within(each, call) for each in left)
            if is_used or any(port.has(call, each) for each in meant) or not port.is_given(call, operands[0]):
                return call
            within = call
        return calls[0]

    def _of_code(self, fault: Fault, first: Value, other: Value | None) -> Finding:
        """Blame the lines of a value, unless they do right elsewhere: then their caller, or their weights."""
        if self._counterparts.agrees_elsewhere(first):
            return self._of_use(fault, first, other)
        show = values_beside if fault == "replaced" else open_values_around
        return self._counterparts.found(fault, self._port.call_of(first), show(self._counterparts, first), other)

    def _of_use(self, fault: Fault, first: Value, other: Value | None) -> Finding:
        """Blame how a line that does right elsewhere is used here: its caller, or its weights."""
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
        weights = pair.unverified(first) if fault == "replaced" and not depth else ()
        if weights:
            return pair.found("weights", self._port.user_of(weights[0], call), [first], other, weights=weights)
        return pair.found(fault, call, values_beside(pair, first), other, depth=depth)


def _is_called_again(value: Value) -> bool:
    """Tell whether the line that called the function in which a value came about calls it several times."""
    if len(value.lines) == 1:
        return True
    inner, outer = value.lines[:2]
    statement = text_of(outer.file, *statement_lines(outer.file, outer.line))
    return statement.count(f"{inner.function}(") > 1

"""From the values of two forwards to the line that is suspected.

Names, nesting and layout do not matter here: only what was computed. The first open value of the port (see
:mod:`pytest_tfdebug.parity.proof.matching`) is held to the value of the reference that does the same with most of the
same operands. What differs between the two is suspected: a parameter, a constant, a step too many or too few, an
operand, or the code. A suspect is certain only if it is a parameter that the reference has not; whatever else is to be
certain is tried (see :mod:`pytest_tfdebug.parity.proof`).
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.closeness import AGREE, LADDER, ROUNDING, SAME
from pytest_tfdebug.parity.find.counterparts import ALL_LINES, Counterparts, Finding
from pytest_tfdebug.parity.proof.matching import axes_of
from pytest_tfdebug.parity.proof.value_graph import hidden_share, is_same_share, kind_of
from pytest_tfdebug.tracing.values.slicing import statement_lines, text_of
from pytest_tfdebug.values import distance

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from pytest_tfdebug.parity.find.counterparts import Fault
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.values import Value


class Gap(NamedTuple):
    """Where a port lacks a step."""

    call: Call  # the innermost call of the port that has what the step takes
    beside: Value | None  # the value after which, or before which, it should stand
    depth: int = 0  # which of that value's lines is meant, as in a finding


def place_of_missing(pair: ForwardPair, step: Value, first: Value | None, tolerance: float) -> Gap:
    """Return the innermost port call that has the missing step's operands, and the value beside which it should stand.

    That is what the port goes on with, or the last that it computes of what the step takes: which of both is nearer to
    it in the reference, or is such a step, of other operands (``score + mask``, where the mask is 0). The parameters
    that it takes place it, too; one of them alone stands where it is read. Its users in calls that are given it are
    right, and so are functions that are given it: ``layer_norm(stream)`` lacks nothing if ``stream`` lacks the step.
    """
    port, reference = pair.port, pair.reference
    takes = [made for made in step.producers if reference.weighted[made]]
    taken = [pair.back_matches.within(made, tolerance) for made in takes]
    names = [pair.back.partners.get(reference.parameter(made), ()) for made in takes]
    is_placed = any(names)
    made = [(each, there) for there, alike in zip(takes, taken, strict=True) for each in alike if _is_made(port, each)]
    if len(takes) > 1 and len({reference.computed(reference.values[each]).index for each in takes}) == 1:
        parts = (port.values[each] for alike in taken for each in alike)
        part = next((each for each in parts if _is_cut(each, port.computed(each))), None)
        if part is not None:  # ``(x[:, 0] + x[:, 1]) / 2``, of which one part is taken
            return Gap(port.call_of(part), part)
    last = port.values[max(made)[0]] if made else None
    beside = last if last is not None and (first is None or _is_after(pair, step, last, max(made)[1])) else first
    if beside is None:  # the weights that it takes place it, if it takes any
        owners = (call for call in port.calls.values() if all(_holds_one(port, call, named) for named in names))
        owner = max(owners, key=port.depth) if is_placed else port.root
        return Gap(owner, _next_in(owner, pair, step))
    uses = [reference.call_of(use) for use in reference.uses(step.index)]
    left = _left_behind(pair, step, [own for own, there in made if there == max(made)[1]], max(made)[1]) if made else ()
    is_before = not uses or not all(reference.is_within(step.call, call) for call in uses)  # before a call is given it
    having = [
        call
        for value in ((beside, first, last) if is_placed else (beside,))
        for call in (port.with_code(value.call) if value is not None else ())
        if all(
            any(port.has(call, each) for each in alike) or any(port.holds(call, name) for name in named)
            for alike, named in zip(taken, names, strict=True)
            if alike or named
        )
        and (
            is_placed
            or not is_before
            or last is None
            or port.is_within(last.call, call)
            or not port.is_given(call, last.index)
        )
        and call not in left
    ]
    call = max(having, key=port.depth, default=port.with_code(beside.call)[0])
    if last is None or port.is_within(beside.call, call):
        read = _read_in(port, beside, call, names) if last is None else None
        depth = depth_around(beside, last if beside is first else first)
        while beside is last and depth and not is_of_helper(port, last, depth - 1):
            depth -= 1
        return Gap(call, read or beside, depth)
    return Gap(call, last)


def _left_behind(pair: ForwardPair, step: Value, alike: Sequence[int], there: int) -> list[Call]:
    """Return the calls of the port that have returned what a missing step takes: as many as the reference has left.

    ``scale * self.convolutions(x)`` belongs where these are called, and not at their last line.
    """
    reference, port, own = pair.reference, pair.port, min(alike)
    around = reference.around(reference.values[there].call)
    count = sum(reference.returns(call, there) and not reference.is_within(step.call, call) for call in around)
    returned = (call for call in port.around(port.values[own].call) if call.parent is not None)
    return list(islice((call for call in returned if port.returns(call, own)), count))


def is_of_helper(side: Side, value: Value, depth: int) -> bool:
    """Tell whether the function that holds one of a value's lines is called by other lines, too."""
    line, callers = value.lines[depth], value.lines[depth + 1 :]
    return any(
        (each.file, each.function) == (line.file, line.function) and other.lines[place + 1 :] != callers
        for other in side.values
        for place, each in enumerate(other.lines)
    )


def _is_after(pair: ForwardPair, step: Value, last: Value, operand: int) -> bool:
    """Tell whether a step that is missing should stand at the last value that has what it takes."""
    return kind_of(last) == kind_of(step) or _is_nearer(pair.reference, step, operand)


def _read_in(port: Side, value: Value, call: Call, names: Sequence[Collection[str]]) -> Value | None:
    """Return where a call reads the parameter that a value is made of, if a missing step takes that."""
    known = {name for each in names for name in each}
    moves = (port.moves(made) for made in value.producers if port.parameter(made) in known)
    return next((each[-1] for each in moves if each and each[-1].call == call.index and each[-1].lines), None)


def depth_around(value: Value, other: Value | None) -> int:
    """Return which of a value's lines is in the innermost function that another value came about in as well."""
    if other is None or other.call != value.call:
        return 0
    common = 0
    for mine, theirs in zip(reversed(value.lines), reversed(other.lines), strict=False):
        common += (mine.file, mine.function) == (theirs.file, theirs.function)
        if mine != theirs:
            break
    return len(value.lines) - common if common else 0


def call_of_missing(pair: ForwardPair, step: Value, tolerance: float) -> Call:
    """Return the reference's call whose line does a step that the port lacks, around a call that it lacks whole.

    It lacks a call if it computes nothing of it, and uses none of its parameters.
    """
    reference, used = pair.reference, pair.port.used

    def is_there(value: Value) -> bool:
        names = [own for name in reference.parameters_of(value) for own in pair.back.partners.get(name, ())]
        is_made = reference.weighted[value.index] and not value.is_moved
        return not used.isdisjoint(names) or bool(is_made and pair.back_matches.within(value.index, tolerance))

    made = {value.call for value in reference.values if value.operator and is_there(value)}
    there = {call.index for each in made for call in reference.around(each)}
    return next((call for call in reference.around(step.call) if call.index in there), reference.root)


def chooser(side: Side, calls: Sequence[Call], wrong: Collection[int], meant: Collection[int]) -> Call:
    """Return the first of some calls that has what is meant, or is not given what is taken instead."""
    chose = (
        call
        for call in calls
        if any(side.has(call, each) for each in meant) or not any(side.is_given(call, each) for each in wrong)
    )
    return next(chose, calls[-1])


def part_taken(side: Side, first: Value, wrong: Collection[int], meant: Collection[int]) -> Value | None:
    """Return the part of a value that is taken for another part of it, as ``k, v = both.unbind(2)`` names them.

    None where what is taken and what is meant are not of one value.
    """
    values = side.values
    whole = {side.computed(values[each]).index for each in meant if values[each].is_moved}
    for made in first.producers:
        moves = side.moves(made)
        is_wrong = made in wrong or any(each.index in wrong for each in moves)
        if is_wrong and side.computed(values[made]).index in whole:
            return next((each for each in moves if _is_cut(each, values[each.producers[0]])), None)
    return None


def _is_cut(part: Value, whole: Value) -> bool:
    return part.print.elements < whole.print.elements


def _next_in(call: Call, pair: ForwardPair, step: Value) -> Value | None:
    """Return the first value in a call of the port that takes what weights the reference takes soonest after a step."""
    port, reference = pair.port, pair.reference
    users: dict[str, Value] = {}
    for value in port.values:
        for name in port.parameters_of(value) if port.is_within(value.call, call) else ():
            users.setdefault(name, value)
    after = (name for value in reference.values[step.index + 1 :] for name in reference.parameters_of(value))
    mine = (own for name in after for own in pair.back.partners.get(name, ()))
    return next((users[name] for name in mine if name in users), None)


def _holds_one(side: Side, call: Call, names: Sequence[str]) -> bool:
    return not names or any(side.holds(call, name) for name in names)


def _is_made(side: Side, index: int) -> bool:
    value = side.values[index]
    return bool(value.operator) and value.origin != "view"


def _is_nearer(side: Side, step: Value, operand: int) -> bool:
    """Tell whether a step is nearer to an operand than to all that is computed from it."""
    from_there = _nearness(side, step, side.values[operand])
    return all(_nearness(side, step, use) < from_there for use in side.uses(step.index))


def _nearness(side: Side, one: Value, other: Value) -> tuple[int, int]:
    """Return in how many calls and functions two values came about together; of as many, the fewer else the nearer."""
    mine, theirs = list(_frames(side, one)), list(_frames(side, other))
    return sum(1 for frame in mine if frame in theirs), -len(theirs)


def _frames(side: Side, value: Value) -> Iterator[object]:
    """Yield the functions and calls in which a value came about; a module of torch is called by a line of another."""
    holder = side.with_code(value.call)[0].index
    yield from ((line.file, line.function, holder) for line in value.lines)
    yield from (call.index for call in side.around(value.call))


#: Growth of a distance in one step that rounding does not make.
CLEAR = 30.0


def find_fault(pair: ForwardPair, results: Iterable[int], expected: Iterable[int]) -> Finding | None:
    """Return what is wrong with a port, from the outputs that differ."""
    results, expected = list(results), list(expected)
    unused = _not_returned(pair, results, expected)
    if unused is not None and pair.port.live.isdisjoint(value.index for value in unused.values):
        return unused
    moved = pair.out_of_order
    if moved is not None and moved in pair.port.ancestors(*results):
        value, port = pair.port.values[moved], pair.port
        other = pair.reference.values[pair.matches.within(moved, AGREE)[0]]
        return Finding("order", port.call_of(value), [value], other, pair.reference.call_of(other))
    best: tuple[float, _AtTolerance] | None = None
    for tolerance in _tolerances(pair, results, expected):
        trial = _AtTolerance(pair, tolerance, results, expected)
        if trial.first is None and not trial.missing:
            continue
        score = trial.jump()
        if best is None or score > best[0]:
            best = score, trial
        if score >= CLEAR:
            break
    if best is None or best[0] < 1:  # what differs less than what it was computed from is rounding
        return unused
    return replace(best[1].finding(), growth=best[0])


def _not_returned(pair: ForwardPair, results: list[int], expected: list[int]) -> Finding | None:
    """Return the module that drops an output which the reference returns and the port computes."""
    port = pair.port
    for theirs in expected if port.table.results else ():
        made = [each for each in pair.back_matches.within(theirs, SAME) if port.values[each].operator]
        if not made or set(made).intersection(results) or pair.reference.values[theirs].print.is_constant:
            continue
        last = port.values[max(port.live.intersection(made) or made)]
        around = (
            call
            for call in port.around(last.call)
            if all(index not in made for _, index in port.table.outputs.get(call.index, ()))
        )
        call = next(around, port.root)
        # where the call hands on what is returned instead, or else where it makes what should be
        handed_on = [value for result in results for value in port.moves(result) if value.call == call.index]
        value = handed_on[-1] if len(results) == 1 and handed_on else last
        return Finding("operand", call, [value], pair.reference.values[theirs], pair.reference.root)
    return None


def _tolerances(pair: ForwardPair, results: list[int], expected: list[int]) -> list[float]:
    """Return the distances to try, the least first; of results that differ by little, one below that."""
    mine, theirs = (
        [side.values[each].print for each in found]
        for side, found in ((pair.port, results), (pair.reference, expected))
    )
    least = min((distance(one, other) for one in mine for other in theirs), default=1.0)
    return ([least / 3] if ROUNDING < least <= SAME else []) + list(LADDER)


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
            return self._left_out(None, self.missing[0])
        wrong = self._wrong_weights(self.first)
        if wrong:
            return self._counterparts.found("weights", self._port.call_of(self.first), [self.first], weights=wrong)
        other = self._counterparts.counterpart(self.first) or self._first_missing(self.first)
        return (
            self._cut_otherwise(self.first)
            or self._wrong_constant(self.first, other)
            or self._one_too_many(self.first)
            or self._function_too_many(self.first)
            or (other and self._compared(self.first, other))
            or self._of_code("unknown", self.first, self.missing[0] if self.missing else None)
        )

    def _first_missing(self, first: Value) -> Value | None:
        """Return the first step that the port lacks, if it takes what the port's first does, or comes before that."""
        step = self.missing[0] if self.missing else None
        if step is None:
            return None
        is_like = self._comes_before(step, first) or self._counterparts.operands(first, step) == ([], [])
        return step if is_like else None

    def _comes_before(self, step: Value, first: Value) -> bool:
        """Tell whether the reference does with the result of a step what the port does first."""
        return any(kind_of(use) == kind_of(first) for use in self._reference.uses(step.index))

    def _choose(self, values: list[Value]) -> Value | None:
        """Return the value to blame: the first with wrong weights, or else the first, of those whose numbers tell."""
        telling = [value for value in values if value.tells] or values
        return next(filter(self._wrong_weights, telling), telling[0] if telling else None)

    def _wrong_weights(self, value: Value) -> tuple[str, ...]:
        return self._counterparts.wrong_weights(value) or self._counterparts.misplaced(value)

    def _cut_otherwise(self, first: Value) -> Finding | None:
        """Blame weights that are parts of one of the reference, where that cuts what it computes with it otherwise.

        A projection of queries and gates, side by side in every head, is no part of all queries and one of all gates.
        """
        pair, port, values = self._counterparts, self._port, self._reference.values
        for base in (first, *(port.computed(port.values[made]) for made in first.producers)):
            same = (values[each].print.elements for each in pair.matches.within(base.index, AGREE))
            if base.is_moved or base.print.elements in same:
                continue
            for whole in self._wholes(base):
                cut = next((use for use in self._cuts(whole) if use.print.elements == base.print.elements), None)
                names = filter(None, self._reference.parameters_of(whole))
                parts = tuple(sorted({own for name in names for own in pair.back.partners.get(name, ())}))
                if cut is not None and len(parts) > 1:
                    return pair.found("weights", port.call_of(base), [base], cut, weights=parts)
        return None

    def _wholes(self, part: Value) -> Iterator[Value]:
        """Yield what the reference computes of the same operand with a weight of which the port has a part."""
        pair, port = self._counterparts, self._port
        names = [name for name in port.parameters_of(part) if name in pair.weights.joined]
        partners = {partner for name in names for partner in pair.weights.partners[name]}
        given = [made for made in part.producers if not port.parameter(made)]
        for whole in self._reference.values if partners else ():
            if whole.print.elements > part.print.elements and not partners.isdisjoint(
                self._reference.parameters_of(whole)
            ):
                yield from [whole] if all(any(pair.corresponds(m, o) for o in whole.producers) for m in given) else []

    def _cuts(self, whole: Value) -> Iterator[Value]:
        """Yield what the reference cuts from a value, however it lays that out before."""
        for use in map(self._reference.values.__getitem__, self._reference.users.get(whole.index, ())):
            if use.is_moved:
                yield use
                yield from self._cuts(use)

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
                missing = pair.reference_open.first(alike)
                fault: Fault = "replaced" if share is None and not found[0].is_moved else "unknown"
                return pair.found(fault, self._port.call_of(found[0]), found[:1], missing[0] if missing else None)
        return None

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

    def _function_too_many(self, first: Value) -> Finding | None:
        """Blame a line that calls a function, if the port uses its result as the reference does what it was given.

        ``q, k = turn(q, angles), turn(k, angles)``, say, in a layer of the reference without positions.
        """
        pair, port = self._counterparts, self._port
        for depth in range(1, len(first.lines)):
            called = first.lines[depth:]
            inside = {
                each.index
                for each in port.values
                if each.call == first.call and len(each.lines) > len(called) and each.lines[-len(called) :] == called
            }
            given = {made for each in inside for made in port.values[each].producers} - inside
            partners = {each for made in given for each in pair.matches.within(made, pair.tolerance)}
            given_on = {each for each in inside if any(use.index not in inside for use in port.uses(each))}
            if any(port.weighted[each] and pair.matches.within(each, pair.tolerance) for each in given_on):
                continue  # something that it makes is right
            results = [use for each in given_on for use in port.uses(each) if use.index not in inside]
            uses = [use for each in partners for use in self._reference.uses(each)]
            # what the port computes too is no use without the function: a layer's first step uses what it is given
            uses = [use for use in uses if not pair.back_matches.within(use.index, pair.tolerance)]
            for mine, use in itertools.product(results, uses):
                own, theirs = pair.apart(mine, use) if kind_of(mine) == kind_of(use) else ([], [])
                is_made = all(any(each.index in inside for each in port.bases(made, of_one=False)) for made in own)
                if own and theirs and is_made and partners.issuperset(theirs):
                    return pair.found("extra", port.call_of(first), [first], use, depth=depth)
        return None

    def _compared(self, first: Value, other: Value) -> Finding | None:
        """Compare the operators and operands of two values; None where these do not tell what is wrong."""
        pair = self._counterparts
        mine, theirs = pair.operands(first, other)
        is_of_one_kind = kind_of(other) == kind_of(first)
        if not is_of_one_kind and self._comes_before(other, first):
            return self._left_out(first, other)  # the reference does this step after another one
        if not mine and not theirs:
            return (is_of_one_kind and self._out_of_order(first)) or self._of_code("replaced", first, other)
        if not is_of_one_kind:
            return None
        computed = [made for made in theirs if self._reference.values[made].operator]
        absent = [made for made in computed if made in pair.reference_open.open and not self._reference.parameter(made)]
        if absent:
            return self._left_out(first, pair.origin(absent[0]))
        meant = {own for made in theirs for own in pair.back_matches.within(made, pair.tolerance)}
        if not mine or not meant:
            return None
        port = self._port
        part = part_taken(port, first, mine, meant)
        chose = port.call_of(part) if part else chooser(port, self._around(first, mine[0]), mine[:1], meant)
        depth = 0 if part else depth_around(first, port.computed(port.values[mine[0]]))
        return pair.found("operand", chose, [part or first], other, depth=depth)

    def _out_of_order(self, first: Value) -> Finding | None:
        """Blame what put an operand's elements into another order, where the same step of the same numbers differs."""
        pair = self._counterparts.pair
        begins = (pair.begin_of_order(made) for made in first.producers if pair.lies_right(made) is False)
        begin = min((each for each in begins if each is not None), default=None)
        if begin is None or not self._port.values[begin].is_moved:  # nearly the same numbers, which nothing has moved
            return None
        value, near = self._port.values[begin], pair.matches.within(begin, AGREE)
        others = [pair.reference.values[each] for each in near]
        other = next((each for each in others if axes_of(each.print) == axes_of(value.print)), others[0])
        return Finding("order", self._port.call_of(value), [value], other, pair.reference.call_of(other))

    def _left_out(self, first: Value | None, origin: Value) -> Finding:
        """Blame the innermost call, around where a step is missed, that has all it takes."""
        pair = self._counterparts
        call, beside, depth = place_of_missing(pair.pair, origin, first, pair.tolerance)
        around = call_of_missing(pair.pair, origin, pair.tolerance)
        return Finding("left-out", call, [] if beside is None else [beside], origin, around, depth=depth)

    def _around(self, first: Value, wrong: int) -> list[Call]:
        """Return the calls around a value, innermost first, without one whose line takes the right operand elsewhere.

        It shows nothing of that choice where the operand comes from somewhere else: ``x = x + self.attend(x)`` is right
        in a first layer without a norm, where ``x`` is what the layer was given, and wrong where it is the norm's.
        """
        port, calls = self._port, self._port.with_code(first.call)
        is_given, place = port.is_given(calls[0], wrong), [*first.producers, wrong].index(wrong)
        alike = (
            port.is_given(port.call_of(value), made) == is_given
            for value in self._counterparts.alike_elsewhere(first)
            for made in value.producers[place : place + 1]
        )
        is_right = calls[0].index == first.call and any(alike)
        return calls[1:] or calls if is_right else calls

    def _of_code(self, fault: Fault, first: Value, other: Value | None) -> Finding:
        """Blame the lines of a value, unless they do right elsewhere: then how they are used."""
        pair = self._counterparts
        if pair.agrees_elsewhere(first) or any(pair.right_in_other_calls(first)):
            return self._of_use(fault, first, other)
        shown = [first] if fault == "replaced" else pair.open_around(first)
        return pair.found(fault, self._port.call_of(first), shown, other)

    def _of_use(self, fault: Fault, first: Value, other: Value | None) -> Finding:
        """Blame how a line that does right elsewhere is used here."""
        pair, call = self._counterparts, self._port.call_of(first)
        is_in_other_call = any(pair.right_in_other_calls(first)) or any(
            value.call != first.call and self._port.call_of(value).path == call.path
            for value in pair.alike_elsewhere(first)
        )
        if is_in_other_call and call.parent is not None:
            return pair.found("operand", self._port.calls[call.parent], [first], other)
        if any(value.call == first.call for value in pair.alike_elsewhere(first, ALL_LINES)):
            return pair.found(fault, call, [first], other, depth=int(_is_called_again(first)))
        depth = int(len(first.lines) > 1 and not pair.agrees_elsewhere(first, 2))
        return pair.found(fault, call, [first], other, depth=depth)


def _is_called_again(value: Value) -> bool:
    """Tell whether the line that called the function in which a value came about calls it several times."""
    if len(value.lines) == 1:
        return True
    inner, outer = value.lines[:2]
    statement = text_of(outer.file, *statement_lines(outer.file, outer.line))
    return statement.count(f"{inner.function}(") > 1

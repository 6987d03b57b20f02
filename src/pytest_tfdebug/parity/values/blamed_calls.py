"""Which call of a port is to blame: for a step that it lacks, and for an operand that is another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from pytest_tfdebug.parity.values.forward_pair import ForwardPair
    from pytest_tfdebug.parity.values.value_graph import Side
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.values import Value


def place_of_missing(
    pair: ForwardPair, step: Value, first: Value | None, tolerance: float
) -> tuple[Call, Value | None]:
    """Return the innermost call that has what a step takes, as far as any has, and the value beside which it is missed.

    That is what the port goes on with, or the last that it computes of what the step takes: which of both is nearer to
    it in the reference. The parameters that it takes place it, too. Its users in calls that are given it are right.
    """
    port, reference = pair.port, pair.reference
    takes = [made for made in step.producers if reference.weighted[made]]
    taken = [pair.back_matches.within(made, tolerance) for made in takes]
    names = [pair.back.partners.get(reference.parameter(made), ()) for made in takes]
    is_placed = any(names)
    made = [(each, there) for there, alike in zip(takes, taken, strict=True) for each in alike if _is_made(port, each)]
    last = port.values[max(made)[0]] if made else None
    beside = last if last is not None and (first is None or _is_nearer(reference, step, max(made)[1])) else first
    if beside is None:  # the weights that it takes place it, if it takes any
        owners = (call for call in port.calls.values() if all(_holds_one(port, call, named) for named in names))
        owner = max(owners, key=port.depth) if is_placed else port.root
        return owner, _next_in(owner, pair, step)
    uses = [reference.call_of(use) for use in reference.uses(step.index)]
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
        and (is_placed or not is_before or last is None or not port.is_only_given(call, last))
    ]
    call = max(having, key=port.depth, default=port.with_code(beside.call)[0])
    return call, beside if last is None or port.is_within(beside.call, call) else last


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


def _nearness(side: Side, one: Value, other: Value) -> int:
    """Return how many calls and functions two values came about in together."""
    mine, theirs = list(_frames(side, one)), list(_frames(side, other))
    return sum(1 for frame in mine if frame in theirs)


def _frames(side: Side, value: Value) -> Iterator[object]:
    yield from ((line.file, line.function, value.call) for line in value.lines)
    yield from (call.index for call in side.around(value.call))

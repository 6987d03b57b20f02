"""Which value a step should have been given, as the other side's step with the same weights says.

Example: the second layer of a decoder attends to what the first layer of the encoder gives, and should attend to what
the second gives. Its keys are computed with a weight that the reference has, too, from a value that the reference has,
too. The port has the right one as well, however far away it was computed: it is given in place of the wrong one.
"""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import permutations
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.proof.changes import Change, told_apart, with_values

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from pytest_tfdebug.parity.proof.forward import Forward
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.values import Value

#: Kind of the change of what steps with a weight are given.
MEANT = "meant"
#: How unlikely it is that such steps were given another value than the other side's: both sides have both.
_COST = 0.5
#: Values between a step with a weight and what is right, and right values there: of more it is not known which differs.
_BETWEEN, _RIGHT = 24, 4
#: Values that are wrong at once: keys and values of another layer.
_WRONG = 2


class Taken(NamedTuple):
    """Values that some steps take, and those that they should."""

    pairs: tuple[tuple[int, int], ...]  # each that is wrong, and the one that is meant
    steps: tuple[int, ...]  # the values that these steps give, and what leads to them


def known_operands(pair: ForwardPair) -> list[Taken]:
    """Return which values of the port steps with a weight take, and which they should: both sides have both of them."""
    port, reference = pair.port, pair.reference
    found: dict[tuple[tuple[int, int], ...], set[int]] = defaultdict(set)
    for own, other in _with_one_weight(pair):
        if pair.matches.within(own.index, AGREE):
            continue
        between, right = _right_before(port, own, lambda each: bool(pair.matches.within(each, AGREE)))
        _, expected = _right_before(reference, other, lambda each: bool(pair.back_matches.within(each, AGREE)))
        wrong, lacking = _apart(pair, right, expected)
        for order in permutations(lacking) if len(wrong) == len(lacking) <= _WRONG else ():
            pairs = [_of_form(pair, *both, between) for both in zip(wrong, order, strict=True)]
            if pairs and None not in pairs:
                views = (value.index for each in wrong for value in port.bases(each))
                found[tuple(filter(None, pairs))].update(between, views)
    return [Taken(pairs, tuple(sorted(steps))) for pairs, steps in found.items()]


def changes_of_operands(forward: Forward, taken: Sequence[Taken]) -> Iterator[Change]:
    """Yield what gives the steps that take wrong values those that are meant."""
    for pairs, values in taken:
        steps, maker, others = forward.tape.steps, forward.tape.maker, dict(pairs)
        users = {maker[each] for each in values if each in maker}
        places = sorted(place for place in users if not others.keys().isdisjoint(steps[place].refs))
        if not places:
            continue
        wrong, meant = pairs[0]
        old, edit = forward.described(wrong), partial(with_values, others)
        new = told_apart(forward.described(meant), old, is_before=meant < wrong)
        if maker.get(meant, -1) > places[0]:
            new = f"{new}, which comes too late,"
        more = dict.fromkeys(places[1:], edit)
        text = f"{new} instead of {old}"
        yield Change(
            _COST, text, places[0], edit, MEANT, (MEANT,), operand=wrong, other=meant, old=old, new=new, more=more
        )


def _with_one_weight(pair: ForwardPair) -> Iterator[tuple[Value, Value]]:
    """Yield the values of both sides that are computed with a weight that both have, in the order of its uses."""
    theirs = _by_weight(pair.reference)
    for name, values in _by_weight(pair.port).items():
        for partner in pair.weights.partners.get(name, ()):
            others = theirs.get(partner, [])
            if len(others) == len(values):
                yield from zip(values, others, strict=True)


def _by_weight(side: Side) -> dict[str, list[Value]]:
    """Return the values that are computed with each parameter, in the order of the forward."""
    found: dict[str, list[Value]] = defaultdict(list)
    for value in side.values:
        for name in side.parameters_of(value) if value.operator and not value.is_moved else ():
            if name:
                found[name].append(value)
    return found


def _right_before(side: Side, value: Value, is_right: Callable[[int], bool]) -> tuple[set[int], list[int]]:
    """Return the wrong values that a value is computed of, itself among them, and the right ones before these."""
    between, right = {value.index}, dict[int, None]()
    todo = list(value.producers)
    while todo and len(between) <= _BETWEEN and len(right) <= _RIGHT:
        each = todo.pop()
        if each in between or each in right or side.parameter(each) or not side.weighted[each]:
            continue
        if is_right(each):
            right[each] = None
        else:
            between.add(each)
            todo += side.values[each].producers
    return between, [] if todo else list(right)


def _apart(pair: ForwardPair, mine: list[int], theirs: list[int]) -> tuple[list[int], list[int]]:
    """Return the values of each side that are none of the other's."""
    matches = pair.matches
    wrong = [own for own in mine if not any(other in matches.within(own, AGREE) for other in theirs)]
    lacking = [other for other in theirs if not any(other in matches.within(own, AGREE) for own in mine)]
    return sorted(wrong), sorted(lacking)


def _of_form(pair: ForwardPair, wrong: int, lacking: int, users: Collection[int]) -> tuple[int, int] | None:
    """Return a wrong value, or what it shows, with a value of the port of its form that is a value of the reference.

    That is the last one that is there before the wrong one is used, or the first that comes too late, and of nothing
    that is computed with the wrong one. Keys that were split into heads are wrong where they were computed: those that
    are meant may be split later.
    """
    values, user = pair.port.values, min(each for each in pair.port.users[wrong] if each in users)
    late: list[tuple[int, int]] = []
    for shown in pair.port.bases(wrong):
        alike = [
            each
            for each in pair.back_matches.within(lacking, AGREE)
            if (values[each].shape, values[each].dtype) == (shown.shape, shown.dtype)
        ]
        there = [each for each in alike if each < user]
        if there:
            return shown.index, max(there)
        late += [(shown.index, each) for each in sorted(alike) if user not in pair.port.ancestors(each)]
        user = shown.index
    return late[0] if late else None

"""What may be wrong with what a module was given: the mask or the table of angles of another layer.

Example: every third layer of a Gemma 3 sees all tokens. Where a port counts them from another one, its first layer is
given the whole mask and the wide angles, and the others what the first should have. One change gives a call all that
another layer's call is given: each tensor alone mends nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from functools import partial
from typing import TYPE_CHECKING

from pytest_tfdebug.module_path import name_of, starred
from pytest_tfdebug.parity.proof.changes import Change, with_values
from pytest_tfdebug.tracing.record.signatures import input_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.proof.forward import Edit, Forward
    from pytest_tfdebug.records import Call

#: Kind of the change of a module that was given what another layer's is given.
GIVEN = "given"
#: How unlikely it is that a module was given what another layer's is given: it explains several operands at once.
_GIVEN_OTHERWISE = 0.5
#: Different things that layers are given: more of them are no choice between a few.
_KINDS = 4
_WORD = re.compile(r"\w+")


def changes_of_arguments(forward: Forward) -> Iterator[Change]:
    """Yield calls given what the same module of another layer is given: a sliding window's mask for the whole one.

    That is a caller's choice as far as it was made before all of these layers, and does not come of any of them. Of a
    call inside another one that is given the same it was no choice.
    """
    chosen: dict[int, set[int]] = defaultdict(set)
    groups: dict[str, list[Call]] = defaultdict(list)
    for call in forward.side.table.calls:
        if starred(call.path) != call.path:
            groups[starred(call.path)].append(call)
    within = _steps_within(forward)
    for calls in groups.values():
        shared = _shared_arguments(forward, calls) if len(calls) > 1 else []
        kinds = {tuple(given.items()): call for call, given in reversed([*zip(calls, shared, strict=False)])}
        for call, given in zip(calls, shared, strict=False) if 1 < len(kinds) <= _KINDS else ():
            for kind, other in kinds.items():
                pairs = {index: new for leaf, new in kind if (index := given[leaf]) != new}
                around = forward.side.around(call.parent)
                if not pairs or any(chosen[each.index].issuperset(pairs) for each in around):
                    continue
                chosen[call.index].update(pairs)
                edits = _edits(forward, pairs, within.get(call.index, range(0)))
                if edits:
                    told = dict.fromkeys(_argument(leaf, call) for leaf, new in kind if given[leaf] != new)
                    yield _given_as(call, other, " and ".join(told), edits)


def _shared_arguments(forward: Forward, calls: Sequence[Call]) -> list[dict[str, int]]:
    """Return the tensors that each of some calls was given, by leaf path, those left out that come of one of them."""
    table, side = forward.side.table, forward.side
    made = {value for call in calls for _, value in table.outputs.get(call.index, ())}
    given = [dict(table.inputs.get(call.index, ())) for call in calls]

    def is_shared(leaf: str) -> bool:
        return len({each.get(leaf) for each in given}) <= _KINDS and all(
            leaf in each and made.isdisjoint(side.ancestors(each[leaf])) for each in given
        )

    of_all = list(filter(is_shared, given[0]))
    return [{leaf: each[leaf] for leaf in of_all} for each in given]


def _steps_within(forward: Forward) -> dict[int, range]:
    """Return from which step to which each call lasts."""
    found: dict[int, range] = {}
    for place in range(len(forward.tape.steps)):
        for out in forward.outs_of(place)[:1]:
            for call in forward.side.around(forward.side.values[out].call):
                found[call.index] = range(found.get(call.index, range(place, 0)).start, place + 1)
    return found


def _argument(leaf: str, call: Call) -> str:
    """Return the name of the parameter that a tensor was given to."""
    return next(iter(_WORD.findall(input_name(leaf, call.parameters))), leaf)


def _edits(forward: Forward, pairs: Mapping[int, int], places: range) -> dict[int, Edit]:
    """Return what the steps of a call do if values are others; nothing if these are of another form, or come later."""
    tensor = forward.tensor
    is_of_one_form = all(
        (tensor(mine).shape, tensor(mine).dtype) == (tensor(new).shape, tensor(new).dtype)
        for mine, new in pairs.items()
    )
    is_there = all(forward.tape.maker.get(new, -1) < places.start for new in pairs.values())
    steps = forward.tape.steps
    taken = [place for place in places if not pairs.keys().isdisjoint(steps[place].refs)]
    return dict.fromkeys(taken, partial(with_values, pairs)) if is_of_one_form and is_there else {}


def _given_as(call: Call, other: Call, told: str, edits: dict[int, Edit]) -> Change:
    """Return the change by which a call is given what another one is given."""
    first, new, key = min(edits), f"{told} of another layer", (starred(name_of(call.path)), told)
    text, edit = f"the {new} instead of its own, in {call.path} those of {other.path},", edits.pop(first)
    return Change(_GIVEN_OTHERWISE, text, first, edit, GIVEN, key, call=call.index, old=told, new=new, more=edits)

"""Going back into what was led past: the changes of one or two places that give the value that was given instead.

All of its elements are known, so that two faults of one region are found together, neither of which shows anything
right alone: a scale and an axis before one softmax, say.
"""

from __future__ import annotations

import heapq
from itertools import pairwise
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.closeness import SAME
from pytest_tfdebug.parity.proof.changes import together
from pytest_tfdebug.parity.proof.forward import NOT_COMPUTED, is_near
from pytest_tfdebug.parity.proof.matching import OpenValues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import torch

    from pytest_tfdebug.parity.proof.changes import Change
    from pytest_tfdebug.parity.proof.lead_past import Round

#: Changes that are made two at a time, the likeliest.
_CHANGES = 240


def changes_giving(
    at: Round, own: int, target: torch.Tensor, changes: Sequence[Change], is_over: Callable[[], bool]
) -> tuple[Change, ...]:
    """Return one or two changes, the likeliest, after which a value of the port is what the reference computes.

    Args:
        at: Both forwards at a fault.
        own: The value of the port.
        target: What it is to be.
        changes: What may be changed, the likeliest last.
        is_over: Tells whether the budget is spent.

    Returns:
        The changes; none where no such two give it.
    """
    port = at.pair.port
    region = OpenValues(port, at.pair.matches, SAME, [own], known=at.pair.weights.known).open
    if not region:  # it is another value of the reference: what it is computed from may be the wrong part
        region = {own, *(base.index for made in port.values[own].producers for base in port.bases(made))}
    near = [each for each in reversed(changes) if not region.isdisjoint(at.search.changed_by(each))]
    for some in _likeliest_first(near[:_CHANGES]):
        if is_over():
            break
        edits, instead = together(some)
        try:
            made = at.search.forward.replay.run(edits, instead, lambda index, _: index == own).get(own)
        except NOT_COMPUTED:
            continue
        if made is not None and is_near(made, target):
            gain = at.gain(edits, instead)
            if gain is not None and not gain.lost:
                return some
    return ()


def _likeliest_first(changes: Sequence[Change]) -> Iterator[tuple[Change, ...]]:
    """Yield each change alone, then each two of different places, by what they cost together."""
    yield from ((each,) for each in changes)
    todo = [(one.cost + two.cost, place, place + 1) for place, (one, two) in enumerate(pairwise(changes))]
    while todo:
        _, first, second = heapq.heappop(todo)
        one, two = changes[first], changes[second]
        if second + 1 < len(changes):
            heapq.heappush(todo, (one.cost + changes[second + 1].cost, first, second + 1))
        if one.place != two.place:
            yield one, two

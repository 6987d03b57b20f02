"""Values of both forwards that are computed from the same right ones: they stand for each other, whatever is behind.

Example: a norm takes the variance for the mean square, and what follows has a fault of its own, so that no value behind
the norm tells whether it was led past. Both sides compute the norm from ``x`` alone, with one weight: its last value in
the port is the reference's last.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.parity.closeness import AGREE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.parity.proof.matching import OpenValues
    from pytest_tfdebug.parity.proof.value_graph import Side

    _Operands = frozenset[int | None]
    _Regions = dict[tuple[_Operands, frozenset[str]], list[int]]

#: The last values of a region that are tried: scales and orders may be put before its end or behind it.
_LAST = 3


def ends_of_regions(
    pair: ForwardPair,
    opened: OpenValues,
    missing: OpenValues,
    weights_of: Callable[[Side, int], set[str]],
) -> Iterator[tuple[list[int], list[int]]]:
    """Yield what both forwards compute from the same right values, region by region.

    A region ends where another weight is used: what comes after it is another one.

    Args:
        pair: Both forwards.
        opened: The values of the port that the reference never computes.
        missing: Those of the reference that the port never computes.
        weights_of: Returns the names of the parameters that a value of a side was computed from.

    Yields:
        The last values of a region of the port, and of one of the reference with the same operands, the last first.
    """
    mine = _regions(pair.port, opened, lambda index: _same(pair, index), weights_of)
    theirs = _regions(pair.reference, missing, lambda index: _same_there(pair, index), weights_of)
    for (operands, _), others in sorted(theirs.items(), key=lambda region: region[1][0]):
        for (own_operands, _), own in mine.items():
            if operands and own_operands == operands:
                yield own[: -_LAST - 1 : -1], others[: -_LAST - 1 : -1]


def _regions(
    side: Side,
    opened: OpenValues,
    name: Callable[[int], int | None],
    weights_of: Callable[[Side, int], set[str]],
) -> _Regions:
    """Return the open values of a side that are computed, by the right values and the weights that they come of."""
    comes_of: dict[int, tuple[_Operands, frozenset[str]]] = {}
    found: _Regions = {}
    for index in sorted(opened.open):
        value, of = side.values[index], set[int | None]()
        weights = {own} if (own := side.parameter(index)) else set[str]()
        for made in value.producers:
            if made in comes_of:
                of |= comes_of[made][0]
                weights |= comes_of[made][1]
                continue
            weights |= weights_of(side, made)
            if side.weighted[made] and not side.parameter(made):
                of.add(name(made))
        comes_of[index] = frozenset(of), frozenset(weights)
        if value.producers and not value.is_moved and value.tells and side.weighted[index]:
            found.setdefault(comes_of[index], []).append(index)
    return found


def _same(pair: ForwardPair, index: int) -> int | None:
    """Return the first value of the reference that a value of the port is."""
    return min(pair.matches.within(index, AGREE), default=None)


def _same_there(pair: ForwardPair, index: int) -> int | None:
    """Return the first value of the reference that is the same in the port as one of its values."""
    own = pair.back_matches.within(index, AGREE)
    return _same(pair, own[0]) if own else None

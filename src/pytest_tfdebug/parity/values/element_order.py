"""Where the elements of a value come into another order than the reference has them in."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.values.matching import has_same_order, reordered_axes, shared_axes
from pytest_tfdebug.parity.values.operator_kinds import KEEP_ORDER, kind_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.fingerprints import Fingerprint
    from pytest_tfdebug.parity.values.counterparts import Counterparts
    from pytest_tfdebug.values import Value

#: As many lines as a value has.
ALL_LINES = 99


class _Axes(NamedTuple):
    """The axes of a value, by their lengths, beside those of the reference's."""

    moved: frozenset[int]  # those along which the elements lie in another order
    shared: frozenset[int]  # those that both have
    merged: frozenset[int]  # those that are several axes in one elsewhere: how these lie in it is a matter of layout

    def reordered(self, *, is_strict: bool) -> frozenset[int]:
        """Return the axes in another order, with those where this may be a layout if not strict."""
        return self.moved - self.merged if is_strict else self.moved

    def known(self, *, is_strict: bool) -> frozenset[int]:
        """Return the axes of which the order is known, likewise."""
        return self.shared - self.merged if is_strict else self.shared


class ElementOrder:
    """The order of the elements of a port's values."""

    def __init__(self, counterparts: Counterparts) -> None:
        self._counterparts = counterparts

    def reordered_since(self, index: int, *, is_pure: bool) -> Value | None:
        """Return the value since which the elements of an operand lie in another order than they should.

        Of several axes the last that changed: what changed before led to values that agree.
        """
        for is_strict in (True, False) if is_pure else (True,):
            since = [
                self._changed_at(start, length, is_strict=is_strict)
                for start in {index, *(value.index for value in self._counterparts.port.moves(index))}
                for length in self._misplaced_axes(start, is_strict=is_strict)
            ]
            found = max((value for value in since if value is not None), key=lambda value: value.index, default=None)
            if found is not None:
                return found
        return None

    def _changed_at(self, index: int, length: int, *, is_strict: bool) -> Value | None:
        """Return the value at which the order along the axis of a length changed; None for a layout of the weights."""
        port = self._counterparts.port
        begin, at = None, port.values[index]
        while not port.parameter(at.index):
            wrong = self._misplaced_axes(at.index, is_strict=is_strict)
            known = self._axes(at.index).known(is_strict=is_strict)
            if (length in known and length not in wrong) or (not wrong and known >= set(at.shape) - {1}):
                return None if begin is None or begin.operator in KEEP_ORDER else begin
            begin = at
            if kind_of(at) == "matmul" and any(map(port.parameter, at.producers)):
                return at if self._counterparts.misplaced(at) or self._counterparts.agrees_elsewhere(at) else None
            before = self._before(at, index, length, is_strict=is_strict)
            if before is None:
                break
            at = before
        return begin if begin is not None and begin.operator and begin.operator not in KEEP_ORDER else None

    def _before(self, at: Value, index: int, length: int, *, is_strict: bool) -> Value | None:
        """Return the operand of a value that brought the order along an axis into it; None where there is none."""
        port = self._counterparts.port
        before = [made for made in at.producers if length in self._misplaced_axes(made, is_strict=is_strict)]
        before += [made for made in at.producers if at.is_moved or not before]
        before = [made for made in before if port.weighted[made] == port.weighted[index]]
        before = [made for made in before if not port.parameter(made)]
        return port.values[before[0]] if before else None

    def _misplaced_axes(self, index: int, *, is_strict: bool) -> frozenset[int]:
        """Return the lengths of the axes in whose order a value differs from what leads to right results elsewhere."""
        own = self._axes(index)
        alike = self._counterparts.alike_elsewhere(self._counterparts.port.values[index], ALL_LINES)
        other = next((self._axes(each.index) for each in alike), None)
        if other is None:
            return own.reordered(is_strict=is_strict)
        known = own.known(is_strict=is_strict) & other.known(is_strict=is_strict)
        return (own.reordered(is_strict=is_strict) ^ other.reordered(is_strict=is_strict)) & known

    def _axes(self, index: int) -> _Axes:
        """Return which axes lie in another order than the reference's, and of which that is known."""
        value = self._counterparts.port.values[index]
        partners = self._counterparts.matches.within(index, self._counterparts.tolerance)
        prints = [self._counterparts.reference.values[each].print for each in partners]
        alike = [each for each in (value.print, *prints) if each.elements == value.print.elements]
        merged = _merged({_lengths(each) for each in alike})
        shared = [frozenset(shared_axes(value.print, each)) for each in prints]
        most = max(map(len, shared), default=0)
        best = [(each, axes) for each, axes in zip(prints, shared, strict=True) if axes and len(axes) == most]
        if not best:
            return _Axes(frozenset(), frozenset(), frozenset())
        moved = min((frozenset(reordered_axes(value.print, each)) for each, _ in best), key=len)
        return _Axes(moved, best[0][1], merged)

    def is_turned(self, first: Value) -> bool:
        """Tell whether axes of one length have changed places in an operand: the reference's have the same lengths."""
        pair = self._counterparts
        for made in first.producers:
            own = pair.port.values[made].print
            theirs = [pair.reference.values[each].print for each in pair.matches.within(made, pair.tolerance)]
            alike = [each for each in theirs if _lengths(each) == _lengths(own)]
            if alike and not any(has_same_order(own, each) for each in alike):
                return True
        return False

    def laid_out(self, first: Value) -> Value | None:
        """Return the last step before a module of torch's that can have changed the order of an operand's elements."""
        port = self._counterparts.port
        for made in first.producers:
            if not port.weighted[made] or port.parameter(made):
                continue
            for value in port.moves(made):
                if value.call != first.call and value.operator not in KEEP_ORDER | {"clone"}:
                    return value
        return None


def _lengths(fingerprint: Fingerprint) -> tuple[int, ...]:
    return tuple(length for length, _ in fingerprint.axes)


def _merged(shapes: Iterable[tuple[int, ...]]) -> frozenset[int]:
    """Return the lengths that are the product of neighbouring axes of another shape: layout decides their order."""
    return frozenset(
        prod(shape[start:end])
        for shape in shapes
        for start in range(len(shape))
        for end in range(start + 2, len(shape) + 1)
    )

"""What the lines of a module computed, and whether that is what the reference computes too."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.closeness import AGREE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.parity.text.text_differences import TextDifference
    from pytest_tfdebug.records import Call, CallComparison, SourceRange
    from pytest_tfdebug.values import Value


class ValuesOfLines:
    """The values of a call by the lines that computed them.

    Args:
        item: The call beside its expected one; None where no text of it is known.
        look: What values say of both forwards.
        seen: Who is to blame by values, if that is within the lines that calls name.
    """

    def __init__(self, item: CallComparison | None, look: Explained, seen: Claim | None) -> None:
        self._item, self._look, self._seen = item, look, seen

    def of(self, lines: SourceRange, *, by_calls: bool = False) -> list[tuple[Value, float]]:
        """Return what some lines computed in the call that is to blame, and how far the reference's is.

        With ``by_calls`` what was computed in the calls that it made counts too.
        """
        item, pair = self._item, self._look.pair
        if item is None or pair is None:
            return []
        port, name = pair.port, (item.call.path, item.call.call)
        call = next((call for call in port.table.calls if (call.path, call.call) == name), port.root)
        return [
            (value, pair.matches.distance(value.index))
            for value in port.values
            if port.is_within(value.call, call)
            and any(
                lines.holds(at.file, at.line)
                for at in port.places(value, _below(port, value, call) if by_calls else ())
            )
        ]

    def is_right(self, difference: TextDifference) -> bool:
        """Tell whether what a statement computes, itself and by its calls, is what the reference computes too.

        Numbers, flags and masks are not known to be, nor is the order of elements.
        """
        if difference.is_left_out or not self.of(difference.own):
            return False
        return all(_is_known(*each) for each in self.of(difference.own, by_calls=True))

    def leads_to_wrong(self, difference: TextDifference) -> bool:
        """Tell whether the value that is wrong was computed from what a statement computed, if that is any value."""
        pair, finding, values = self._look.pair, self._look.finding, self.of(difference.own)
        if pair is None or finding is None or not values:
            return True
        before = pair.port.ancestors(*(value.index for value in finding.values[:1]))
        return any(value.index in before for value, _ in values)

    def first_that_ran(self, statements: Sequence[SourceRange]) -> SourceRange:
        """Return the statement that computed a value, or else the last before the one whose value is wrong."""
        values = self._look.pair.port.values if self._look.pair is not None else []
        lines = {(line.file, line.line) for value in values for line in value.lines}
        ran = [each for each in statements if any((each.file, at) in lines for at in range(each.first, each.last + 1))]
        seen = self._seen
        places = [] if seen is None else [place for place in (seen.source, *seen.callers) if place is not None]
        before = [each for each in statements if any(is_not_after(each, place) for place in places[-1:])]
        return (ran or before[::-1] or statements)[0]


def _below(port: Side, value: Value, call: Call) -> Iterator[Call]:
    """Yield the calls around a value that were made under another one."""
    return takewhile(lambda each: each.index != call.index, port.around(value.call))


def _is_known(value: Value, distance: float) -> bool:
    fingerprint = value.print
    is_telling = value.tells and fingerprint.finite == fingerprint.elements
    return is_telling and not value.is_moved and distance <= AGREE


def passes(look: Explained, lines: SourceRange, paired: set[str]) -> bool:
    """Tell whether the values that are wrong came about in some lines, or in what these called and was not compared."""
    if look.finding is None or look.pair is None:
        return False
    if look.seen is not None and meet(look.seen.source, lines):
        return True
    port = look.pair.port
    return any(
        lines.holds(place.file, place.line)
        for value in look.finding.values
        for place in port.places(value, takewhile(lambda call: call.path not in paired, port.around(value.call)))
    )


def is_not_after(lines: SourceRange, other: SourceRange | None) -> bool:
    """Tell whether some lines begin before others of their file, or with them."""
    return other is not None and lines.file == other.file and lines.first <= other.first


def meet(one: SourceRange | None, other: SourceRange) -> bool:
    """Tell whether two ranges have a line in common."""
    return one is not None and one.file == other.file and one.first <= other.last and other.first <= one.last

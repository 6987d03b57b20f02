"""The values around a culprit as plain data: what computed them, from what, and which the other side has too."""

from __future__ import annotations

import linecache
from typing import TYPE_CHECKING

from pytest_tfdebug.check_record import ValueRecord
from pytest_tfdebug.parity.values.open_values import TOLERANCES, OpenValues
from pytest_tfdebug.parity.values.value_culprit import AGREE
from pytest_tfdebug.records import SourceRange

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_tfdebug.check_record import ValueState
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.values.matching import Matches
    from pytest_tfdebug.parity.values.value_graph import Side
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.values import Value

#: Steps back from the culprit's values, and values that are shown of each side.
_STEPS = 3
_SHOWN = 40


class NearValues:
    """The values of two forwards near the one that is wrong."""

    def __init__(self, report: ParityReport) -> None:
        explained = report.explained
        assert explained is not None  # noqa: S101 - the caller has looked
        assert explained.pair is not None  # noqa: S101 - likewise
        self.pair, finding = explained.pair, explained.finding
        self._own = {value.index for value in finding.values} if finding is not None else set()
        self._reference = {finding.reference.index} if finding is not None and finding.reference is not None else set()
        pairs = self.pair.pair_results(AGREE)
        results = [mine for mine, _ in pairs.apart], [theirs for _, theirs in pairs.apart]
        # the verdict was reached at one of several tolerances: the first at which what it names has no partner
        for self.tolerance in (AGREE, *TOLERANCES):
            self.is_open, self.is_open_there = self._open(*results)
            if self._own <= self.is_open.open and self._reference <= self.is_open_there.open:
                break
        self._calls = {(item.call.path, item.call.call): item for item in report.calls}
        #: Call of the port -> the one of the reference that gives its output, and how far that is, of what is allowed.
        self.paired: dict[int, tuple[int, float]] = self._paired(report)

    def _open(self, mine: Sequence[int], theirs: Sequence[int]) -> tuple[OpenValues, OpenValues]:
        pair, tolerance = self.pair, self.tolerance
        return (
            OpenValues(pair.port, pair.matches, tolerance, mine, known=pair.weights.known),
            OpenValues(pair.reference, pair.back_matches, tolerance, theirs, known=pair.back.known),
        )

    def own(self) -> tuple[ValueRecord, ...]:
        """Return the port's values around those that the verdict names."""
        return _around(self.pair.port, self.pair.matches, self.is_open, self._own)

    def reference(self) -> tuple[ValueRecord, ...]:
        """Return the reference's values around the first that the port never computes."""
        return _around(self.pair.reference, self.pair.back_matches, self.is_open_there, self._reference)

    def shares(self) -> dict[int, float | None]:
        """Return how far the output of each call that no name pairs is from the reference's, of what is allowed."""
        found: dict[int, float | None] = {}
        for call, value in _first_outputs(self.pair.port):
            item = self._calls.get((call.path, call.call))
            if item is not None and item.expected is None:
                if item.call.index in self.paired:
                    found[item.call.index] = self.paired[item.call.index][1]
                elif value in self.is_open.open:
                    found[item.call.index] = None
        return found

    def _paired(self, report: ParityReport) -> dict[int, tuple[int, float]]:
        there = [*(item.expected for item in report.calls if item.expected is not None), *report.unpaired]
        expected = {(call.path, call.call): call.index for call in there}
        makers: dict[int, list[int]] = {}
        for call, value in _first_outputs(self.pair.reference):
            if (call.path, call.call) in expected:
                makers.setdefault(value, []).append(expected[call.path, call.call])
        found: dict[int, tuple[int, float]] = {}
        for call, value in _first_outputs(self.pair.port):
            item = self._calls.get((call.path, call.call))
            for partner in self.pair.matches.partners[value] if item is not None else ():
                free = makers.get(partner.place)
                if free and item is not None:
                    found[item.call.index] = free.pop(0), partner.distance / self.tolerance
                    break
        return found


def _first_outputs(side: Side) -> Iterator[tuple[Call, int]]:
    """Yield the calls of a side that returned a tensor, each with the first one."""
    for call in side.table.calls:
        yield from ((call, value) for _, value in side.table.outputs.get(call.index, ())[:1])


def _around(side: Side, matches: Matches, opened: OpenValues, meant: set[int]) -> tuple[ValueRecord, ...]:
    """Return some values, what they were computed from in some steps, and what was computed from them at once."""
    chosen, edge = set(meant), set(meant)
    for _ in range(_STEPS):
        edge = {made for index in edge for made in side.values[index].producers} - chosen
        if len(chosen) + len(edge) > _SHOWN:
            break
        chosen |= edge
    users = [user for index in sorted(meant) for user in side.users.get(index, ())]
    chosen |= set(users[: max(0, _SHOWN - len(chosen))])
    return tuple(_record(side.values[index], side, matches, opened, meant) for index in sorted(chosen))


def _record(value: Value, side: Side, matches: Matches, opened: OpenValues, meant: Iterable[int]) -> ValueRecord:
    line = value.lines[0] if value.lines else None
    is_same = matches.distance(value.index) <= opened.tolerance
    state: ValueState = "same" if is_same else "open" if value.index in opened.open else "explained"
    return ValueRecord(
        value.index,
        value.operator,
        value.name,
        side.call_of(value).path if value.call is not None else "",
        None if line is None else SourceRange(line.file, line.line, line.line),
        "" if line is None else (line.text or linecache.getline(line.file, line.line)).strip(),
        value.shape,
        value.dtype,
        value.producers,
        state,
        matches.partners[value.index][0].place if is_same else None,
        value.index in set(meant),
    )

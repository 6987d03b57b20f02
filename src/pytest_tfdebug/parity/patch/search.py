"""The search for an edit of a port's own source after which every output agrees.

What runs before a forward, reads no tensor or is done in another way than in the reference has no value to start from;
it has a text. Each statement that ran is written otherwise, as mistakes are made (:mod:`.any_edits`), and run: where it
made the port, that is made again. The statements that led to the first wrong value come first.

Example: ``fused = torch.cat([k, q, v])`` of ``convert`` is found by ``q, k, v`` as the text of its list.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.patch.any_edits import AnyEdit, OtherSide, any_edits
from pytest_tfdebug.parity.patch.lines_seen import LinesSeen
from pytest_tfdebug.parity.patch.side_effects import has_side_effects
from pytest_tfdebug.parity.patch.source_edits import statements_of
from pytest_tfdebug.parity.patch.tried_source import TriedFile, tried
from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
from pytest_tfdebug.parity.proof.known_numbers import configured_numbers
from pytest_tfdebug.tracing.values.conversions import Remaker

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.patch.lines_seen import Seen
    from pytest_tfdebug.parity.patch.source_edits import EditedStatement
    from pytest_tfdebug.parity.patch.tried_source import HeldPort
    from pytest_tfdebug.parity.proof.budget import Budget
    from pytest_tfdebug.tracing.values.rerun import Rerun
    from pytest_tfdebug.values import Values

#: A line of a file.
At = tuple[str, int]
#: Seconds of work of an operator that runs without being watched, and how much cheaper a forward is then.
_OPERATOR, _UNWATCHED = 1e-5, 0.1
#: How much less likely the edits are that are still tried once one was found: whether another one mends it, too.
_RIVALS = 1
#: As many of them are told apart by what they leave.
_JUDGED = 6
#: How much larger a tensor may become than any of the reference's, and elements that are never too many.
_LARGER, _SMALL = 4, 1 << 16
#: How far a line is from what is wrong, if nothing is known of it.
_FAR = 3


class _RanStatement(NamedTuple):
    """A statement of the port that ran."""

    file: str
    statement: EditedStatement
    seen: Seen
    distance: int  # from what is wrong: 0 for where that was computed

    @property
    def has_side_effects(self) -> bool:
        """Whether its function has."""
        return self.statement.function is not None and has_side_effects(self.statement.function)


class Mending(NamedTuple):
    """An edit after which every output agrees, on the inputs that were searched and on others."""

    file: str
    statement: EditedStatement
    edit: AnyEdit
    distance: int
    is_making: bool  # whether it is of what made the port
    holds: bool | None  # whether on others; None where none could be made

    @property
    def at(self) -> At:
        """Where it begins."""
        return self.file, self.statement.row_of(self.edit.edit)

    @property
    def cost(self) -> int:
        """How unlikely it is."""
        return self.distance + self.edit.rank


@dataclass(frozen=True)
class SourceSearched:
    """What became of the search."""

    found: tuple[Mending, ...]  # the likeliest edit of each statement, the likeliest first
    is_sure: bool  # whether no other one that is hardly less likely mends it as well


class SourceSearch:
    """The edits of a port's source, each tried by a run.

    Args:
        port: The port and its inputs.
        reference: The reference and its inputs.
        calls: The port on its inputs and on others, with what its outputs are to be.
        expected: The values of the reference.
        work: Seconds of work of a forward of the port.
        taken: Where the port takes parameters that may be wrong: an edit there is never sure to be the mend, for it may
            make up for these, and what made the port is likelier. None where no parameter may be.
    """

    def __init__(
        self,
        port: Rerun,
        reference: Rerun,
        calls: Sequence[HeldPort],
        expected: Values,
        work: float,
        *,
        taken: Collection[At] | None,
    ) -> None:
        self._port, self._reference, self._reference_values, self._work = port, reference, expected, work
        largest = max((each.print.elements for each in expected.values), default=0)
        self._most = max(_LARGER * largest, _SMALL)
        self._calls, self._taken = calls, taken
        if not self._calls[0].port.wider:  # else each operator is watched, too
            self._work *= _UNWATCHED
        self._remaker = Remaker.of(port.model)
        numbers = [*configured_numbers(reference.model)]
        self._files: dict[str, TriedFile] = {}
        self._known = OtherSide(numbers, [name for name, _ in reference.model.named_parameters()])

    def run(self, near: Mapping[At, int], budget: Budget) -> SourceSearched:
        """Try edits until one is found, and those that are hardly less likely, or a budget is spent.

        Args:
            near: How far some lines are from what is wrong; all others are farther.
            budget: What may be spent.
        """
        found: dict[At, Mending] = {}
        with tried(self._calls):
            is_sure = self._try_all(near, budget, found)
        likely = sorted(found.values(), key=lambda each: (self.makes_up(each), each.cost))
        if len(likely) > 1:
            judged = [(self._left(each), each) for each in likely[:_JUDGED]]
            judged.sort(key=lambda pair: (self.makes_up(pair[1]), pair[0], pair[1].cost))
            likely[:_JUDGED] = [each for _, each in judged]
            is_sure = is_sure and judged[0][0] < judged[1][0]
        is_sure = is_sure and bool(likely) and not self.makes_up(likely[0])
        return SourceSearched(tuple(likely), is_sure)

    def makes_up(self, mending: Mending) -> bool:
        """Tell whether an edit may make up for a wrong parameter, by code that takes its elements otherwise."""
        return not mending.is_making and mending.at in (self._taken or ())

    def _left(self, mending: Mending) -> float:
        """Return how many values of the port are still none of the reference's after an edit: of rightly mended none.

        ``slopes * -distance`` and ``scores - slopes * distance`` do the same, and only one gives the reference's bias.
        """
        made = self._remaker if mending.is_making else None
        with self._files[mending.file].with_edits([mending.edit.edit]):
            model = self._port.model if made is None else made.make()
            values = None if model is None else self._port.of(model).values()
        if values is None:
            return math.inf
        pair = ForwardPair(values, self._reference_values)
        computed = (each for each in pair.port.values if each.operator and each.tells and not each.is_moved)
        return sum(pair.matches.distance(each.index) > AGREE for each in computed)

    def _try_all(self, near: Mapping[At, int], budget: Budget, found: dict[At, Mending]) -> bool:
        """Put what is found into a dictionary, and tell whether all was tried that is hardly less likely."""
        most = None
        for each, edit in self._likeliest_first(near):
            cost, at = each.distance + edit.rank, (each.file, each.statement.row_of(edit.edit))
            if most is not None and cost > most:
                return True
            if budget.spent() >= 1:
                return False
            if at not in found and self._mends(each, edit, budget):
                is_held = True if len(self._calls) > 1 else None
                found[at] = Mending(each.file, each.statement, edit, each.distance, each.seen.is_making, is_held)
                most = cost + _RIVALS if most is None else most
        return True

    def _likeliest_first(self, near: Mapping[At, int]) -> Iterator[tuple[_RanStatement, AnyEdit]]:
        every = [
            (each._replace(distance=_distance(each, edit, near)), edit)
            for each in self._statements(near)
            for edit in any_edits(each.statement, each.seen, self._known)
        ]
        # of those as likely what runs in the forward alone goes first: it is quicker; but not where a weight is wrong
        every.sort(
            key=lambda pair: (pair[0].distance + pair[1].rank, pair[0].seen.is_making != (self._taken is not None))
        )
        yield from every

    def _mends(self, each: _RanStatement, edit: AnyEdit, budget: Budget) -> bool:
        remaker = self._remaker if each.seen.is_making else None
        most = self._most if edit.may_be_huge else None
        for call in self._calls:
            budget.take(self._work + (remaker.operators * _OPERATOR if remaker is not None else 0.0))
            if not call.agrees(self._files[each.file], [edit.edit], remaker, most):
                return False
        return True

    def _statements(self, near: Mapping[At, int]) -> list[_RanStatement]:
        """Return the statements of the port's own code that ran in it alone.

        None of those that ran while it was made, if any of these has side effects: these would be another's.
        """
        found, lines = list[_RanStatement](), self._lines()
        for file in dict.fromkeys(file for file, _ in lines.by_line):
            self._files[file] = TriedFile(file, self._port.model)
            for statement in statements_of(self._files[file].text):
                ran = [(file, row) for row in statement.rows if (file, row) in lines.by_line]
                if ran and statement.function is not None and not statement.is_definition:
                    distance = min(near.get((file, row), _FAR) for row in statement.rows)
                    found.append(_RanStatement(file, statement, lines.by_line[ran[0]], distance))
        unsafe = [each for each in found if each.has_side_effects]
        kinds = {each.seen.is_making for each in unsafe}
        if False in kinds:  # the forward
            return []
        near_functions = {id(each.statement.function) for each in found if each.distance <= 0}
        return [
            each._replace(distance=min(each.distance, 1)) if id(each.statement.function) in near_functions else each
            for each in found
            if each.seen.is_making not in kinds
        ]

    def _lines(self) -> LinesSeen:
        mine, theirs = LinesSeen(), LinesSeen()
        with theirs.watched(is_making=False):
            self._reference.outputs()
        with mine.watched(is_making=False):
            self._port.outputs()
        if self._remaker is not None:
            with mine.watched(is_making=True):
                self._remaker.make()
        for at in theirs.by_line.keys() & mine.by_line.keys():
            del mine.by_line[at]
        return mine


def _distance(each: _RanStatement, edit: AnyEdit, near: Mapping[At, int]) -> int:
    """Return how far an edit is from what is wrong: of a statement of several lines each has its own."""
    row = each.statement.row_of(edit.edit)
    known = min((near[each.file, line] for line in each.statement.rows if (each.file, line) in near), default=_FAR)
    return max(each.distance, min(near.get((each.file, row), _FAR), known + 1))

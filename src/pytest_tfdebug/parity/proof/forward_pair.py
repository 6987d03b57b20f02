"""A port's forward beside the reference's: which values, parameters and outputs belong together."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.module_path import holder, last_part, under
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.pair.pairing import chosen, likeness
from pytest_tfdebug.parity.proof.matching import Matches, axes_of, has_same_order, match_pieces, reordered_axes
from pytest_tfdebug.parity.proof.value_graph import Side
from pytest_tfdebug.parity.proof.weights import is_same_weight, pair_weights
from pytest_tfdebug.values import distance, join

if TYPE_CHECKING:
    from pytest_tfdebug.values import Value, Values

    _Leaves = list[tuple[str, int]]


class ResultPairs(NamedTuple):
    """The outputs of the two roots, side by side."""

    agreeing: list[tuple[int, int]]  # values that both return, whatever they are called
    differing: list[tuple[int, int]]  # values under one name, or parts of one, that differ
    guessed: list[tuple[int, int]]  # values of one form that differ, of names that are alike
    leftover: list[tuple[int | None, int | None]]  # what only one side returns, with None for the other

    @property
    def apart(self) -> list[tuple[int, int]]:
        """The pairs that differ."""
        return [*self.differing, *self.guessed]


class ForwardPair:
    """The forwards of a port and of its reference."""

    def __init__(self, port: Values, reference: Values) -> None:
        self.port, self.reference = Side(port), Side(reference)
        self.weights = pair_weights(port.parameters, reference.parameters)
        self.back = pair_weights(reference.parameters, port.parameters)
        self.matches, self.back_matches = Matches(self.port, self.reference), Matches(self.reference, self.port)
        match_pieces(self.port, self.matches, self.reference, self.back_matches)
        match_pieces(self.reference, self.back_matches, self.port, self.matches)

    def pair_results(self, tolerance: float) -> ResultPairs:
        """Pair the outputs of the two roots: by what they are, are parts of or are cut into, by form and name, by form.

        One side may return in pieces what the other returns whole. Where one side has a single output left, and the
        other those of all layers, it belongs to the last computed; of several the names that are most alike belong
        together.
        """
        mine, theirs = list(self.port.table.results), list(self.reference.table.results)
        agreeing = [*self._take_equal(mine, theirs, tolerance), *self._take_whole(mine, theirs, tolerance)]
        differing = self._take_parts(mine, theirs, tolerance)
        guessed = self._take_covered(mine, theirs, tolerance)
        alike = [
            (own, other)
            for own in mine
            for other in theirs
            if _form(self.port.values[own[1]]) == _form(self.reference.values[other[1]])
        ]
        is_single = 1 in (len(mine), len(theirs))

        def rank(own: tuple[str, int], other: tuple[str, int]) -> tuple[float, int, int]:
            return (own[0] != other[0], -own[1], -other[1]) if is_single else (-likeness(own[0], other[0]), 0, 0)

        pairs = chosen(alike, rank)
        mine = [own for own in mine if own not in {one for one, _ in pairs}]
        theirs = [other for other in theirs if other not in {one for _, one in pairs}]
        guessed += [(own[1], other[1]) for own, other in pairs if own[0] != other[0]]
        differing += [(own[1], other[1]) for own, other in pairs if own[0] == other[0]]
        if len(mine) == len(theirs) == 1 and self._has_as_many(mine[0][1], theirs[0][1]):  # axes joined or split
            guessed.append((mine.pop()[1], theirs.pop()[1]))
        left = [*((i, None) for _, i in mine), *((None, i) for _, i in theirs)]
        return ResultPairs(agreeing, differing, guessed, left)

    def _has_as_many(self, mine: int, theirs: int) -> bool:
        """Tell whether two values have as many elements, and are numbers."""
        one, other = self.port.values[mine], self.reference.values[theirs]
        return one.print.elements == other.print.elements and "float" in one.dtype and "float" in other.dtype

    def _take_equal(self, mine: _Leaves, theirs: _Leaves, tolerance: float) -> list[tuple[int, int]]:
        """Take the outputs that both sides return out of the two lists, and return them."""
        found = []
        for leaf in list(mine):
            same = [other for other in theirs if other[1] in self.matches.within(leaf[1], tolerance)]
            if same:
                found.append((leaf[1], same[0][1]))
                mine.remove(leaf)
                theirs.remove(same[0])
        return found

    def _take_whole(self, mine: _Leaves, theirs: _Leaves, tolerance: float) -> list[tuple[int, int]]:
        """Take out the outputs that the other side returns in pieces, and return each with what was cut there."""
        found = []
        sides = (mine, self.matches, self.reference), (theirs, self.back_matches, self.port)
        for left, matches, other in sides:
            whole = {
                base
                for base, cut in other.pieces().items()
                if distance(join([piece.print for piece in cut]), other.values[base].print) <= tolerance
            }
            for leaf in list(left):
                partner = next((each for each in matches.within(leaf[1], tolerance) if each in whole), None)
                if partner is not None:
                    found.append((leaf[1], partner) if left is mine else (partner, leaf[1]))
                    left.remove(leaf)
        return found

    def _take_parts(self, mine: _Leaves, theirs: _Leaves, tolerance: float) -> list[tuple[int, int]]:
        """Take out the port's outputs that are cut from an output of the reference, and return both."""
        found = []
        for leaf in list(theirs):
            whole = self.back_matches.within(leaf[1], tolerance)
            cut = [
                other
                for other in mine
                if not set(whole).isdisjoint(made for value in self.port.moves(other[1]) for made in value.producers)
            ]
            found += [(other[1], leaf[1]) for other in cut]
            mine[:] = [other for other in mine if other not in cut]
            if cut:
                theirs.remove(leaf)
        return found

    def _take_covered(self, mine: _Leaves, theirs: _Leaves, tolerance: float) -> list[tuple[int, int]]:
        """Take out the outputs that have the form of what the other side returns in pieces, and return both.

        Pieces that overlap, as ``x[:, 0]`` and ``x[:, :-1]`` do, are not the whole.
        """
        found = []
        for left, own, cut, other in (
            (mine, self.port, theirs, self.reference),
            (theirs, self.reference, mine, self.port),
        ):
            for base, pieces in other.pieces().items():
                whole, indices = other.values[base], {each.index for each in pieces}
                if not indices <= {index for _, index in cut}:
                    continue
                joined = join([each.print for each in pieces])
                if joined.elements != whole.print.elements or distance(joined, whole.print) > tolerance:
                    continue
                leaf = next((each for each in left if _form(own.values[each[1]]) == _form(whole)), None)
                if leaf is not None:
                    found.append((leaf[1], base) if left is mine else (base, leaf[1]))
                    left.remove(leaf)
                    cut[:] = [each for each in cut if each[1] not in indices]
        return found

    def is_in_order(self, index: int, tolerance: float) -> bool:
        """Tell whether the elements of a value of the port are known to lie as in one of the reference that it is."""
        own = self.port.values[index].print
        theirs = (self.reference.values[each].print for each in self.matches.within(index, tolerance))
        return any(axes_of(own) == axes_of(each) and has_same_order(own, each) for each in theirs)

    @cached_property
    def out_of_order(self) -> int | None:
        """The value of the port at which the elements of an output come into another order than expected.

        What is computed of it has the expected numbers, element for element in the wrong places. On the way back from
        an output the last value that lies right tells where; layouts of what is not on the way are conventions. So is
        what comes of weights that lie in another order, such as keys that are turned in pairs.
        """
        pairs = self.pair_results(AGREE)
        for own, other in (*pairs.agreeing, *pairs.differing):
            if other in self.matches.within(own, AGREE) and self.lies_right(own) is False:
                names = {self.port.values[each].name for each in self.port.ancestors(own)}
                return None if names & self.weights.reordered else self.begin_of_order(own)
        return None

    def begin_of_order(self, index: int) -> int | None:
        """Return the first value on the way to one that lies wrong that does so; None where nothing before is known."""
        while True:
            before = [(each, self.lies_right(each)) for each in self._known_before(index)]
            wrong = [each for each, is_right in before if is_right is False]
            if not wrong:
                return index if before else None
            index = min(wrong)

    def _known_before(self, index: int) -> set[int]:
        """Return the nearest values that a value was computed of, and of which it is known whether they lie right."""
        todo, found, seen = list(self.port.values[index].producers), set[int](), set[int]()
        while todo:
            each = todo.pop()
            if each in seen or not self.port.weighted[each]:
                continue
            seen.add(each)
            if self.lies_right(each) is None:
                todo += self.port.values[each].producers
            else:
                found.add(each)
        return found

    def lies_right(self, index: int) -> bool | None:
        """Tell whether the elements of a value lie as the reference's; None where it has none of such axes."""
        own = self.port.values[index]
        theirs = (self.reference.values[each].print for each in self.matches.within(index, AGREE))
        alike = [each for each in theirs if sorted(axes_of(each)) == sorted(axes_of(own.print))]
        return any(not reordered_axes(own.print, each) for each in alike) if alike and own.tells else None

    def is_held_as_theirs(self, name: str) -> bool:
        """Tell whether a parameter of the port holds just what one of the reference's does, in its shape and order."""
        mine, theirs = self.port.table.parameters, self.reference.table.parameters
        return any(is_same_weight(mine[name], theirs[each]) for each in self.weights.partners.get(name, ()))

    def computed_weights(self, tolerance: float) -> set[str]:
        """Return the names of the reference's parameters whose numbers a value of the port has."""
        used = (value for value in self.reference.values if value.origin == "parameter")
        return {value.name for value in used if self.back_matches.within(value.index, tolerance)}

    def wrong_weights(self, own: str, expected: str) -> dict[str, str]:
        """Return the parameters of a module that are not those of the reference's module, and what is wrong.

        Where one has another number of elements, none was loaded wrongly: the module was made otherwise.
        """
        mine, theirs = self.port.table.parameters, self.reference.table.parameters
        pairs = {name: under(expected, last_part(name)) for name in mine if holder(name) == own}
        pairs = {name: there for name, there in pairs.items() if there in theirs}
        if any(mine[name][0].elements != theirs[there][0].elements for name, there in pairs.items()):
            return {}
        wrong = {name: there for name, there in pairs.items() if not is_same_weight(mine[name], theirs[there])}
        return {name: self.weights.told([name], there) for name, there in wrong.items()}


def _form(value: Value) -> tuple[list[int], bool]:
    """Return the lengths of a value's axes, sorted, and whether it is of floating point."""
    return sorted(length for length, _ in value.print.axes), "float" in value.dtype

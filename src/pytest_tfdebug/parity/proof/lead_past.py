"""Leading past a fault: the reference's value in the place of one of the port's, so that what is behind can be seen.

The first value that the port never computes and that, given to the port, makes expected values appear behind it and
none disappear, stands for a right port up to there. It needs no names, verifies itself, and is the yardstick of a
change: one that mends the same fault gives most of what it gives.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.parity.closeness import SAME
from pytest_tfdebug.parity.proof.forward import NOT_COMPUTED
from pytest_tfdebug.parity.proof.matching import OpenValues
from pytest_tfdebug.parity.proof.value_graph import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.proof.forward import Edit
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair, ResultPairs
    from pytest_tfdebug.parity.proof.prove import Searches
    from pytest_tfdebug.tracing.values.tape import Tape
    from pytest_tfdebug.values import Value

#: Expected values that appear behind a change that mends a fault; one is enough where it joins two of weights.
FEWEST = 3
#: Fewer elements tell nothing.
_ELEMENTS = 6
#: Values of the reference and of the port that are tried, and those of tables among the latter.
_THEIRS, _MINE, _TABLES = 60, 70, 40
#: First open values whose operands are tried, partners that teach a layout, and axes that are tried in every order.
_BEGINNINGS, _TAUGHT, _AXES = 4, 4, 4
#: Wrong values in a row after which a run that leads nowhere is given up: of a value, and of a change.
_PATIENCE, PATIENCE_OF_CHANGES = 8, 40


class Gain(NamedTuple):
    """What a run gives that the port does not."""

    found: dict[int, int]  # values of the reference that appear -> the values of the port that they are
    # values that were right and appear nowhere any more, and the first wrong one if it and an output of it stay so
    lost: int
    joined: frozenset[int]  # those that appear and join what has changed with what has not, and comes of weights


class Past(NamedTuple):
    """A value of the reference that leads past a fault."""

    own: int  # the value of the port in whose place it is given
    other: int  # the value of the reference
    tensor: torch.Tensor  # its elements as the port lays them out
    gained: frozenset[int]  # values of the reference that appear behind it


class Round:
    """Both forwards at one fault: those before it are mended, or led past."""

    def __init__(self, pair: ForwardPair, pairs: ResultPairs, searches: Searches, reference: Tape) -> None:
        if searches.port is None:
            raise ValueError("The port cannot be run.")
        self.pair, self.pairs, self.searches, self.reference = pair, pairs, searches, reference
        self.search = searches.port
        begins = [theirs for _, theirs in (*pairs.differing, *pairs.agreeing, *pairs.guessed)]
        self._missing = OpenValues(pair.reference, pair.back_matches, SAME, begins, known=pair.back.known)
        self._orders: dict[tuple[torch.Size, torch.Size], tuple[int, ...]] | None = None

    def _joins(self, place: int, changed: Collection[int], edits: Collection[int]) -> bool:
        """Tell whether a value of the port was computed from what has changed and one of weights that has not.

        What an operator gives beside its result, such as the mean of a layer norm, comes of the first operand alone.
        """
        side, tape = self.pair.port, self.search.forward.tape
        step = tape.maker.get(place)
        made = {each for each in side.values[place].producers if side.weighted[each]}
        if step is None or tape.steps[step].outs[0] != place or len(made) < 2:  # noqa: PLR2004 - it joins two
            return False
        return not made.issubset(changed) and (step in edits or not made.isdisjoint(changed))

    def _reaches_output(self, place: int, right: Collection[int]) -> bool:
        """Tell whether an output is computed from a value of the port by a way on which nothing is right."""
        side = self.pair.port
        results, seen, todo = {index for _, index in side.table.results}, {place}, [place]
        while todo:
            at = todo.pop()
            if at in results:
                return True
            new = [user for user in side.users.get(at, ()) if user not in right and user not in seen]
            seen.update(new)
            todo += new
        return False

    def _are_counterparts(self, own: int, other: int) -> bool:
        """Tell whether two values are results of one kind of operator that is given the same parameters."""
        mine, theirs = self.pair.port.values[own], self.pair.reference.values[other]
        names = {name for name in self.pair.port.parameters_of(mine) if name}
        partners = [self.pair.back.partners.get(name, ()) for name in self.pair.reference.parameters_of(theirs) if name]
        is_alike = bool(names) and len(names) == len(partners) and kind_of(mine) == kind_of(theirs)
        return is_alike and all(not names.isdisjoint(each) for each in partners)

    def has_same_weights(self, own: int, other: int) -> bool:
        """Tell whether a value of the port comes of the same parameters as one of the reference."""
        port, reference, pair = self.pair.port, self.pair.reference, self.pair
        mine = {name for index in port.ancestors(own) if (name := port.parameter(index))}
        theirs = {name for index in reference.ancestors(other) if (name := reference.parameter(index))}
        return _are_partners(mine, theirs, pair.weights.partners) and _are_partners(theirs, mine, pair.back.partners)

    def skipped(self, other: int) -> Collection[int]:
        """Return what the reference alone computes on the way to a value from what both do."""
        side, made = self.pair.reference, self.pair.reference.values[other].producers
        return OpenValues(side, self.pair.back_matches, SAME, made, known=self.pair.back.known).open

    def gain(
        self,
        edits: Mapping[int, Edit],
        instead: Mapping[int, torch.Tensor],
        skip: Collection[int] = (),
        patience: int = PATIENCE_OF_CHANGES,
    ) -> Gain | None:
        """Run the port with some changes; None where these cannot be computed."""
        search, side = self.search, self.pair.port
        found: dict[int, int] = {}
        left: set[int] = set()  # what was right and has changed
        kept: set[int] = set()  # what the reference has of all that has changed
        right: set[int] = set()  # which values of the port that is
        foreign, wrong = 0, False
        first = next(iter(search.firsts()), None)

        def look(index: int, tensor: torch.Tensor) -> bool:
            nonlocal foreign, wrong
            if index < 0 or tensor.numel() < _ELEMENTS or not tensor.is_floating_point():
                return False
            value = side.values[index]
            is_made = side.weighted[index] and value.tells and not value.is_moved and index not in instead
            if is_made and search.is_known[index]:
                left.add(index)
            there = search.find(tensor)
            if there is not None:
                kept.add(there)
                right.add(index)
                if search.is_missing[there] and there not in skip:
                    found.setdefault(there, index)
                return False
            foreign += 1
            wrong = wrong or (first is not None and first.index == index)
            return foreign > patience and not found

        try:
            changed = search.forward.replay.run(edits, instead, look)
        except NOT_COMPUTED:
            return None
        lost = int(wrong and first is not None and self._reaches_output(first.index, right))
        lost += sum(kept.isdisjoint(self.pair.matches.within(index, search.same)) for index in left)
        joined = frozenset(there for there, own in found.items() if self._joins(own, changed, edits))
        return Gain(found, lost, joined)

    def agrees_after(self, edits: Mapping[int, Edit], instead: Mapping[int, torch.Tensor]) -> bool:
        """Tell whether every output agrees after some changes."""
        try:
            return self.search.residual(self.search.forward.replay.run(edits, instead)) <= self.search.same
        except NOT_COMPUTED:
            return False

    def lead_past(self, is_over: Callable[[], bool]) -> Past | None:
        """Return the first value of the reference that leads past the next fault; None where none does.

        What both sides compute with the same parameter is one, even if another fault is right behind it.
        """
        mine = self._mine()
        for other in self._theirs():
            best: Past | None = None
            for own in mine:
                for laid in self._laid(other, own):
                    if is_over():
                        return best
                    gain = self.gain({}, {own: laid}, self._same_as(other), _PATIENCE)
                    if gain is None or gain.lost:
                        continue
                    leads = self._leads_on(gain, {own: laid})
                    if leads or (self._is_layout_known(own, other) and self._are_counterparts(own, other)):
                        gained = frozenset(gain.found if leads else (*gain.found, other))
                        if best is None or len(gained) > len(best.gained):
                            best = Past(own, other, laid, gained)
                        break
            if best is not None:
                return best
        return None

    def _leads_on(self, gain: Gain, instead: Mapping[int, torch.Tensor]) -> bool:
        """Tell whether a value leads to one that joins it with another of weights, or to all outputs.

        What was computed from it alone says nothing of where it belongs: another layer does the same with its own.
        """
        return bool(gain.joined) or (bool(gain.found) and self.agrees_after({}, instead))

    def _same_as(self, other: int) -> set[int]:
        """Return the values of the reference that are one that is given."""
        print_ = self.pair.reference.values[other].print
        return {
            place
            for place, value in enumerate(self.search.others)
            if value.print.elements == print_.elements and abs(value.print.rms - print_.rms) <= 1e-5 * print_.rms
        }

    def _theirs(self) -> list[int]:
        """Return the values that the reference alone computes, in their order."""
        values = (self.pair.reference.values[index] for index in sorted(self._missing.open))
        told = [value.index for value in values if value.producers and not value.is_moved and value.tells]
        return [index for index in told if index in self.reference.tensors][:_THEIRS]

    def _mine(self) -> list[int]:
        """Return the values of the port that may be wrong: operands of the first open values, tables, open values."""
        side, tape = self.pair.port, self.search.forward.tape
        found: dict[int, None] = {}
        for first in self.search.firsts()[:_BEGINNINGS]:
            for made in first.producers:
                found.setdefault(made)
                todo = [made]
                while todo:  # a table that is right elsewhere may be the wrong one here
                    at = todo.pop()
                    if not side.weighted[at] and len(found) < _TABLES:
                        found.setdefault(at)
                        todo += side.values[at].producers
        found |= dict.fromkeys(index for index in sorted(self.search.opened.open) if side.values[index].producers)
        bases = dict.fromkeys(map(self._base, found))
        return [index for index in bases if index in tape.maker and "float" in side.values[index].dtype][:_MINE]

    def _base(self, index: int) -> int:
        """Return the value that one shows all elements of."""
        values, maker = self.pair.port.values, self.search.forward.tape.maker
        while values[index].is_moved and len(values[index].producers) == 1:
            made = values[index].producers[0]
            if values[made].print.elements != values[index].print.elements or made not in maker:
                break
            index = made
        return index

    def _laid(self, other: int, own: int) -> Iterator[torch.Tensor]:
        """Yield a value of the reference as the port lays out what has the shape of one of its own.

        The layout is that of a value that both have, or any order of its axes; of a table of two equal halves one is
        enough.
        """
        tensor, alike = self.reference.tensors[other], self.search.forward.tensor(own)
        if tensor.numel() == 2 * alike.numel() and tensor.shape[-1] % 2 == 0 and torch.equal(*tensor.chunk(2, -1)):
            tensor = tensor.chunk(2, -1)[0]
        if tensor.numel() != alike.numel() or tensor.dtype != alike.dtype:
            return
        order = self.orders.get((tensor.shape, alike.shape))
        if order is not None:
            yield tensor.squeeze().permute(order).reshape(alike.shape).contiguous()
        elif tensor.shape == alike.shape:
            yield tensor
        else:
            yield from (laid for _, laid in _layouts(tensor, alike.shape))

    def _is_layout_known(self, own: int, other: int) -> bool:
        tensors = self.search.forward.tape.tensors
        return (self.reference.tensors[other].shape, tensors[own].shape) in self.orders

    @property
    def orders(self) -> dict[tuple[torch.Size, torch.Size], tuple[int, ...]]:
        """In which order the port has the axes of each shape of the reference, as far as values that both have tell."""
        if self._orders is None:
            self._orders = {}
            for value in self.pair.port.values:
                self._learn(value, self._orders)
        return self._orders

    def _learn(self, value: Value, orders: dict[tuple[torch.Size, torch.Size], tuple[int, ...]]) -> None:
        own = self.search.forward.tape.tensors.get(value.index)
        if own is None or not value.tells or not self.pair.port.weighted[value.index] or own.dim() < 2:  # noqa: PLR2004
            return
        for place in self.pair.matches.within(value.index, SAME)[:_TAUGHT]:
            other = self.reference.tensors.get(place)
            if other is None or other.numel() != own.numel() or (other.shape, own.shape) in orders:
                continue
            near = 1e-4 * float(own.abs().max())
            alike = (order for order, laid in _layouts(other, own.shape) if torch.allclose(laid, own, 1e-3, near))
            order = next(alike, None)
            if order is not None:
                orders[other.shape, own.shape] = order


def _are_partners(names: Collection[str], others: Collection[str], partners: Mapping[str, Collection[str]]) -> bool:
    """Tell whether each of some parameters that has partners has one among others."""
    return all(not partners.get(name) or not set(others).isdisjoint(partners[name]) for name in names)


def _layouts(tensor: torch.Tensor, shape: Sequence[int]) -> Iterator[tuple[tuple[int, ...], torch.Tensor]]:
    """Yield a tensor in a shape, its axes in every order that gives another."""
    count = sum(size > 1 for size in tensor.shape)
    orders = itertools.permutations(range(count)) if count <= _AXES else [tuple(range(count))]
    seen: list[torch.Tensor] = []
    for order in orders:
        laid = tensor.squeeze().permute(order).reshape(shape).contiguous()
        if not any(torch.equal(laid, each) for each in seen):
            seen.append(laid)
            yield order, laid

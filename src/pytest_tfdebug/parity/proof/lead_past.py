"""Leading past a fault: the reference's value in the place of one of the port's, so that what is behind can be seen.

The first value that the port never computes and that, given to the port, makes expected values appear behind it and
none disappear, stands for a right port up to there. It needs no names, verifies itself, and is the yardstick of a
change: one that mends the same fault gives most of what it gives.
"""

from __future__ import annotations

import itertools
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.module_path import holder
from pytest_tfdebug.parity.closeness import AGREE, SAME
from pytest_tfdebug.parity.proof.forward import NOT_COMPUTED, is_near
from pytest_tfdebug.parity.proof.matching import OpenValues
from pytest_tfdebug.parity.proof.same_operands import ends_of_regions
from pytest_tfdebug.parity.proof.value_graph import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.proof.forward import Edit
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair, ResultPairs
    from pytest_tfdebug.parity.proof.prove import Searches
    from pytest_tfdebug.parity.proof.value_graph import Side
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
#: Elements of a tensor that are compared before all of it.
_SOME = 64
#: Wrong values in a row after which a run that leads nowhere is given up: of a value, and of a change.
_PATIENCE, PATIENCE_OF_CHANGES = 8, 40
#: Ends of regions that are tried.
_RUNS = 60
#: Layouts of each operand of a product that are tried.
_LAYOUTS = 4


class Gain(NamedTuple):
    """What a run gives that the port does not."""

    found: dict[int, int]  # values of the reference that appear -> the values of the port that they are
    # values that were right and appear nowhere any more, and the first wrong one if it and an output of it stay so
    lost: int
    joined: frozenset[int]  # those that appear and join what has changed with what has not, and comes of weights
    computed: frozenset[int]  # those that appear and are no view of what has not changed
    swapped: bool  # whether one value of the reference stands now where another one was


class Past(NamedTuple):
    """A value of the reference that leads past a fault."""

    own: int  # the value of the port in whose place it is given, or that is computed from what is
    other: int  # the value of the reference
    given: dict[int, torch.Tensor]  # what is given in the place of values of the port, laid out as these are
    gained: frozenset[int]  # values of the reference that appear behind it
    ways: tuple[tuple[int, int], ...]  # what is given in whose place: a value of the port, and one of the reference
    is_region: bool = False  # whether that is known by what it is computed from, and not by what is behind it


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
        self._weights: dict[tuple[int, int], set[str]] = {}

    def _joins(self, place: int, changed: Collection[int], edits: Collection[int]) -> bool:
        """Tell whether a value of the port was computed from what has changed and one of weights that has not.

        What an operator gives beside its result, such as the mean of a layer norm, comes of the first operand alone. A
        view shows what was computed: a part of a product with a fused weight joins what the product does.
        """
        side, tape = self.pair.port, self.search.forward.tape
        place = side.computed(side.values[place]).index
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
        is_alike = bool(names) and len(names) == len(partners) and self._are_alike(own, other)
        return is_alike and all(not names.isdisjoint(each) for each in partners)

    def has_same_weights(self, own: int, other: int) -> bool:
        """Tell whether a value of the port comes of the same parameters as one of the reference."""
        port, reference, pair = self.pair.port, self.pair.reference, self.pair
        mine, theirs = self._weights_of(port, own), self._weights_of(reference, other)
        return _are_partners(mine, theirs, pair.weights.partners) and _are_partners(theirs, mine, pair.back.partners)

    def _come_of_same(self, past: tuple[int, int], own: int, other: int) -> bool:
        """Tell whether a value of the port comes of the parameters of one of the reference, once one is given.

        Args:
            past: The value of the port in whose place one is given, and the value of the reference that is.
            own: The value of the port.
            other: The value of the reference.
        """
        port, reference, pair = self.pair.port, self.pair.reference, self.pair
        given, theirs = self._weights_of(reference, past[1]), self._weights_of(reference, other)
        mine = {name for index in port.ancestors(own, but=past[0]) if (name := port.parameter(index))}
        is_of = _are_partners(mine, theirs, pair.weights.partners)
        return is_of and _are_partners(theirs - given, mine, pair.back.partners)

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
        still: Collection[int] = (),
    ) -> Gain | None:
        """Run the port with some changes; None where these cannot be computed.

        Args:
            edits: What some steps do then.
            instead: What is given in the place of some values.
            skip: Values of the reference that count for nothing.
            patience: Wrong values after which a run is given up that has led to none that is right.
            still: Values that a port with these changes computes, too: what is made of them is another one.

        Returns:
            What appears and what is lost.
        """
        search, side = self.search, self.pair.port
        found: dict[int, int] = {}
        left: set[int] = set()  # what was right and has changed
        kept: set[int] = set()  # what the reference has of all that has changed
        right: set[int] = set()  # which values of the port that is
        foreign, wrong, swapped = 0, False, False
        first = next(iter(search.firsts()), None)

        def look(index: int, tensor: torch.Tensor) -> bool:
            nonlocal foreign, wrong, swapped
            if index < 0 or tensor.numel() < _ELEMENTS or not tensor.is_floating_point():
                return False
            value = side.values[index]
            is_computed = not value.is_moved or len(value.producers) > 1  # what is put together of several is
            is_made = side.weighted[index] and value.tells and is_computed and index not in instead
            if is_made and search.is_known[index] and index not in still:
                left.add(index)
            there = search.find(tensor)
            if there is not None:
                is_other = search.is_known[index] and there not in self.pair.matches.within(index, search.same)
                swapped = swapped or (is_other and side.weighted[index] and index not in still)
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
        bases = {there: side.computed(side.values[own]).index for there, own in found.items()}
        computed = frozenset(there for there, base in bases.items() if base in changed)
        return Gain(found, lost, joined, computed, swapped)

    def is_made_wrong(self, edits: Mapping[int, Edit]) -> bool:
        """Tell whether steps give other values of the same shapes with some changes, and none that is right now."""
        forward = self.search.forward
        outs = [out for place in edits for out in forward.outs_of(place)[:1]]
        try:
            made = forward.replay.run(edits, {})
        except NOT_COMPUTED:
            return False
        both = [(made[out], forward.tensor(out)) for out in outs if out in made and not self.search.is_known[out]]
        return any(new.shape == old.shape and not torch.equal(new, old) for new, old in both)

    def agrees_after(self, edits: Mapping[int, Edit], instead: Mapping[int, torch.Tensor]) -> bool:
        """Tell whether every output agrees after some changes."""
        try:
            return self.search.residual(self.search.forward.replay.run(edits, instead)) <= self.search.same
        except NOT_COMPUTED:
            return False

    def lead_past(self, is_over: Callable[[], bool]) -> Past | None:
        """Return the first value of the reference that leads past the next fault; None where none does."""
        past = self._led_on(is_over)
        if past is not None:
            return past
        region = self.region
        return self._output() if region is None or region.other in self.outputs else None

    @cached_property
    def outputs(self) -> set[int]:
        """The values of the reference that outputs of the port are held to, and are not."""
        return {theirs for _, theirs in (*self.pairs.differing, *self.pairs.guessed)}

    def _led_on(self, is_over: Callable[[], bool]) -> Past | None:
        """Return the first value behind which others are right.

        What both sides compute with the same parameter is one, even if another fault is right behind it.
        """
        mine = self._mine()
        for other in self._theirs():
            best: Past | None = self._past_both(other, mine, is_over)
            if best is not None:
                return best
            for own in (own for own in mine if self._are_counterparts(own, other) or self._may_stand_for(other, own)):
                for laid in self._laid(other, own):
                    if is_over():
                        return best
                    gain = self.gain({}, {own: laid}, self._same_as(other), _PATIENCE)
                    if gain is None or gain.lost:
                        continue
                    leads = self._leads_on(gain, {own: laid}, other)
                    if leads or (self._is_layout_known(own, other) and self._are_counterparts(own, other)):
                        gained = frozenset(gain.found if leads else (*gain.found, other))
                        if best is None or len(gained) > len(best.gained):
                            best = Past(own, other, {own: laid}, gained, ((own, other),))
                        break
            if best is not None:
                return best
        return None

    def _output(self) -> Past | None:
        """Return the output itself where it alone differs: what is wrong lies behind all else that can be seen."""
        outputs = {(self._base(mine), other) for mine, other in self.pairs.apart if other in self.reference.tensors}
        if len(outputs) != 1:
            return None
        ((own, other),) = outputs
        laid = next(self._laid(other, own), None) if own in self.search.forward.tape.maker else None
        if laid is None or not self.agrees_after({}, {own: laid}):
            return None
        return Past(own, other, {own: laid}, frozenset(), ((own, other),))

    @cached_property
    def region(self) -> Past | None:
        """The end of the first region that both compute from the same right values with the same weights.

        It leads past faults behind which nothing is right, for another one follows at once.
        """
        runs = 0
        for mine, theirs in ends_of_regions(self.pair, self.search.opened, self._missing, self._weights_of):
            best: Past | None = None
            for other, own in itertools.product(theirs, mine):
                is_known = other in self.reference.tensors and own in self.search.forward.tape.maker
                laid = next(self._laid(other, own), None) if is_known and self.has_same_weights(own, other) else None
                if laid is None:
                    continue
                if runs == _RUNS:
                    return best
                runs += 1
                gain = self.gain({}, {own: laid}, self._same_as(other), _PATIENCE)
                if gain is None or gain.lost or not (gain.found or self._are_alike(own, other)):
                    continue
                if best is None or len(gain.found) > len(best.gained):
                    best = Past(own, other, {own: laid}, frozenset(gain.found), ((own, other),), is_region=True)
            if best is not None:
                return best
        return None

    def _are_alike(self, own: int, other: int) -> bool:
        return kind_of(self.pair.port.values[own]) == kind_of(self.pair.reference.values[other])

    def _leads_on(self, gain: Gain, instead: Mapping[int, torch.Tensor], other: int) -> bool:
        """Tell whether a value leads to one that joins it with another of weights, or to all outputs.

        What was computed from it alone says nothing of where it belongs: another layer does the same with its own. What
        comes of other weights than the reference's is that by chance.
        """
        (own,) = instead
        joined = (each for each in gain.joined if self._come_of_same((own, other), gain.found[each], each))
        return next(joined, None) is not None or (bool(gain.found) and self.agrees_after({}, instead))

    def _past_both(self, other: int, mine: Sequence[int], is_over: Callable[[], bool]) -> Past | None:
        """Return what leads past faults in both operands of a product, as of a query and a key.

        It is known by its weights; given what the reference multiplies, it has to be the reference's product.
        """
        theirs = self._multiplied(self.pair.reference, other)
        for own in mine if theirs else ():
            multiplied = self._multiplied(self.pair.port, own)
            if len(multiplied) != len(theirs) or not self.has_same_weights(own, other):
                continue
            for given, ways in self._given_both(multiplied, theirs):
                if is_over():
                    return None
                gain = self.gain({}, given, (), _PATIENCE)
                if gain is not None and not gain.lost and gain.found.get(other) == own:
                    return Past(own, other, given, frozenset(gain.found), ways)
                if gain is not None and not gain.lost and self._gives_multiple(given, own, other):
                    return Past(own, other, given, frozenset(gain.found or [other]), ways)
        return None

    def _gives_multiple(self, given: Mapping[int, torch.Tensor], own: int, other: int) -> bool:
        """Tell whether the port makes a multiple of a value of the reference of what is given: it is scaled later."""
        made = self.search.forward.replay.run({}, given, lambda index, _: index == own).get(own)
        if made is None:
            return False
        for laid in self._laid(other, own):
            factor = float((made * laid).sum() / laid.square().sum())
            if float((made - factor * laid).norm()) <= AGREE * float(made.norm()):
                return True
        return False

    def _multiplied(self, side: Side, index: int) -> list[int]:
        """Return both operands of a product of what comes of weights; nothing for another value."""
        value = side.values[index]
        made = [each for each in value.producers if side.weighted[each] and not side.parameter(each)]
        return made if kind_of(value) == "matmul" and len(made) == len(value.producers) == 2 else []  # noqa: PLR2004 - both

    def _given_both(
        self, mine: Sequence[int], theirs: Sequence[int]
    ) -> Iterator[tuple[dict[int, torch.Tensor], tuple[tuple[int, int], ...]]]:
        """Yield both operands of a product as given: as they were computed first, then as they are multiplied.

        Of what one side computes in one product with others, and as one of several heads, it is the part between. A
        scale of one of them is not given with it.
        """
        port, reference = self.pair.port, self.pair.reference
        ways = [
            list(self._same_elements(_unscaled(port, here), _unscaled(reference, there)))
            for here, there in zip(mine, theirs, strict=True)
        ]
        if all(each and self._is_right(*each[0]) for each in ways):
            return  # what is wrong lies between: a scale
        for first, second in itertools.product(*ways):
            laid = [list(islice(self._laid(there, here), _LAYOUTS)) for here, there in (first, second)]
            for one, two in itertools.product(*laid):
                yield {first[0]: one, second[0]: two}, (first, second)

    def _is_right(self, own: int, other: int) -> bool:
        """Tell whether a value of the port is one of the reference, in one of its layouts."""
        return any(is_near(self.search.forward.tensor(own), laid) for laid in self._laid(other, own))

    def _same_elements(self, mine: Sequence[Value], theirs: Sequence[Value]) -> Iterator[tuple[int, int]]:
        """Yield what can be given for what, first and last: of views, and of what they are views of."""
        pairs = [
            (own.index, other.index)
            for own, other in itertools.product(reversed(mine), reversed(theirs))
            if other.index in self.reference.tensors and own.index in self.search.forward.tape.maker
            if next(self._laid(other.index, own.index), None) is not None
        ]
        yield from dict.fromkeys((*pairs[:1], *pairs[-1:]))

    def _may_stand_for(self, other: int, own: int) -> bool:
        """Tell whether a value of the port is not behind one of the reference, by the weights that it comes of.

        A fault takes one wrong weight at most; what comes of more that the reference uses later is another value.
        """
        given = self._weights_of(self.pair.reference, other)
        used = self.pair.reference.used
        later = {
            holder(name)
            for name in self._weights_of(self.pair.port, own)
            if (partners := used.intersection(self.pair.weights.partners.get(name, ()))) and given.isdisjoint(partners)
        }
        return len(later) <= 1

    def _weights_of(self, side: Side, index: int) -> set[str]:
        """Return the names of the parameters that a value was computed from."""
        key = id(side), index
        if key not in self._weights:
            self._weights[key] = {name for each in side.ancestors(index) if (name := side.parameter(each))}
        return self._weights[key]

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

        The layout is that of a value that both have, or any order of its axes; of what is repeated, as the halves of a
        table or the heads of a key, one is enough.
        """
        tensor, alike = self.reference.tensors[other], self.search.forward.tensor(own)
        if tensor.numel() > alike.numel() > 0:
            tensor = _once(tensor, tensor.numel() // alike.numel())
        if tensor.numel() != alike.numel() or tensor.dtype != alike.dtype:
            return
        order = self.orders.get((tensor.shape, alike.shape))
        if order is not None:
            found: Iterable[torch.Tensor] = [tensor.squeeze().permute(order).reshape(alike.shape)]
        elif tensor.shape == alike.shape:
            found = [tensor]
        else:
            found = _layouts(tensor, alike.shape)
        yield from (torch.empty_like(alike).copy_(each) for each in found)  # what views show needs the same strides

    def _is_layout_known(self, own: int, other: int) -> bool:
        """Tell whether values that both have tell a layout, or two that are computed alike have one shape."""
        shapes = self.reference.tensors[other].shape, self.search.forward.tensor(own).shape
        return shapes in self.orders or shapes[0] == shapes[1]

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
            if other is None or (other.dtype, other.numel()) != (own.dtype, own.numel()):
                continue
            if (other.shape, own.shape) in orders:
                continue
            order = _order_of(other, own)
            if order is not None:
                orders[other.shape, own.shape] = order


def _are_partners(names: Collection[str], others: Collection[str], partners: Mapping[str, Collection[str]]) -> bool:
    """Tell whether each of some parameters that has partners has one among others."""
    return all(not partners.get(name) or not set(others).isdisjoint(partners[name]) for name in names)


def _unscaled(side: Side, index: int) -> list[Value]:
    """Return a value, and what it was before it was moved and multiplied by numbers, the last first."""
    found = [*side.bases(index)]
    while kind_of(found[-1]) == "scale":
        of = [each for each in found[-1].producers if side.values[each].print.elements > 1]
        if len(of) != 1:
            break
        found += side.bases(of[0])
    return found


def _once(tensor: torch.Tensor, count: int) -> torch.Tensor:
    """Return one of what a tensor repeats along an axis, one by one or in turn; the tensor if it repeats nothing."""
    for axis, size in enumerate(tensor.shape):
        if size % count:
            continue
        for shape, among in (((size // count, count), axis + 1), ((count, size // count), axis)):
            repeated = tensor.reshape(*tensor.shape[:axis], *shape, *tensor.shape[axis + 1 :])
            first = repeated.narrow(among, 0, 1)
            if torch.equal(repeated, first.expand_as(repeated)):
                return first.squeeze(among)
    return tensor


def _order_of(tensor: torch.Tensor, own: torch.Tensor) -> tuple[int, ...] | None:
    """Return the order of a tensor's axes in which another one holds its elements; None if it does in none.

    Some elements are compared first: of a large tensor each order would be a copy.
    """
    axes, near = tensor.squeeze(), 1e-4 * float(own.abs().max())
    elements = own.flatten()
    some = torch.linspace(
        0, len(elements) - 1, min(len(elements), _SOME), dtype=torch.float64, device=own.device
    ).long()
    for order in _orders(axes):
        laid = axes.permute(order)
        few = laid[torch.unravel_index(some, laid.shape)]
        if torch.allclose(few, elements[some], 1e-3, near) and torch.allclose(laid.reshape(own.shape), own, 1e-3, near):
            return order
    return None


def _orders(tensor: torch.Tensor) -> Iterable[tuple[int, ...]]:
    axes = range(tensor.dim())
    return itertools.permutations(axes) if tensor.dim() <= _AXES else [tuple(axes)]


def _layouts(tensor: torch.Tensor, shape: Sequence[int]) -> Iterator[torch.Tensor]:
    """Yield a tensor in a shape, its axes in every order that gives another."""
    axes = tensor.squeeze()
    seen: list[torch.Tensor] = []
    for order in _orders(axes):
        laid = axes.permute(order).reshape(shape).contiguous()
        if not any(torch.equal(laid, each) for each in seen):
            seen.append(laid)
            yield laid

"""Every fault in one search: what mends one is made for good, what nothing mends is led past, and so on behind it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.proof.budget import Budget
from pytest_tfdebug.parity.proof.changes import LENGTHENED, SHORTENED, together
from pytest_tfdebug.parity.proof.elsewhere import Ran
from pytest_tfdebug.parity.proof.forward import NOT_COMPUTED, is_near, is_same
from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
from pytest_tfdebug.parity.proof.lead_past import FEWEST, Gain, Round
from pytest_tfdebug.parity.proof.made_changes import changed_forward
from pytest_tfdebug.parity.proof.mended import Mended
from pytest_tfdebug.parity.proof.prove import Live, OneChange, Proof, Searched, Trial, searches_of, seconds_of
from pytest_tfdebug.parity.proof.search import Mend, Reached
from pytest_tfdebug.parity.proof.second_call import OtherInputs
from pytest_tfdebug.parity.proof.target import changes_giving
from pytest_tfdebug.parity.proof.value_graph import kind_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.proof.changes import Change
    from pytest_tfdebug.parity.proof.forward_pair import ResultPairs
    from pytest_tfdebug.parity.proof.lead_past import Past
    from pytest_tfdebug.values import Values

#: Share of what the reference's value leads to that a change must lead to as well.
_SHARE = 0.8
#: A change that costs so much more than one that was accepted is not tried any more.
_BEYOND = 0.6
#: Changes that give nearly as much cannot be told apart.
_ALIKE = 0.9
#: Places at which a forward is changed, at most.
_MOST = 24
#: Budgets that all faults have together, one each, at most.
_BUDGETS = 8
#: Shares of what is left of the budget for one change that makes all outputs agree, before several are looked for:
#: where one value of the reference does, and where that leads to another difference.
_TO_ONE, _TO_ONE_OF_SEVERAL = 0.9, 0.3
#: Shares of what is left of the budget for the value that leads past a fault, and with the changes that mend it.
_TO_PAST, _TO_CHANGES = 0.3, 0.6
#: Share of what is left of it for one change that mends the last fault, before one that mends a part is looked for.
_TO_LAST = 0.7
#: What comes first: a change that mended the same in another layer.
_AGAIN = -1.0

#: How a search for every fault ended: all outputs agree; they were given, for nothing is right behind the last fault;
#: nothing mends or leads past the next one; it was cut.
End = Literal["agrees", "given", "exhausted", "cut"]


@dataclass(frozen=True)
class Front:
    """One fault: where the forwards part once those before it are mended."""

    pair: ForwardPair  # both forwards there
    pairs: ResultPairs  # their outputs
    begin: int  # the port's value where they do
    proof: Proof | None = None  # what mends it; None where nothing does
    past: Past | None = None  # the reference's value that leads past it; None where none does
    is_of_table: bool = False  # whether that stands for a value that is right elsewhere, and another one here
    is_beside: bool = (
        False  # whether that comes of nothing that is wrong before it: another fault is told apart from it
    )
    is_second: bool = False  # whether it is in another operand of the product that one before it is in


@dataclass(frozen=True)
class Fronts:
    """Every fault of a port, in the order of its forward."""

    found: tuple[Front, ...]
    end: End
    one: Searched | None = None  # how the search ended for one change that makes every output agree
    mended: Mended | None = None  # the changes, where every output agrees after them alone
    holds: bool | None = None  # whether every output agrees after them on inputs that were not searched; None: unknown

    @property
    def is_mended(self) -> bool:
        """Whether every output agrees after changes alone."""
        return self.mended is not None


def find_fronts(port: Values, reference: Values, trial: Trial) -> Fronts:
    """Search for every fault of a port; the reference must have run, too.

    Args:
        port: The values of the port.
        reference: Those of the reference.
        trial: What ran in both.

    Returns:
        The faults. One in every layer is one.
    """
    return _FaultSearch(port, reference, trial).fronts()


class _Stage(NamedTuple):
    """What was made of the port at once: changes, or values that were given."""

    changes: tuple[Change, ...]
    given: dict[int, torch.Tensor]


class _Option(NamedTuple):
    """Some changes that are made together, and what they give."""

    changes: Sequence[Change]
    gain: Gain
    reached: Reached
    is_all: bool  # whether every output agrees
    lines: int  # on how many lines they are

    @property
    def rank(self) -> tuple[bool, int, int, int]:
        """What sorts the best last: one fault is on one line, in as many layers as it may be."""
        return self.is_all, len(self.gain.found), -self.lines, len(self.changes)

    @property
    def cost(self) -> float:
        """How unlikely it is."""
        return min(change.cost for change in self.changes)


class _FaultSearch:
    """One search for every fault."""

    def __init__(self, port: Values, reference: Values, trial: Trial) -> None:
        self._port, self._reference, self._trial = port, reference, trial
        self._ran = Ran(port, trial.port.tape), Ran(reference, trial.reference.tape)
        self._made: list[_Stage] = []  # in its order
        self._led_at: dict[int, int] = {}  # ``id`` of a fault that was led past -> where what was given is in that
        self._dropped: list[Front] = []  # faults that were led past, and seemed to be those behind them
        self._others = OtherInputs(self._ran, trial.again)  # with the same changes
        self._holds: bool | None = None  # whether all outputs agree there in the end
        self._budget, self._budgets = Budget(seconds_of(trial), trial.begun), 1
        self._accepted: set[Hashable] = set()  # what mended something: it is likely in other layers, too
        self._last_proof: Proof | None = None  # what mends the last fault; it is not made
        self._led: set[Hashable] = set()  # the lines that were led past
        # right values of the port in whose place another was given: their other uses are wrong
        self._borrowed: set[int] = set()

    def fronts(self) -> Fronts:
        """Go from fault to fault, unless one change makes every output agree, on other inputs, too.

        One that does for these inputs alone, or is not found soon, does not keep it from that; what is left of the
        budget then goes on with it.
        """
        at = self._round()
        if at is None or at.search.before <= AGREE:
            return Fronts((), "exhausted" if at is None else "agrees")
        past, is_last = self._past(at)
        one = OneChange(at.searches, self._others)
        searched = self._one(one, _TO_ONE if is_last else _TO_ONE_OF_SEVERAL)
        if searched.proof is not None and searched.proof.holds is not False:
            return Fronts((), "agrees", searched)
        made = self._made_otherwise(at)
        behind = self._round() if made else at
        if behind is None or behind.search.before <= AGREE:
            end: End = "exhausted" if behind is None else "agrees"
            return Fronts(tuple(made), end, searched, self._mended(made, end), self._agree_elsewhere(behind))
        if made:
            self._go_on()
            past, is_last = self._past(behind)
        found, end = self._from(behind, past, made, is_last=is_last)
        if end == "agrees":
            found += self._needed(behind, found)
        found.sort(key=lambda front: front.begin)
        alike = self._alike(at, one, found)
        if alike is not None:
            return Fronts((), "agrees", alike)
        faults = () if is_last and len(found) == 1 else tuple(found)
        fronts = Fronts(faults, end, mended=self._mended(found, end), holds=self._holds)
        is_several = len(found) > 1 and any(front.proof is not None for front in found)
        if not is_several and searched.end == "cut":
            searched = self._one(one, 1.0)
        return replace(fronts, one=searched)

    def _alike(self, at: Round, one: OneChange, found: Sequence[Front]) -> Searched | None:
        """Return what mends one of the faults, if that alone mends all wherever its lines run: one was led past."""
        proofs = [front.proof for front in found if front.proof is not None and not front.proof.is_reverse]
        if len(proofs) == len(found):
            return None
        with torch.no_grad():
            for change in (proof.mends[0].change for proof in proofs):
                mends = (
                    at.search.mend(changes, at.search.reach(changes[0])) for changes in at.search.elsewhere(change)
                )
                mend = next(filter(None, mends), None)
                proof = None if mend is None else one.judged([mend], at.search, is_reverse=False)
                if proof is not None and proof.holds is not False:
                    return Searched(proof, "proved", self._budget.seconds)
        return None

    def _mended(self, found: Sequence[Front], end: End) -> Mended | None:
        """Return the changes after which every output agrees; the last may be one of the reference."""
        if end != "agrees" or any(front.proof is None for front in found):
            return None
        last = self._last_proof
        changes = () if last is None else last.mends[0].changes
        if last is not None and last.is_reverse:
            return Mended(self._ran, tuple(each.changes for each in self._made), changes)
        return Mended(self._ran, (*(each.changes for each in self._made), changes))

    def _needed(self, at: Round, found: Sequence[Front]) -> list[Front]:
        """Return the faults that were dropped, if not all outputs agree without the values that led past them."""
        if not self._dropped:
            return []
        every = {place for place, each in enumerate(self._made) if each.given}
        alone = {self._led_at[id(front)] for front in self._dropped}
        if self._agrees_without(at, alone if any(front.proof is None for front in found) else every):
            return []
        return [
            replace(front, begin=front.past.own, is_beside=True) for front in self._dropped if front.past is not None
        ]

    def _agrees_without(self, at: Round, places: Collection[int]) -> bool:
        """Tell whether every output agrees after all that was made but some of it, and what mends the last fault."""
        (values, tape), (_, theirs) = self._ran
        last = () if self._last_proof is None else self._last_proof.mends[0].changes
        try:
            for changes, given in (each for place, each in enumerate(self._made) if place not in places):
                values, tape = changed_forward(values, tape, changes, given)
            if self._last_proof is not None and self._last_proof.is_reverse:
                theirs = changed_forward(*self._ran[1], last, {})[1]
            else:
                tape = changed_forward(values, tape, last, {})[1]
        except NOT_COMPUTED:
            return False
        return at.search.agrees_on(tape.tensors.__getitem__, theirs.tensors.__getitem__)

    def _made_otherwise(self, at: Round) -> list[Front]:
        """Make each module for good as the reference's with its weights is made; return a fault for each kind.

        No search is needed: both were looked at. One whose output is right is made up for elsewhere, as padding by hand
        makes up for a convolution without; so is one whose output would have another shape.
        """
        found: list[Front] = []
        all_changes: list[Change] = []
        with torch.no_grad():
            for changes in at.search.of_twins():
                edits, _ = together(changes)
                if at.is_made_wrong(edits):
                    first = min(changes, key=lambda change: change.place)
                    mend = Mend(first, tuple(sorted(edits)), len(changes), 0.0, None, tuple(changes))
                    proof = Proof(at.search.forward, (mend,), is_reverse=False)
                    found.append(Front(at.pair, at.pairs, at.search.forward.outs_of(first.place)[0], proof))
                    all_changes += changes
            if found:
                self._make(all_changes, {})
        return found

    def _from(self, at: Round, past: Past | None, mended: Sequence[Front], *, is_last: bool) -> tuple[list[Front], End]:
        """Return the faults that are mended and those from one on, in their order, and how the search ended.

        No change alone mends the latter if none is mended yet.
        """
        found = list(mended)
        for count in range(_MOST):
            with torch.no_grad():
                last, is_known = self._last(at, past) if is_last and (count or mended) else (None, False)
                fronts, is_known = ([last], is_known) if last else self._next(at, past, is_last=is_last)
            if not fronts:
                return found, "cut" if self._budget.spent() >= 1 else "exhausted"
            first = next(iter(at.search.firsts()), None)
            if found and first is not None and first.index == found[-1].begin and found[-1].proof is None:
                self._dropped.append(found.pop())  # what led past it did not mend all that is computed of it
            if not is_known:
                found += fronts
            if last or (is_last and fronts[0].proof is None):
                return found, "given" if not last and self._is_far(at, past) else "agrees"
            behind = self._round()
            if behind is None or behind.search.before <= AGREE:
                ends = (front.past.other for front in fronts if front.proof is None and front.past is not None)
                is_given = not at.outputs.isdisjoint(ends)
                self._holds = self._agree_elsewhere(behind)
                return found, "exhausted" if behind is None else "given" if is_given else "agrees"
            if not is_known:
                self._go_on()
            at, (past, is_last) = behind, self._past(behind)
        return found, "cut"

    def _is_far(self, at: Round, past: Past | None) -> bool:
        """Tell whether an output is given behind all that leads to it: of more than its last step nothing is known."""
        if past is None or past.gained or past.other not in at.outputs:
            return False
        return past.own not in {each.index for each in at.search.firsts()}

    def _go_on(self) -> None:
        """Begin the search for the next fault with a budget of its own."""
        if self._budgets < _BUDGETS:
            self._budgets, self._budget = self._budgets + 1, Budget(self._budget.seconds)

    def _past(self, at: Round) -> tuple[Past | None, bool]:
        """Return the reference's value that leads past a fault, and whether every output agrees behind it.

        So it does where the value is an output: what the port makes of that is no fault behind the first.
        """
        with torch.no_grad():
            past = at.lead_past(self._until(at, _TO_PAST))
            if past is None:
                return None, False
            return past, past.other in at.outputs or at.agrees_after({}, past.given)

    def _one(self, one: OneChange, share: float) -> Searched:
        """Search for one change that makes every output agree, for a share of what is left of the budget."""
        part = Budget(self._budget.seconds * share * max(0.0, 1 - self._budget.spent()))
        searched = one.run(part) if part.seconds else Searched(None, "cut")
        self._budget.take(part.seconds * min(1.0, part.spent()))
        return searched._replace(seconds=self._budget.seconds)

    def _round(self) -> Round | None:
        pair = ForwardPair(self._port, self._reference)
        pairs = pair.pair_results(AGREE)
        searches = searches_of(pair, pairs, self._trial)
        return None if searches.port is None else Round(pair, pairs, searches, self._trial.reference.tape)

    def _last(self, at: Round, past: Past | None) -> tuple[Front | None, bool]:
        """Return the last fault as if it were the only one, and whether it was found in another layer."""
        proof = self._one(OneChange(at.searches, self._others), _TO_LAST).proof
        if proof is None or proof.holds is False:
            return None, False
        self._last_proof, self._holds = proof, proof.holds
        keys = {_key(at, mend.change) for mend in proof.mends if not proof.is_reverse}
        return self._front(at, past, proof), not keys.isdisjoint(self._accepted)

    def _agree_elsewhere(self, at: Round | None) -> bool | None:
        """Tell whether the outputs agree on other inputs after all changes; None where that cannot be told."""
        call = self._others.call
        if call is None or at is None:
            return None
        try:
            return at.search.agrees_on(call.port.tensor, call.reference.tensor)
        except KeyError:
            return None

    def _front(self, at: Round, past: Past | None, proof: Proof | None = None) -> Front:
        first, opened = next(iter(at.search.firsts()), None), at.search.opened.open
        begin, is_beside = len(at.pair.port.values) if first is None else first.index, False
        if past is not None and past.own in opened:
            before = at.pair.port.ancestors(past.own)
            is_beside = begin not in before or past.is_region
            if is_beside:  # where what comes of weights is first wrong: a mask is one of many layers
                begin = min(each for each in opened & before if not past.is_region or at.pair.port.weighted[each])
        return Front(at.pair, at.pairs, begin, proof, past, _is_of_table(at, past), is_beside)

    def _next(self, at: Round, past: Past | None, *, is_last: bool) -> tuple[list[Front], bool]:
        """Mend the next fault or lead past it; return it, and whether it is one that was found in another layer.

        Of the last, of which no change alone was found to mend it, a part may be mended. Two of one region are mended
        together.
        """
        past = past or at.region
        again = past is not None and _way(at, past) in self._led
        changes = _Changes(at, past, self._accepted, self._others, is_again=again)
        until = self._until(at, _TO_CHANGES)
        if past is not None:
            known = [each for each in changes.ordered if each.cost < 0]
            fronts, is_known = self._inside(at, past, known, until)
            if fronts:
                return fronts, is_known
        options = changes.inside(until) if is_last else changes.best(until)
        if options:
            best = options[0]
            keys = {_key(at, change) for option in options for change in option.changes}
            is_known = not keys.isdisjoint(self._accepted)
            self._accepted |= keys
            mends = tuple(_mend(option) for option in options)
            self._make(best.changes, {})
            return [self._front(at, past, Proof(at.search.forward, mends, is_reverse=False))], is_known
        if past is None:
            return [], False
        way = _way(at, past)
        again = way in self._led
        if not again:
            fronts, is_known = self._inside(at, past, changes.ordered, self._until(at, _TO_CHANGES))
            if fronts:
                return fronts, is_known
        is_known = again or not self._borrowed.isdisjoint(at.pair.port.values[past.own].producers)
        self._led.add(way)
        self._borrowed.update(past.given.keys() - at.search.opened.open)
        wrong = _wrong_ways(at, past)
        several = [past._replace(own=own, other=other) for own, other in wrong] if len(wrong) > 1 else [past]
        fronts = sorted((self._front(at, each) for each in several), key=lambda front: front.begin)
        fronts = [replace(each, is_second=each is not fronts[0]) for each in fronts]
        self._led_at.update((id(front), len(self._made)) for front in fronts)
        self._make((), past.given, dict(past.ways))
        return fronts, is_known

    def _inside(
        self, at: Round, past: Past, changes: Sequence[Change], is_over: Callable[[], bool]
    ) -> tuple[list[Front], bool]:
        """Mend values in whose place one was given by one or two changes that give just that.

        What mends none of them is left: it is not known whether that is one fault or several.
        """
        made: dict[Hashable, Change] = {}
        for own, _ in _wrong_ways(at, past):
            found = changes_giving(at, own, past.given[own], changes, is_over)
            made |= {(each.place, *_key(at, each)): each for each in found}
        if not made:
            return [], False
        keys = {_key(at, change) for change in made.values()}
        is_known = keys.issubset(self._accepted)
        self._accepted |= keys
        fronts = []
        for change in made.values():
            mend = Mend(change, tuple(sorted(change.edits)), 1, 0.0, None, (change,))
            outs = at.search.forward.outs_of(change.place) if change.place >= 0 else []
            front = self._front(at, past, Proof(at.search.forward, (mend,), is_reverse=False))
            fronts.append(replace(front, begin=outs[0]) if outs else front)
        self._make([*made.values()], {})
        return fronts, is_known

    def _make(
        self, changes: Sequence[Change], given: dict[int, torch.Tensor], ways: Mapping[int, int] = MappingProxyType({})
    ) -> None:
        """Make changes for good, and give values; ``ways`` are those of the port -> the reference's given for them."""
        theirs = self._trial.reference.tape.tensors
        laid_out_alike = {own: other for own, other in ways.items() if is_same(theirs[other], given.get(own))}
        self._others = self._others.after(changes, laid_out_alike if given.keys() <= laid_out_alike.keys() else None)
        self._port, tape = changed_forward(self._port, self._trial.port.tape, changes, given)
        self._made.append(_Stage(tuple(changes), given))
        self._trial = self._trial._replace(port=Live(tape, Ran(self._port, tape).outputs))

    def _until(self, at: Round, share: float) -> Callable[[], bool]:
        """Return what tells whether a share of what is left of the budget is spent."""
        spent, done = self._budget.spent(), at.search.work
        end = spent + (1 - spent) * share

        def is_over() -> bool:
            nonlocal done
            self._budget.take(at.search.work - done)
            done = at.search.work
            return self._budget.spent() >= end

        return is_over


class _Changes:
    """The changes at one fault."""

    def __init__(
        self, at: Round, past: Past | None, accepted: Collection[Hashable], others: OtherInputs, *, is_again: bool
    ) -> None:
        self._at, self._search, self._past, self._others = at, at.search, past, others
        self._need = frozenset[int]() if past is None else past.gained or frozenset({past.other})
        self._accepted, self._is_again = accepted, is_again
        self._looked_at: set[int] = set()  # the ``id`` of each change that gives something, and not enough
        self._parts: list[_Option] = []  # those after which a part of it is right
        self._guessed: list[_Option] = []  # those of which that is less sure
        self._within = set[int]() if past is None else {*at.skipped(past.other), past.other}
        self._all = self._search.all_changes() if past is None else self._search.changes_towards(past.own)

    def best(self, is_over: Callable[[], bool]) -> list[_Option]:
        """Return what mends the fault and cannot be told apart, the likeliest first; else what mends a part of it."""
        found: list[_Option] = []
        left = [*self.ordered]
        while left and not is_over():
            change = left.pop()
            if self._is_again and change.cost >= 0:
                break
            if found and change.cost > min(option.cost for option in found) + _BEYOND:
                break
            if self._parts and change.cost > min(option.cost for option in self._parts) + 2 * _BEYOND:
                break
            option = self._tried(change)
            if option is not None:
                found.append(option)
        return _most(found) or self.inside(is_over)

    @cached_property
    def ordered(self) -> list[Change]:
        """The changes, the likeliest last: those that mended another layer before all others."""
        for change in self._all:
            if _key(self._at, change) in self._accepted:
                change.cost = _AGAIN + change.cost / 100
        return sorted(self._all, key=lambda change: -change.cost)

    def _tried(self, change: Change) -> _Option | None:
        reached = self._search.reach_of_one(change)
        if reached.value is None and not reached.is_at_end and not self._search.is_evident(change):
            return None
        options = []
        for changes in self._groups(change):
            edits, instead = together(changes)
            still = [out for each in changes if each.kind in LENGTHENED for out in self._outs(each)]
            gain = self._at.gain(edits, instead, still=still)
            if gain is None:
                continue
            is_all = (bool(gain.found) or reached.is_at_end) and self._at.agrees_after(edits, instead)
            lines = {self._search.forward.lines_of(each.place)[:1] for each in changes if each.place >= 0}
            option = _Option(changes, gain, reached, is_all, len(lines))
            if is_all or self._is_enough(option):
                if not self._is_narrow(option):
                    options.append(option)
            elif gain.found and not gain.lost and not gain.swapped:
                self._note_part(option)
        return max(options, key=lambda option: option.rank, default=None)

    def _note_part(self, option: _Option) -> None:
        """Note changes after which a part of what would be led past is right."""
        self._looked_at.update(map(id, option.changes))
        inside = self._inside_of(option)
        if self._past is None or not inside or not self._leads_on(option, self._past) or self._is_narrow(option):
            return
        if any(self._follows(option, there) for there in inside):
            self._parts.append(option)
        elif len(inside) > 1:
            self._guessed.append(option)

    def _is_narrow(self, option: _Option) -> bool:
        """Tell whether changes give what they do for these inputs alone: ``divisor 10`` where that is their length."""
        call = self._others.call
        if call is None or not option.gain.found:
            return False
        first = min((change.place for change in option.changes if change.edits), default=None)
        refs = [] if first is None else [ref for ref in self._search.forward.tape.steps[first].refs if ref >= 0]
        matches = self._at.pair.matches
        given = [(ref, found) for ref in refs if (found := list(matches.within(ref, AGREE)))]
        return call.gives(option.changes, option.gain.found, given) is False

    def _groups(self, change: Change) -> Iterator[Sequence[Change]]:
        """Yield a change alone, on its line in every layer, and wherever its line runs."""
        yield [change]
        if change.kind not in ("scaled", "activated"):
            yield from self._search.elsewhere(change)
            return
        *near, _ = self._search.forward.places_like(change.place)  # what is lacking is known of one alone
        for places in dict.fromkeys(map(tuple, near)):
            if len(places) > 1:
                yield [replace(change, place=place) for place in places]

    def _is_enough(self, option: _Option) -> bool:
        """Tell whether changes give most of what the reference's value gives, and no coincidence."""
        gain = option.gain
        hit = len(self._need.intersection(gain.found))
        is_joined = bool(self._need) and self._joins_behind(option)
        is_told = len(gain.found) >= FEWEST or is_joined or self._gives_product(option)
        return not gain.lost and hit >= _SHARE * len(self._need) and is_told

    def _gives_product(self, option: _Option) -> bool:
        """Tell whether changes give a product both of whose operands are wrong: that is no coincidence."""
        past = self._past
        return past is not None and len(past.ways) > 1 and past.own in map(option.gain.found.get, past.gained)

    def _inside_of(self, option: _Option) -> set[int]:
        """Return what changes give of what would be led past, of the same weights; no view of what was there before."""
        found = option.gain.found
        inside = self._within.intersection(option.gain.computed)
        on_way = (there for there in inside if self._is_on_way(found[there], there))
        drops = any(change.drops for change in option.changes)
        alike = (there for there in on_way if not drops or self._is_used_alike(found[there], there))
        return {there for there in alike if self._at.has_same_weights(found[there], there)}

    def _is_used_alike(self, own: int, other: int) -> bool:
        """Tell whether both sides do the same with a value: ``a * x`` alone for ``a * x + b * y`` is one that they add.

        The end of a region is compared by itself.
        """
        if self._past is not None and other == self._past.other:
            return True
        port, reference = self._at.pair.port, self._at.pair.reference
        mine, theirs = ({kind_of(each) for each in side.uses(at)} for side, at in ((port, own), (reference, other)))
        return not mine.isdisjoint(theirs)

    def _is_on_way(self, own: int, other: int) -> bool:
        """Tell whether both sides compute a value on the same way: none of a key where the reference has a query."""
        port, reference = self._at.pair.port, self._at.pair.reference
        ways = self._past.ways if self._past is not None else ()
        return any(own in port.ancestors(mine) and other in reference.ancestors(theirs) for mine, theirs in ways)

    def _follows(self, option: _Option, there: int) -> bool:
        """Tell whether a value is what the reference computes next: nothing that it is computed from is missing."""
        found, search, weighted = option.gain.found, self._search, self._at.pair.reference.weighted
        made = (each for each in search.others[there].producers if weighted[each])
        return all(each in found or not search.is_missing[each] for each in made)

    def _joins_behind(self, option: _Option) -> bool:
        """Tell whether a value appears behind changes that joins them with what has not changed."""
        made = {out for change in option.changes for out in self._outs(change)}
        return any(option.gain.found[there] not in made for there in option.gain.joined)

    def _outs(self, change: Change) -> list[int]:
        """Return the values that a change makes by itself: of its own operands none is a coincidence."""
        is_of_form = change.kind in (*LENGTHENED, *SHORTENED) and change.place >= 0
        return self._search.forward.outs_of(change.place) if is_of_form else []

    def inside(self, is_over: Callable[[], bool]) -> list[_Option]:
        """Return the changes that give what the reference computes next in what would be led past: one of several.

        Where it computes a part of that in another way than the port, two values that it computes there are enough.
        Those changes are looked at that were tried already.
        """
        seen = frozenset(self._looked_at)
        for change, reached in self._search.leading(self._all):
            if reached in self._within and id(change) not in seen and not is_over():
                self._tried(change)
        return _most(self._parts or self._guessed)

    def _leads_on(self, option: _Option, past: Past) -> bool:
        """Tell whether the reference's value still leads past the fault with changes that mend a part of it.

        It does not behind ``x * x`` in place of ``x * rsqrt(var)``, though the reference squares ``x`` as well.
        """
        edits, instead = together(option.changes)
        gain = self._at.gain(edits, {**instead, **past.given})
        return gain is not None and len(past.gained.intersection(gain.found)) >= _SHARE * len(past.gained)


def _most(found: Sequence[_Option]) -> list[_Option]:
    """Return the options that give the most, as far as that tells, the likeliest first."""
    most = max((option.rank[:2] for option in found), default=None)
    if most is None:
        return []
    alike = [each for each in found if each.is_all == most[0] and len(each.gain.found) >= _ALIKE * most[1]]
    return sorted(alike, key=lambda option: option.cost)


def _mend(option: _Option) -> Mend:
    first = min(option.changes, key=lambda change: change.place)
    places = tuple(sorted(together(option.changes)[0]))
    return Mend(first, places, len(option.changes), 0.0, option.reached.value, tuple(option.changes))


def _wrong_ways(at: Round, past: Past) -> list[tuple[int, int]]:
    """Return what is given in whose place, but what the port has already."""
    forward = at.search.forward
    return [(own, other) for own, other in past.ways if not is_near(forward.tensor(own), past.given[own])]


def _key(at: Round, change: Change) -> tuple[Hashable, ...]:
    """Return what a change is, on which line: the same in every layer."""
    lines = at.search.forward.lines_of(change.place)[:1] if change.place >= 0 else ()
    return change.kind, change.key, tuple((line.file, line.line) for line in lines)


def _is_of_table(at: Round, past: Past | None) -> bool:
    """Tell whether a value that is right elsewhere is another one here, and not computed from it by a missing step."""
    if past is None or past.own in at.search.opened.open:
        return False
    here = at.pair.matches.within(past.own, AGREE)
    return at.pair.reference.ancestors(past.other).isdisjoint(here)


def _way(at: Round, past: Past) -> Hashable:
    """Return the operators and lines of both sides where a fault was led past: the same in every layer."""
    own, other = at.pair.port.values[past.own], at.pair.reference.values[past.other]
    return tuple((each.operator, *((line.file, line.line) for line in each.lines[:3])) for each in (own, other))

"""The search for the change of one place after which a forward gives what was expected."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.proof.argument_changes import GIVEN, changes_of_arguments
from pytest_tfdebug.parity.proof.budget import work_of_print
from pytest_tfdebug.parity.proof.changes import (
    LENGTHENED,
    SHORTENED,
    At,
    Change,
    activated,
    changes_at,
    scaled,
    together,
)
from pytest_tfdebug.parity.proof.forward import NOT_COMPUTED
from pytest_tfdebug.parity.proof.known_numbers import NONE_KNOWN, KnownNumbers
from pytest_tfdebug.parity.proof.known_operands import MEANT, Taken, changes_of_operands
from pytest_tfdebug.parity.proof.matching import reordered_axes
from pytest_tfdebug.parity.proof.module_changes import (
    MADE,
    OF_CALLS,
    OF_WEIGHTS,
    TABLE,
    changes_of_calls,
    changes_of_twins,
    changes_of_weights,
)
from pytest_tfdebug.parity.proof.other_steps import OtherSteps
from pytest_tfdebug.tracing.values.tape import Tape
from pytest_tfdebug.values import HUGE, Fingerprint, distance

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.proof.budget import Budget
    from pytest_tfdebug.parity.proof.forward import Forward
    from pytest_tfdebug.parity.proof.matching import Matches, OpenValues
    from pytest_tfdebug.parity.proof.module_changes import Others, Twin
    from pytest_tfdebug.values import Value

#: Two values count as one up to this share of how far the outputs were apart, and no further than :data:`AGREE`.
_SHARE = 0.1
#: Below this a distance is rounding, and tells no two changes apart.
_ROUNDING = 1e-6
#: Open values that are looked at before a change is given up that leads to none that is expected.
_LOOKED_AT = 14
#: Fewer elements tell nothing.
_FEWEST = 6
#: Values whose sizes are further apart are not the same.
_NEAR = 2e-4
#: Steps before the first open value that are changed too, and how far back they lie.
_SITES, _DEPTH = 45, 14
#: First open values where the search begins, and steps at each but the first.
_BEGINNINGS, _FEWER_SITES = 4, 10
#: How much a step less near is less likely.
_FAR = 0.12
#: How much likelier it is that a step is left out whose weights the other side has and does not use.
_EVIDENT = 1.0
#: How much likelier it is that a value is used of which the other side computes something that is missing here.
_MEANT = 0.6
#: A change that costs so much more than one that mends all is not tried any more.
_BEYOND = 0.5


class WantedOutput(NamedTuple):
    """What an output is to be."""

    print: Fingerprint
    tensor: torch.Tensor | None = None  # with all of its elements; None where these are not known


class Expected(NamedTuple):
    """Which outputs are to be which; of several it is not known, and any will do."""

    outputs: tuple[int, ...]  # the values that are returned
    given: tuple[WantedOutput, ...]  # what some of them should be
    pairs: int = 1  # of how many outputs
    others: tuple[int, ...] = ()  # the values of the other side that these are


class Reached(NamedTuple):
    """What a change leads to."""

    value: int | None  # the first value of the other side that appears; None where none does
    after: int  # how many values after the changed one
    is_at_end: bool  # whether it led to the end, or to that value


@dataclass(frozen=True)
class Mend:
    """A change after which every output agrees."""

    change: Change
    places: tuple[int, ...]  # the steps that it was made at: the same in every layer
    times: int  # how often it was made
    residual: float  # how far the outputs still are from what was expected
    reached: int | None  # the first value of the other side that appeared
    changes: tuple[Change, ...] = ()  # all changes that were made, this one among them


@dataclass
class Search:
    """The search in one forward."""

    forward: Forward  # the forward that is changed
    matches: Matches  # which of its values the other side has too
    others: Sequence[Value]  # the values of the other side
    back: Matches  # which of the values of the other side this one has too
    opened: OpenValues  # the open values of this forward
    expected: Sequence[Expected]  # what its outputs are held to
    # what a value counts that the other side has not: less than 1 where not all of these are known
    foreign: float = 1.0
    weights: Others | None = None  # the weights of the other side; None where those of this side are right
    used_alone: Collection[str] = ()  # parameters that the other side has and does not use: a step is missing there
    known: KnownNumbers = NONE_KNOWN  # the numbers that the other side has
    # by path, modules of the other side with the weights of one of this side that were made otherwise
    twins: Mapping[str, Twin] = field(default_factory=dict)
    moved: int | None = None  # the value at which elements come into another order than the other side's
    taken: Sequence[Taken] = ()  # values that steps with a weight take, and those that they should
    steps: OtherSteps = field(default_factory=lambda: OtherSteps(Tape(), ()))  # what the other side does to one value

    def __post_init__(self) -> None:
        self._all: list[Change] | None = None
        self._left: list[Change] | None = None
        self._towards: dict[int, Sequence[Change]] = {}  # those that a value can be mended by
        self._reached: dict[int, Reached] = {}  # of changes that were tried, by their ``id``
        self._prints = 0.0  # seconds of work that fingerprints have taken so far
        self._missing = self.forward.places_with(self.used_alone)
        firsts = {self.forward.lines_of(place): place for place in sorted(self._missing, reverse=True)}
        self._missing_first = set(firsts.values())
        self.before = self.residual({})
        self.same = min(AGREE, max(self.before * _SHARE, _ROUNDING))
        told = [value for value in self.others if self._tells(value.print)]
        self._others = sorted(told, key=lambda value: value.print.rms)
        self._sizes = [value.print.rms for value in self._others]
        mine = self.forward.side.values
        self.is_known = [self._has_partner(value, self.matches, self.others) for value in mine]
        self.is_missing = [not self._has_partner(value, self.back, mine) for value in self.others]
        missing = itertools.compress(self.others, self.is_missing)
        # what the other side computes something of that this one never does
        self._missed = {made for value in missing if not value.is_moved for made in value.producers}

    @property
    def work(self) -> float:
        """Seconds of work that were done."""
        return self.forward.replay.work + self._prints

    @property
    def is_exhausted(self) -> bool:
        """Whether every change was tried."""
        return self._left == []

    def run(self, most: float, budget: Budget, share: float) -> list[Mend]:
        """Try on, and return the changes that mend every output and cannot be told apart, the most likely first."""
        found: list[Mend] = []
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of changes that nobody made, and errors where a run makes them that
            if self._left is None:
                prints = [each.print for held in self.expected for each in held.given]
                has_numbers = any(each.finite and each.rms for each in prints)
                self._left = [*self.all_changes()] if has_numbers else []  # many changes give zeros or nan
            while self._left and budget.spent() < share:
                least = found[0].change.cost + _BEYOND if found else most
                if self._left[-1].cost > least:
                    break
                before = self.work
                mend = self._tried(self._left.pop())
                budget.take(self.work - before)
                if mend is not None:
                    found.append(mend)
        return _best(found)

    # --- where

    def all_changes(self) -> Sequence[Change]:
        """Return all changes near where the forwards part, the most likely last."""
        if self._all is None:
            self._all = self._ordered_changes(self._order())
        return self._all

    def changes_towards(self, value: int) -> Sequence[Change]:
        """Return the changes of what a value is computed from, the most likely last: no other one can mend it."""
        if value not in self._towards:
            way = self.forward.made_of(value)
            changes: Iterable[Change] | None = self._all
            if changes is None:
                near = self._order(way)
                changes = self._ordered_changes(near)
            self._towards[value] = [each for each in changes if not way.isdisjoint(self.changed_by(each))]
        return self._towards[value]

    def changed_by(self, change: Change) -> Iterator[int]:
        """Yield the values that a change makes others."""
        yield from change.instead or ()
        for place in change.edits:
            yield from self.forward.shown_at(place)

    def _ordered_changes(self, order: Mapping[int, float]) -> list[Change]:
        more = self._missing_first
        found = [change for place, far in order.items() for change in self._changes_at(place, _FAR * far)]
        found += changes_of_calls(self.forward, order, self.twins)
        found += (change for change in self._given if not change.edits.keys().isdisjoint(order))
        found += self._meant
        found += changes_of_weights(self.forward, order, self.weights)
        left = more - order.keys()
        further = itertools.chain(*map(self._changes_at, left), changes_of_calls(self.forward, left, self.twins))
        found += filter(self.is_evident, further)
        for change in found:
            change.cost -= (_EVIDENT if self.is_evident(change) else 0.0) + (_MEANT if self._is_meant(change) else 0.0)
        return sorted(found, key=lambda change: -change.cost)

    @cached_property
    def _given(self) -> list[Change]:
        """The changes by which a call is given what another layer's is given."""
        return list(changes_of_arguments(self.forward))

    @cached_property
    def _meant(self) -> list[Change]:
        """The changes by which steps with a weight take what the other side's do."""
        return list(changes_of_operands(self.forward, self.taken))

    def of_twins(self) -> list[list[Change]]:
        """Return the changes of modules that the other side makes otherwise, those of one name together."""
        found: dict[Hashable, list[Change]] = {}
        for change in changes_of_twins(self.forward, self.twins):
            found.setdefault(change.key, []).append(change)
        return list(found.values())

    def _order(self, way: Collection[int] | None = None) -> dict[int, float]:
        """Return the steps that may be wrong, some of those that give what is on a way, and how far each is.

        That is, from where the forwards part.
        """
        order: dict[int, float] = {}
        for turn, first in enumerate(self.firsts()[:_BEGINNINGS]):
            near = {place: float(far) for place, far in self.forward.places_before(first.index, _DEPTH).items()}
            begin = self.forward.tape.maker.get(first.index, 0)
            for count, place in enumerate(self._after(begin, first)):
                near.setdefault(place, 2 + count / 4)
            is_on_way = (lambda _place: True) if way is None else (lambda place: self._gives(place, way))
            chosen = sorted(filter(is_on_way, near), key=lambda place: (near[place], -place))
            for place in chosen[: _FEWER_SITES if turn else _SITES]:
                order.setdefault(place, near[place] + (6 if turn else 0))
        return order

    def _gives(self, place: int, way: Collection[int]) -> bool:
        """Tell whether a step gives any of some values, or writes in place."""
        outs = self.forward.outs_of(place)
        return not outs or any(out in way for out in outs)

    def firsts(self) -> list[Value]:
        """Return the values where the forwards part, those that come of weights first."""
        opened = self.opened
        moved = [] if self.moved is None else [self.forward.side.values[self.moved]]
        return list({value.index: value for value in (*moved, *opened.first(), *opened.first(opened.open))}.values())

    def _after(self, begin: int, first: Value) -> Iterator[int]:
        """Yield the steps after a first open value in its call, and all that was computed from it."""
        values, steps = self.forward.side.values, self.forward.tape.steps
        made = {first.index}
        for place in range(begin, min(begin + 60, len(steps))):
            outs = self.forward.outs_of(place)
            if outs and not made.isdisjoint(values[outs[0]].producers):
                made.update(outs)
            is_near = outs and (values[outs[0]].call == first.call or not made.isdisjoint(outs))
            if is_near and not self.opened.open.isdisjoint(outs) and not values[outs[0]].is_moved:
                yield place

    def is_evident(self, change: Change) -> bool:
        """Tell whether the other side does not use the weights of what a change leaves out."""
        return change.kind in SHORTENED and change.place in self._missing_first

    def _is_meant(self, change: Change) -> bool:
        """Tell whether the other side computes something of the value that a change uses, and this one never does."""
        used = change.other if change.kind in ("operand", "added") else None
        return used is not None and not self._missed.isdisjoint(self.matches.within(used, self.same))

    # --- whether

    def _tried(self, change: Change) -> Mend | None:
        reached, is_evident = self.reach_of_one(change), self.is_evident(change)
        if reached.value is None and not reached.is_at_end and not is_evident:
            return None
        alone = self.mend([change], reached)
        if alone is not None or (reached.value is None and not is_evident):
            return alone
        for changes in self.elsewhere(change):
            mend = self.mend(changes, reached)
            if mend is not None:  # what comes soonest of one of them tells most
                others = (self.reach(each) for each in changes[:_LOOKED_AT] if each is not change)
                soonest = min([reached, *others], key=lambda each: (each.value is None, each.after))
                return replace(mend, reached=soonest.value)
        return None

    def mend(self, changes: Sequence[Change], reached: Reached) -> Mend | None:
        """Return what some changes mend together, told as the first of them; None where an output still differs."""
        edits, instead = together(changes)
        try:
            values = self.forward.replay.run(edits, instead)
        except NOT_COMPUTED:
            return None
        residual = self.residual(values)
        if residual > self.same:
            return None
        first = min(changes, key=lambda change: change.place)
        return Mend(first, tuple(sorted(edits)), len(changes), residual, reached.value, tuple(changes))

    def elsewhere(self, change: Change) -> Iterator[list[Change]]:
        """Yield a change on the same line of every layer, then at everything of its kind."""
        for group in self._groups(change):
            like: dict[object, Change] = {}
            for each in group:
                if (each.kind, each.key) == (change.kind, change.key):
                    like.setdefault(frozenset(each.instead or ()) or each.place, each)
            if len(like) > 1:
                yield [*like.values()]

    def _groups(self, change: Change) -> Iterator[Iterable[Change]]:
        every, path_of = range(len(self.forward.tape.steps)), self.forward.path_of
        if change.kind in OF_WEIGHTS:
            yield changes_of_weights(self.forward, every, self.weights)
        elif change.kind in OF_CALLS:
            calls = list(changes_of_calls(self.forward, every, self.twins))
            yield [each for each in calls if path_of(each.call) == path_of(change.call)]
            yield calls
        elif change.kind == GIVEN:
            yield [each for each in self._given if path_of(each.call) == path_of(change.call)]
            yield self._given
        elif change.kind == MEANT:
            lines = self.forward.lines_of(change.place)
            yield [each for each in self._meant if self.forward.lines_of(each.place) == lines]
            yield self._meant
        else:
            *alike, layers, on_line, same = self.forward.places_like(change.place)
            missing = [place for place in on_line if place in self._missing] if self.is_evident(change) else []
            # all additions of a forward left out are no fault that anybody makes
            groups = [*alike, layers, missing, on_line, [] if change.kind in SHORTENED else same]
            for places in dict.fromkeys(map(tuple, groups)):
                yield itertools.chain.from_iterable(map(self._changes_at, places))

    def _changes_at(self, place: int, far: float = 0.0) -> Iterator[Change]:
        at = At(self.forward, place, self.forward.tape.steps[place], self.forward.scope_of(place), far, self.known)
        found = itertools.chain(changes_at(at), scaled(at, self._factors(place)))
        used = self._used_otherwise(place)
        if not used:
            return found
        missing = (each for value in used for each in self.steps.after(value) if self.is_missing[each.value])
        return itertools.chain(found, activated(at, missing))

    def _used_otherwise(self, place: int) -> set[int]:
        """Return the values like a result of a step of which the other side computes what this one never does."""
        outs = self.forward.outs_of(place)
        return {each for out in outs for each in self.matches.within(out, self.same) if each in self._missed}

    def _factors(self, place: int) -> set[float]:
        """Return by which factors what a step gives differs from values that only the other side computes."""
        found = set()
        for own in (self.forward.side.values[out].print for out in self.forward.outs_of(place)):
            for value, is_missing in zip(self.others, self.is_missing, strict=True):
                other = value.print
                if not is_missing or not own.rms or not self._tells(other):
                    continue
                factor = other.rms / own.rms
                has_shape = math.isclose(own.size * factor, other.size, rel_tol=_NEAR)
                if has_shape and not math.isclose(factor, 1, rel_tol=_NEAR):
                    mean, size, rms, third, fourth, low, high = (number * factor for number in own.moments)
                    scaled_up = Fingerprint(own.elements, own.finite, mean, size, rms, third, fourth, low, high)
                    if distance(scaled_up, other) <= self.same:
                        found.add(float(f"{factor:.6g}"))
        return found

    def reach_of_one(self, change: Change) -> Reached:
        """Return what one of all changes leads to, see :meth:`reach`: it is tried once."""
        if id(change) not in self._reached:
            self._reached[id(change)] = self.reach(change)
        return self._reached[id(change)]

    def followed_by_reading(self) -> list[Change]:
        """Return the changes that lead to expected values and before numbers of a tensor are read, the likeliest first.

        What the forward does then is not what would be done after the change.
        """
        led = (change for change, _ in self.leading(self.all_changes()))
        found = {(each.kind, each.key, each.place): each for each in led if self._is_before(each)}
        return sorted(found.values(), key=lambda change: change.cost)

    def _is_before(self, change: Change) -> bool:
        before = self.forward.tape.steps[: self.forward.tape.was_read]
        given = set(change.instead or ())
        return any(place < len(before) for place in change.edits) or any(
            not given.isdisjoint(step.refs) for step in before
        )

    def mend_by(
        self, changes: Sequence[Change], run: Callable[[Sequence[Change]], Mapping[str, torch.Tensor]]
    ) -> Mend | None:
        """Return what some changes mend in a forward that is run with them and gives its outputs by leaf path."""
        try:
            made = run(changes)
            values = {index: made[leaf] for leaf, index in self.forward.side.table.results}
        except Exception:  # noqa: BLE001 - it is the model's own code that runs
            return None
        residual = self.residual(values)
        if residual > self.same:
            return None
        places = {place for each in changes for place in each.edits}
        first = min(changes, key=lambda change: change.place)
        return Mend(
            first, tuple(sorted(places)), len(changes), residual, self.reach_of_one(changes[0]).value, tuple(changes)
        )

    def leading(self, changes: Sequence[Change]) -> list[tuple[Change, int]]:
        """Return those of some changes that were tried and lead to an expected value, each with the first one."""
        tried = ((change, self._reached.get(id(change))) for change in reversed(changes))
        return [(change, made.value) for change, made in tried if made is not None and made.value is not None]

    def reach(self, change: Change) -> Reached:
        """Return the first expected value that a change leads to."""
        first: list[tuple[int, int]] = []
        changed = {out for place in change.edits for out in self.forward.outs_of(place)}
        foreign = 0.0

        def look(index: int, tensor: torch.Tensor) -> bool:
            nonlocal foreign
            value = self.forward.side.values[index] if index >= 0 else None
            is_shown = value is None or (value.origin == "view" and index not in changed)
            if is_shown or tensor.numel() < _FEWEST or not tensor.is_floating_point():
                return False
            found = self.find(tensor)
            if found is not None and self.is_missing[found]:
                first.append((found, index))
                return True
            foreign += self.foreign * (found is None or not self.is_known[index])
            return foreign > _LOOKED_AT

        try:
            given = [look(index, tensor) for index, tensor in (change.instead or {}).items()]
            if not any(given):
                self.forward.replay.run(change.edits, change.instead, look)
        except NOT_COMPUTED:
            return Reached(None, 0, is_at_end=False)
        if not first:
            return Reached(None, 0, is_at_end=foreign <= _LOOKED_AT)
        return Reached(first[0][0], first[0][1] - min(changed, default=0), is_at_end=True)

    def residual(self, values: Mapping[int, torch.Tensor]) -> float:
        """Return how far the outputs are from what is expected, with some values in the place of the recorded ones."""
        tensors = {each: values.get(each) for held in self.expected for each in held.outputs}
        made = {each: self.forward.tensor(each) if found is None else found for each, found in tensors.items()}
        prints = {each: self._print(tensor) for each, tensor in made.items()}
        return max(
            sorted(min(self._apart(given, prints[each], made[each]) for given in held.given) for each in held.outputs)[
                held.pairs - 1
            ]
            for held in self.expected
        )

    def agrees_on(self, own: Callable[[int], torch.Tensor], other: Callable[[int], torch.Tensor]) -> bool:
        """Tell whether the outputs agree in another call, by the tensors of both sides' values there."""
        for held in self.expected:
            wanted = [WantedOutput(Fingerprint.of(other(each)), other(each)) for each in held.others]
            apart = sorted(
                min(self._apart(given, Fingerprint.of(own(each)), own(each)) for given in wanted)
                for each in held.outputs
            )
            if apart[held.pairs - 1] > AGREE:
                return False
        return True

    @staticmethod
    def _apart(given: WantedOutput, own: Fingerprint, tensor: torch.Tensor) -> float:
        """Return how far a tensor is from what an output is held to."""
        if reordered_axes(own, given.print):
            return math.inf
        apart = distance(own, given.print)
        if given.tensor is not None and given.tensor.shape == tensor.shape and apart <= AGREE:
            wanted = given.tensor.to(tensor.device).double()  # a golden's is on the CPU
            return max(apart, float((tensor.double() - wanted).norm()) / (float(wanted.norm()) or 1.0))
        return apart

    def find(self, tensor: torch.Tensor) -> int | None:
        """Return which value of the other side a tensor is, one that is missing here first; None for none.

        Most tensors are none: their size alone tells, for a tenth of what a fingerprint costs.
        """
        size = float(torch.linalg.vector_norm(tensor, dtype=torch.float64)) / math.sqrt(tensor.numel())
        if not size < HUGE:  # what is hidden counts for nothing in a fingerprint
            size = self._print(tensor).rms
        first = bisect.bisect_left(self._sizes, size * (1 - _NEAR))
        last = bisect.bisect_right(self._sizes, size * (1 + _NEAR))
        if first == last:
            return None
        fingerprint = self._print(tensor)
        near = [each for each in self._others[first:last] if distance(fingerprint, each.print) <= self.same]
        same = [each.index for each in near if not reordered_axes(fingerprint, each.print)]
        return min(same, key=lambda index: (not self.is_missing[index], index), default=None)

    def _print(self, tensor: torch.Tensor) -> Fingerprint:
        self._prints += work_of_print(tensor)
        return Fingerprint.of(tensor)

    def _has_partner(self, value: Value, matches: Matches, others: Sequence[Value]) -> bool:
        near = matches.within(value.index, self.same)
        return any(not reordered_axes(value.print, others[place].print) for place in near)

    @staticmethod
    def _tells(fingerprint: Fingerprint) -> bool:
        return fingerprint.finite >= _FEWEST and fingerprint.high - fingerprint.low > 1e-3 * fingerprint.rms


def _best(found: list[Mend]) -> list[Mend]:
    """Return the changes that leave no more than rounding, as far as the best of them tells.

    A step that is missing mends a forward in many places, as long as nothing between undoes it: it belongs where it
    gives something expected soonest.
    """
    least = min((mend.residual for mend in found), default=0.0)
    alike = [mend for mend in found if mend.residual <= max(4 * least, _ROUNDING)]
    alike = [mend for mend in alike if mend.change.kind not in (MADE, TABLE)] or alike  # a step says more than a whole
    given = (mend.reached for mend in alike if mend.change.kind in LENGTHENED and mend.reached is not None)
    soonest = min(given, default=None)
    return [mend for mend in alike if mend.change.kind not in LENGTHENED or mend.reached == soonest]

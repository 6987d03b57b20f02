"""Proof of a fault: a change of one place that was tried, and after which every output agrees."""

from __future__ import annotations

import math
import time
from collections import Counter
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.closeness import AGREE, SAME
from pytest_tfdebug.parity.proof.budget import FORWARDS, SECONDS, Budget, work_of_forward
from pytest_tfdebug.parity.proof.elsewhere import Ran, after
from pytest_tfdebug.parity.proof.forward import Forward
from pytest_tfdebug.parity.proof.known_numbers import KnownNumbers, configured_numbers
from pytest_tfdebug.parity.proof.known_operands import Taken, known_operands
from pytest_tfdebug.parity.proof.matching import OpenValues
from pytest_tfdebug.parity.proof.mended import Mended
from pytest_tfdebug.parity.proof.module_changes import Others, order_of_use, twins
from pytest_tfdebug.parity.proof.other_steps import OtherSteps
from pytest_tfdebug.parity.proof.search import Expected, Search, WantedOutput
from pytest_tfdebug.parity.proof.second_call import OtherInputs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    import torch

    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair, ResultPairs
    from pytest_tfdebug.parity.proof.matching import Matches
    from pytest_tfdebug.parity.proof.module_changes import Twin
    from pytest_tfdebug.parity.proof.search import Mend
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.parity.proof.weights import Weights
    from pytest_tfdebug.records import SearchEnd
    from pytest_tfdebug.tracing.values.rerun import Rerun
    from pytest_tfdebug.tracing.values.tape import Tape

#: Up to which share of the time changes up to which cost are tried: of the port, of the reference, and so on.
PHASES = ((0.25, 1.8), (0.45, 1.8), (0.6, 2.6), (0.75, 2.6), (0.9, math.inf), (1.0, math.inf))


#: Changes that are tried in the port itself, and places at which each is made as well.
_RUN_AGAIN, _GROUPS = 6, 3


class Live(NamedTuple):
    """A forward that can be run again."""

    tape: Tape  # what ran in it
    outputs: Mapping[str, torch.Tensor]  # what it gave, with all elements, by leaf path, as far as that is known


class Trial(NamedTuple):
    """What a search needs beside the values of both forwards."""

    port: Live  # the forward under test
    reference: Live  # the one that it is held to; its tape is empty where it cannot be run
    seconds: float | None = None  # how long to search; None for as long as users wait
    begun: float | None = None  # when the explanation began, of ``time.monotonic``; None for now
    # the port and the reference with their inputs, where both can be run: changes are tried on others, too
    again: tuple[Rerun, Rerun] | None = None
    is_part: bool = False  # whether they are a part of a test's inputs, in which masks may hide nothing


class Searches(NamedTuple):
    """The searches in both forwards; None for one that cannot be run."""

    port: Search | None
    reference: Search | None


@dataclass(frozen=True)
class Proof:
    """What makes the outputs of one forward those of the other."""

    forward: Forward  # the forward that was changed
    mends: tuple[Mend, ...]  # the changes that do, and cannot be told apart, the most likely first
    is_reverse: bool  # whether the reference was changed, until it gave what the port gives
    # whether it does so on inputs that were not searched; None where it could not be tried there
    holds: bool | None = None
    # what was rejected because it does not, ``divisor 10 instead of 9 for this input alone: 10 is its length``
    narrow: str = ""


class Searched(NamedTuple):
    """How a search for a proof ended."""

    proof: Proof | None = None  # what it found
    end: SearchEnd = (
        ""  # proved; cut, for its budget was spent; exhausted, every change was tried; empty without a search
    )
    seconds: float = 0.0  # its budget


def prove(pair: ForwardPair, pairs: ResultPairs, trial: Trial) -> Searched:
    """Search for the change of one place of a port after which its outputs are those of the reference."""
    seconds = seconds_of(trial)
    if not seconds:
        return Searched()
    others = OtherInputs(ran_of(pair, trial), trial.again)
    return OneChange(searches_of(pair, pairs, trial), others).run(Budget(seconds, trial.begun))


class OneChange:
    """The search for the change of one place of a port after which its outputs are those of the reference.

    Where the reference can be run, for one of the reference, too, after which it gives what the port gives. The likely
    changes of both come first.
    """

    def __init__(self, searches: Searches, others: OtherInputs) -> None:
        self._searches, self._others = searches, others
        self._narrow: Proof | None = None  # a change that holds for these inputs alone

    def run(self, budget: Budget) -> Searched:
        """Go on until a change is found that holds on other inputs, too, all were tried, or a budget is spent."""
        is_one = None in self._searches
        for place, (share, most) in enumerate(PHASES):
            search, is_reverse = self._searches[place % 2], bool(place % 2)
            while search is not None:
                mends = search.run(most, budget, 1.0 if is_one else share)
                if not mends:
                    break
                proof = self.judged(mends, search, is_reverse=is_reverse)
                if proof.holds is not False:
                    return Searched(proof, "proved", budget.seconds)
                self._narrow = self._narrow or proof  # another may hold everywhere
        found = self._run_again(budget.seconds) or self._narrow
        if found is not None:
            return Searched(found, "proved", budget.seconds)
        tried = [search for search in self._searches if search is not None]
        is_exhausted = all(search.is_exhausted for search in tried)
        return Searched(None, ("exhausted" if is_exhausted else "cut") if tried else "", budget.seconds)

    def _run_again(self, seconds: float) -> Proof | None:
        """Run the port with the likeliest changes that lead to right values, if it reads numbers of what it computes.

        Its tape goes on with the numbers that were read, see :mod:`pytest_tfdebug.tracing.values.edited`.
        """
        search, begun = self._searches.port, time.monotonic()
        if search is None or self._others.again is None or search.forward.tape is not self._others.ran[0].tape:
            return None
        for change in search.followed_by_reading()[:_RUN_AGAIN]:
            for changes in ([change], *islice(search.elsewhere(change), _GROUPS)):
                if time.monotonic() - begun > seconds:
                    return None
                mend = search.mend_by(changes, partial(after, self._others.again[0], self._others.ran[0]))
                holds = None if mend is None else self._others.holds_run(mend, search)
                if mend is not None and holds is not False:
                    return Proof(search.forward, (mend,), is_reverse=False, holds=holds)
        return None

    def judged(self, mends: list[Mend], search: Search, *, is_reverse: bool) -> Proof:
        """Return changes that mend every output as a proof, with whether they do on other inputs."""
        kept = self._others.judged(mends, search, is_reverse=is_reverse)
        proof = Proof(search.forward, tuple(each for each, _ in kept), is_reverse, kept[0][1])
        if proof.holds is False:
            return replace(proof, narrow=self._others.told_narrow(kept[0][0]))
        return proof if self._narrow is None else replace(proof, narrow=self._narrow.narrow)


def mended_by(proof: Proof, pair: ForwardPair, trial: Trial) -> Mended | None:
    """Return the change of a proof, unless it mends these inputs alone."""
    if proof.holds is False:
        return None
    ran, changes = ran_of(pair, trial), proof.mends[0].changes
    return Mended(ran, reference=changes) if proof.is_reverse else Mended(ran, (changes,))


def ran_of(pair: ForwardPair, trial: Trial) -> tuple[Ran, Ran]:
    """Return what ran in the port and in the reference."""
    return Ran(pair.port.table, trial.port.tape), Ran(pair.reference.table, trial.reference.tape)


def seconds_of(trial: Trial) -> float:
    """Return the seconds of work that a search may take."""
    if trial.seconds is not None:
        return trial.seconds
    return SECONDS and max(SECONDS, FORWARDS * work_of_forward(trial.port.tape))


def searches_of(pair: ForwardPair, pairs: ResultPairs, trial: Trial) -> Searches:
    """Return the searches in the port and in the reference; None for one that cannot be run, or where nothing is held.

    The outputs of the port are held to those of the reference that they are paired with.
    """
    held = list(_held(pair, pairs))
    if not held:
        return Searches(None, None)
    used_alone = [
        _used_alone(*each)
        for each in ((pair.port, pair.weights, pair.reference), (pair.reference, pair.back, pair.port))
    ]
    settings = [configured_numbers(each.model) for each in trial.again] if trial.again else [{}, {}]
    port = _Way(pair.port, pair.matches, trial.port, pair.weights.known, used_alone[0], "the port", settings[0])
    theirs = pair.back.known, used_alone[1], "the reference", settings[1]
    reference = _Way(pair.reference, pair.back_matches, trial.reference, *theirs)
    lacking = [name for name in pair.reference.table.parameters if name in pair.back.unknown]
    expected_weights, own_weights = (Ran(way.side.table, way.live.tape).weights for way in (reference, port))
    tables = list(_tables(pair, trial.reference.tape))
    others = Others(pair.weights, lacking, expected_weights, own_weights, tables, order_of_use(pair.reference))
    begins = [*pairs.differing, *pairs.agreeing, *pairs.guessed]
    values = pair.port.table, pair.reference.table
    made = dict(twins((trial.again[0].model, trial.again[1].model), values, pair.weights)) if trial.again else {}
    return Searches(
        _search(
            port._replace(weights=others, twins=made, moved=pair.out_of_order, taken=known_operands(pair)),
            reference,
            held,
            [mine for mine, _ in begins],
        ),
        _search(reference, port, [each.turned for each in held], [theirs for _, theirs in begins]),
    )


def held_outputs(pair: ForwardPair) -> Iterator[tuple[list[str], list[str], int]]:
    """Yield which outputs of the port are held to which of the reference's, by leaf path, and how many are to agree."""
    mine, theirs = (_leaves_of(side) for side in (pair.port, pair.reference))
    for own, other, count in held_values(pair):
        yield [mine[each] for each in own if each in mine], [theirs[each] for each in other if each in theirs], count


def _leaves_of(side: Side) -> dict[int, str]:
    """Return the leaf path of each output, by its index, and by those of what it shows in another shape."""
    shown = {base.index: leaf for leaf, index in side.table.results for base in side.bases(index)}
    return {**shown, **{index: leaf for leaf, index in side.table.results}}


def held_values(pair: ForwardPair) -> Iterator[_HeldOutputs]:
    """Yield which values of the port are held to which of the reference's, and how many are to agree."""
    yield from _held(pair, pair.pair_results(AGREE))


class _Way(NamedTuple):
    """One direction of the search: the forward that is changed until it gives the other side's outputs."""

    side: Side
    matches: Matches
    live: Live
    known: frozenset[str]
    used_alone: Collection[str]  # names of the parameters that the other has and does not use
    called: str  # what it is called where the other is changed
    settings: Mapping[float, str]  # the numbers of its configuration
    weights: Others | None = None  # the weights of the other, if its own may be wrong
    moved: int | None = None  # its value at which elements come into another order than the other's
    twins: Mapping[str, Twin] = MappingProxyType({})  # the modules of the other that were made otherwise, by own path
    taken: Sequence[Taken] = ()  # its values that steps with a weight take, and those that they should


def _used_alone(one: Side, weights: Weights, other: Side) -> set[str]:
    """Return the parameters that one forward uses, and the other has and does not."""
    mine, theirs = one.used, other.used
    return {name for name in weights.partners if name in mine and theirs.isdisjoint(weights.partners[name])}


def _tables(pair: ForwardPair, tape: Tape) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield what the reference has or makes of no input, and the port never does, with what it is called."""
    reference = pair.reference
    forward, told = Forward(reference, tape), set[float]()
    for value in reference.values:
        is_table = value.tells and value.index in tape.tensors and value.index not in reference.of_inputs
        if is_table and value.print.rms not in told and not pair.back_matches.within(value.index, AGREE):
            told.add(value.print.rms)
            yield f"the reference's {forward.described(value.index).removeprefix('the ')}", tape.tensors[value.index]


class _HeldOutputs(NamedTuple):
    """Outputs of one side that are held to some of the other."""

    own: tuple[int, ...]
    other: tuple[int, ...]
    pairs: int = 1  # how many outputs are to be one of the others

    @property
    def turned(self) -> _HeldOutputs:
        """The same for the other side."""
        return _HeldOutputs(self.other, self.own, self.pairs)


def _held(pair: ForwardPair, pairs: ResultPairs) -> Iterator[_HeldOutputs]:
    """Yield which outputs of the port are held to which of the reference's: where that is a guess, all of one size."""
    yield from (_HeldOutputs((own,), (other,)) for own, other in (*pairs.differing, *pairs.agreeing))
    left = [*pairs.guessed, *pairs.leftover]
    sizes = Counter(pair.port.values[own].print.elements for own, _ in pairs.guessed)
    for size, count in sizes.items():
        own, other = (
            tuple(dict.fromkeys(each for each in some if each is not None and side.values[each].print.elements == size))
            for side, some in zip((pair.port, pair.reference), zip(*left, strict=True), strict=True)
        )
        yield _HeldOutputs(own, other, count)


def _search(
    one: _Way,
    other: _Way,
    held: Sequence[_HeldOutputs],
    begins: Sequence[int],
) -> Search | None:
    """Return the search in one forward for a change after which its outputs are those of the other."""
    if not one.live.tape.steps:
        return None
    theirs = other.side.values
    leaves = {index: other.live.outputs.get(leaf) for leaf, index in other.side.table.results}
    return Search(
        Forward(one.side, one.live.tape),
        one.matches,
        theirs,
        other.matches,
        OpenValues(one.side, one.matches, SAME, begins, known=one.known),
        [
            Expected(own, tuple(WantedOutput(theirs[index].print, leaves.get(index)) for index in given), count, given)
            for own, given, count in held
        ],
        weights=one.weights,
        twins=one.twins,
        moved=one.moved,
        taken=one.taken,
        used_alone=one.used_alone,
        steps=OtherSteps(other.live.tape, theirs),
        known=KnownNumbers.of(
            other.called, other.side.table, other.live.tape, one.side.table, one.live.tape, settings=other.settings
        ),
    )

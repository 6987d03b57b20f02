"""The play of a comparison: compare the calls, ask the values, find who may be to blame, settle it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from pytest_tfdebug.errors import TFDebugError, second_look
from pytest_tfdebug.parity.calls.call_notes import called_otherwise
from pytest_tfdebug.parity.calls.noise import (
    at_the_greatest_jump,
    has_value_jump,
    told_noise,
    with_outputs_outside,
    without_jumps,
)
from pytest_tfdebug.parity.calls.other_numbers import other_numbers
from pytest_tfdebug.parity.find.circumstances import of_circumstances, where_made
from pytest_tfdebug.parity.find.module_names import suggested_rules
from pytest_tfdebug.parity.find.padded_rows import claims_behind_pads, look_behind_pads
from pytest_tfdebug.parity.find.pads import at_pads, beside_pads, masks_of
from pytest_tfdebug.parity.find.several import faults_beside
from pytest_tfdebug.parity.in_float64 import are_of_tables, as_it_is, may_be_rounding, still_gives
from pytest_tfdebug.parity.pair.pairing import RecordedModules
from pytest_tfdebug.parity.result import ParityReport
from pytest_tfdebug.parity.settle import FINAL, settle, settled
from pytest_tfdebug.parity.tensors.compared import tally
from pytest_tfdebug.parity.tensors.coverage import (
    blame_uncompared,
    is_of_uncompared,
    measured_coverage,
    told_outputs,
    told_unseen,
    uncompared,
    what_to_write,
)
from pytest_tfdebug.parity.tensors.ranks import merge_ranks, on_ranks
from pytest_tfdebug.parity.verdict import Internal, Judged, decide, is_equal_outside, is_named, judge, tolerated
from pytest_tfdebug.records import Coverage
from pytest_tfdebug.tracing.values.index_range import indices_checked
from pytest_tfdebug.tracing.values.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.pads import Take
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.pair.rename import Rename
    from pytest_tfdebug.parity.proof.elsewhere import Ran
    from pytest_tfdebug.parity.tensors.comparator import Comparator
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.parity.tensors.outputs import OutputRules
    from pytest_tfdebug.records import Culprit
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.tracing.values.rerun import Recorded

#: A model that can be run again, or what is kept of its values.
Again: TypeAlias = "Rerun | Recorded | None"


@dataclass(frozen=True)
class Ended:
    """A comparison whose forward has ended."""

    judged: Judged  # what calls say
    # what they say if values jump where names do not pair; None where values need not be asked for that
    suspect: Judged | None = None
    notes: tuple[str, ...] = ()  # what could not be seen
    internal: Internal = "fail"  # what becomes of a difference that changes no output
    world_size: int = 1  # how many ranks made the forward
    look: Explained | None = None  # what values say, where they were asked
    # what is claimed of how the forward was run, or of what its modules were given; then nothing is searched for
    circumstance: Claim | None = None

    @property
    def asks(self) -> bool:
        """Whether values have to be asked."""
        return self.circumstance is None and (self.judged.asks or self.suspect is not None)

    @property
    def fails(self) -> bool | None:
        """Whether the roots' outputs differ, for who asks values; None where that is not known."""
        return self.judged.fails if self.suspect is None else True

    def answered(self, look: Explained | None) -> Ended:
        """Return the comparison with what values say; None where that cannot be had."""
        pair = look.pair if look is not None and self.suspect is not None else None
        judged = self.suspect if self.suspect is not None and pair is not None and has_value_jump(pair) else self.judged
        return replace(self, judged=judged, suspect=None, look=look if judged.asks else None)

    def names_to_try(self) -> dict[str, str]:
        """Return rules for ``rename=`` under which the two sides may be the same code; none where nothing says any."""
        judged, look = self.judged, self.look
        if judged.is_named or judged.verdict.claim is None or look is None or look.pair is None:
            return {}
        return suggested_rules(look.pair, {own: expected for expected, own in judged.compared.own_paths.items()})


def ended(comparator: Comparator, notes: tuple[str, ...] = (), *, internal: Internal = "fail") -> Ended:
    """Return a comparison whose forward has ended; on several ranks, every one must ask."""

    def judged(found: Compared) -> Judged:
        return judge(found, is_tolerated=internal == "warn" and is_equal_outside(found))

    found, group = comparator.finish(), comparator.group
    if group is not None:
        merged = tally(merge_ranks(found, comparator.tolerances, group.exchange))
        told = tuple(note for each in group.exchange(notes) for note in each)
        return Ended(judged(merged), None, told, internal, group.world_size)
    found = at_the_greatest_jump(without_jumps(found))
    suspect = None if is_named(found) else with_outputs_outside(found)
    return Ended(judged(found), None if suspect is None or suspect is found else judged(suspect), notes, internal)


def _told_search(culprit: Culprit | None, behind: Sequence[Culprit], look: Explained | None) -> str:
    """Say how the search for a proof ended where it proves nothing; the line that counts several faults says it too."""
    is_open = culprit is not None and not culprit.proved and not behind
    return look.search_note if is_open and look is not None else ""


@dataclass(frozen=True)
class Known:
    """What is known of a comparison beside its tensors and values."""

    again: tuple[Again, Again] = (None, None)  # the two models, which say what their modules hold
    mask: str = ""  # name of the mask, where both differ nowhere but at positions that it hides
    given: tuple[Claim, ...] = ()  # what the model was given otherwise, by the test: any difference may come from that


def conclude(
    found: Ended,
    tried: Mapping[str, str] = MappingProxyType({}),
    renamed: Compared | None = None,
    known: Known = Known(),
) -> ParityReport:
    """Return the report of a comparison whose forward has ended."""
    look, decided = found.look, decide(found.judged, found.look, tried, renamed)
    compared, divergences, is_compared = decided.compared, decided.divergences, decided.is_compared
    if found.circumstance is not None:
        decided = replace(decided, claims=[found.circumstance])
    claims = [on_ranks(claim, found.world_size) if found.world_size > 1 else claim for claim in decided.claims]
    claims = [at_pads(claim, known.mask) if known.mask else claim for claim in claims]
    culprit = next(iter(settle(claims)), None)
    inside = tolerated(culprit, divergences, compared) if found.internal == "warn" else ""
    culprit, notes = (None, [inside, *decided.notes]) if inside else (culprit, decided.notes)
    if culprit is not None and known.given:
        culprit = settle([*claims, *known.given])[0]
    behind = () if culprit is None or look is None or look.faults is None else faults_beside(look.faults, culprit)
    if culprit is not None and culprit.kind not in FINAL and not is_of_uncompared(culprit) and uncompared(compared):
        missing = settled(blame_uncompared(compared))
        behind, notes = (*behind, missing), [*notes, missing.explanation]
    is_final, coverage = culprit is not None and culprit.kind in FINAL, measured_coverage(compared)
    if is_compared and decided.look is not None and decided.look.expected:
        coverage = Coverage(decided.look.compared, decided.look.expected, root=coverage.root)
    is_measured = any(leaf.is_measured for item in compared.calls for leaf in item.made)
    if not is_measured and culprit is None and not is_compared:
        actual, expected = len(compared.calls), len(compared.expected)
        raise TFDebugError(
            f"Nothing was compared: no tensors of {actual} calls here and {expected} expected ones matched by name and "
            "shape.\nCheck that both forwards return tensors, and give rename= if the modules have other names."
        )
    unseen, failed, otherwise = [], [], list(called_otherwise(compared))
    if culprit is not None:
        failed = [note for each in known.again if each is not None for note in each.notes]
    else:
        own, theirs = known.again
        unseen = list(told_unseen(compared, coverage))
        if own is not None and theirs is not None and not inside:
            unseen += other_numbers(compared, own, theirs)
    advice = "" if found.judged.fails is not None or is_final else what_to_write(compared)
    if culprit is not None and known.mask:
        advice = f"Leave these positions out: positions={known.mask}"
    return ParityReport(
        culprit,
        divergences,
        compared.calls,
        compared.tensors,
        [*dict.fromkeys((*found.notes, *unseen, *notes, *failed, *otherwise))],
        renamed=otherwise,
        unseen=unseen,
        suggested={} if inside else decided.rules,
        internal=inside,
        coverage=coverage,
        by_values=decided.look is not None,
        unpaired=compared.unpaired_expected,
        explained=look,
        told_of_search=_told_search(culprit, behind, look),
        unused="" if culprit is None or look is None else look.unused,
        told_of_faults="" if look is None or look.faults is None else look.faults.summary,
        behind=behind,
        output_notes=told_outputs(compared),
        noise="" if culprit is not None else told_noise(compared),
        advice=advice,
    )


def _with_faults_of_rest(found: ParityReport, rest: Explained) -> ParityReport:
    """Return a report on a part of the inputs with what is wrong in the rest, once changes mend the part."""
    more = tuple(settled(claim) for claim in claims_behind_pads(rest))
    if not more:
        agrees = rest.claim is None and rest.is_known
        return replace(found, rest="the others agree once that is mended") if agrees else found
    behind = (*found.behind, *more)
    told = f"after these {len(behind) + 1} changes every output agrees" if rest.mended is not None else ""
    return replace(found, behind=behind, rest="the others differ still once that is mended", told_of_faults=told)


class Comparison(ABC):
    """Two forwards that are held to each other: an expected one and one under test.

    Traces, and a golden with its model, differ in how they are compared and run again, and in nothing else.
    """

    expected: Trace
    rename: Rename
    rules: OutputRules
    internal: Internal
    is_explained: bool
    seconds: float | None = None  # how long to search for proofs; None for as long as users wait

    @property
    @abstractmethod
    def notes(self) -> Sequence[str]:
        """What could not be seen of both forwards."""

    @property
    @abstractmethod
    def again(self) -> tuple[Again, Again]:
        """The model under test and the expected one, as far as they can be run again or their values are kept."""

    @property
    @abstractmethod
    def reference(self) -> Callable[[], Rerun] | None:
        """How the reference is run again; None where it cannot be."""

    @abstractmethod
    def under(self, names: Rename) -> Comparator:
        """Compare the tensors of both calls, the modules of one under other names."""

    @abstractmethod
    def explained(self, *, fails: bool | None) -> Explained | None:
        """Return what the values of both say; None where there are none."""

    @abstractmethod
    def both(self) -> tuple[Ran, Ran] | None:
        """Run the model under test and the reference once more; None where one of them cannot be."""

    @abstractmethod
    def on_part(self, reference: Rerun, take: Take, rules: OutputRules) -> ParityReport | None:
        """Compare both on a part of their inputs; None where that is not the part of what both gave on the whole."""

    @abstractmethod
    def in_float64(self, own: Rerun, reference: Rerun) -> Comparison | None:
        """Return the same comparison with both forwards in float64; None where tolerances say what is rounding."""

    @abstractmethod
    def once_more(self) -> ParityReport:
        """Run the model under test once more and hold it to the expected forward; nothing is explained."""

    def asks(self, found: Ended) -> bool:
        """Whether values are to be asked once the calls were compared."""
        return found.asks and self.is_explained

    def given(self) -> Iterator[Claim]:
        """Yield what the test gave the model otherwise than the reference."""
        yield from ()

    def report(self) -> ParityReport:
        """Compare, find who is to blame, and settle that; an error of a second look costs no more than what it adds."""
        comparator = self.under(self.rename)
        found, failed = ended(comparator, tuple(self.notes), internal=self.internal), list[str]()
        with second_look(failed):
            return self._explained(found)
        report = conclude(found, known=Known(given=tuple(self.given())))
        return replace(report, notes=[*report.notes, *failed])

    def _held_in_float64(self, found: Ended, own: Rerun) -> ParityReport | None:
        """Hold both in float64, if what differs may be rounding; None where it is none, or that cannot be done."""
        compared, reference = (found.suspect or found.judged).compared, self.reference
        if reference is None or not may_be_rounding(compared, own):
            return None
        wide = self.in_float64(own, reference())
        if wide is None or not still_gives(wide.expected, self.expected):
            return None
        report = wide.report()
        if not report.ok and are_of_tables(report, wide.expected, reference()):
            told = "What differs in float64 is what rounding of the reference's tables to float32 explains."
            report = replace(report, culprit=None, behind=(), divergences=[], advice="", notes=[told])
        if report.ok:
            return as_it_is(compared, wide.expected, own, reference()).hold(report)
        return replace(report, notes=["Held in float64, where nothing is rounding.", *report.notes])

    def _explained(self, found: Ended) -> ParityReport:
        again = self.again
        with indices_checked(again[0].model if isinstance(again[0], Rerun) else None):
            return self._looked_into(found, again)

    def _looked_into(self, found: Ended, again: tuple[Again, Again]) -> ParityReport:
        mask, own = "", again[0]
        if self.asks(found) and found.fails is not False and isinstance(own, Rerun):
            held = self._held_in_float64(found, own)
            if held is not None:
                return held
            compared, expected = found.judged.compared, self.expected
            modules = {name for name, _ in own.model.named_modules() if name}
            if modules != {*expected.modules} and self.reference is not None:
                expected = replace(expected, again=self.reference())  # which knows with what its modules were made
            claim = of_circumstances(compared, expected, own, self.once_more)
            if claim is not None and self.reference is not None:
                claim = where_made(claim, compared, self.reference)
            found = replace(found, circumstance=claim)
        if self.asks(found):
            beside, mask = self._beside_pads() if found.fails else (None, "")
            if beside is not None:
                return self._with_padded_rows(beside)
            found = found.answered(self.explained(fails=found.fails))
        tried = found.names_to_try()
        return conclude(found, tried, self._renamed(tried), Known(again, mask, tuple(self.given())))

    def _beside_pads(self) -> tuple[ParityReport | None, str]:
        reference = self.reference
        return (None, "") if reference is None else beside_pads(self.expected, reference, self.rules, self.on_part)

    def _with_padded_rows(self, found: ParityReport) -> ParityReport:
        """Return the report on rows without padding with the faults of the others, once changes mend the former."""
        look, reference = found.explained, self.reference
        if look is None or look.mended is None or reference is None:
            return found
        with second_look([]):
            both, masks = self.both(), masks_of(self.expected, reference())
            behind = None if both is None else look_behind_pads(look, both, [*masks.values()], self.seconds)
            if behind is not None:
                return _with_faults_of_rest(found, behind)
        return found

    def _renamed(self, tried: Mapping[str, str]) -> Compared | None:
        """Compare once more, with the modules under names that values suggest."""
        if not tried or callable(self.rename):
            return None
        with second_look([]):
            return self.under({**(self.rename or {}), **tried}).finish()
        return None


def coverage_of(trace: Trace) -> RecordedModules:
    """Return which modules a trace or golden has recorded."""
    return RecordedModules(trace.modules, trace.aliases, trace.unrecorded)

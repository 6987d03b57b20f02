"""A model held to its golden: one forward that is compared while it runs, and another to explain a failure."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.errors import listed, second_look
from pytest_tfdebug.goldens.filled import filled_alike, is_filled_otherwise
from pytest_tfdebug.goldens.golden_file import changed_environment, provenance
from pytest_tfdebug.goldens.near_weights import NearWeights, near_weights
from pytest_tfdebug.goldens.recording import fingerprint_on_ranks, sharded_too_often
from pytest_tfdebug.goldens.weights import fingerprint
from pytest_tfdebug.module_path import holder
from pytest_tfdebug.parity.calls.noise import assess
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.compare import outputs_of
from pytest_tfdebug.parity.comparison import Comparison, Known, conclude, coverage_of
from pytest_tfdebug.parity.find.pads import made, on_part
from pytest_tfdebug.parity.find.several import with_faults
from pytest_tfdebug.parity.find.values import NOT_AGAIN, Explained, explain
from pytest_tfdebug.parity.half_precision import halves_of, hold_in_half
from pytest_tfdebug.parity.in_float64 import AS_FLOAT32, is_in_float64, to_float64
from pytest_tfdebug.parity.pair.pairing import with_input_names
from pytest_tfdebug.parity.pair.rename import Rename, past_wrappers, renamed, renamed_tensors
from pytest_tfdebug.parity.proof.elsewhere import Ran
from pytest_tfdebug.parity.proof.prove import Live, Trial
from pytest_tfdebug.parity.settle import conditional, settled
from pytest_tfdebug.parity.tensors.comparator import Comparator
from pytest_tfdebug.parity.tensors.elements import axis_names, element_grid
from pytest_tfdebug.parity.tensors.tolerance import Tolerances
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.modules import Selection, modules_of, root_name, unsaved
from pytest_tfdebug.tracing.record.recorder import Recorder
from pytest_tfdebug.tracing.trace import recorded_forward
from pytest_tfdebug.tracing.values.precision import has_floors, measure_floors
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.tracing.values.tape import Tape
from pytest_tfdebug.tracing.values.widening import computing, to_float32
from pytest_tfdebug.values import distance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.check_record import ElementGrid
    from pytest_tfdebug.goldens.port_call import PortCall
    from pytest_tfdebug.goldens.settings import CheckSettings
    from pytest_tfdebug.parity.comparison import Again, Ended
    from pytest_tfdebug.parity.find.pads import Take
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.parity.tensors.outputs import OutputRules
    from pytest_tfdebug.records import Call, Culprit, Kind, LeafComparison
    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.record.ranks import Group
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.tracing.values.widening import Wider
    from pytest_tfdebug.values import Values

_BATCH_AND_TOKENS = 2
#: How much further from the golden an output may be with the reference's numbers in weights that are near them: a fault
#: may be made up for in part. Numbers that mean something else move outputs hundreds of times as far.
_AS_NEAR = 2.0
#: What is said of a buffer that is not saved with the weights.
_MADE = "{!r} is not the recorded one. No checkpoint holds it: the code or the configuration makes it."


def compare_with(
    golden_file: TraceFile[Trace],
    model: torch.nn.Module,
    called: PortCall,
    settings: CheckSettings,
    *,
    group: Group | None = None,
    tell: Callable[[str], None] | None = None,
) -> ParityReport:
    """Run a model and compare each tensor with its golden while it is alive; a second run explains a failure.

    So does one of the reference, where it is at hand and still gives what the golden holds. ``tell`` hears how far the
    explanation is. A model in half precision is held twice: in float32, and as it is.
    """
    trace, wider = golden_file.trace, to_float32(model)
    is_of_one_half = halves_of(trace) == {dtype_name(low) for low in wider}
    if trace.wide is None or not is_of_one_half or settings.tolerances.are_given or group is not None:
        plain = _HeldModel(golden_file, model, called, settings, group, tell)
        return plain.checked_as_filled()
    again, reference = Rerun(model, called.args, called.kwargs, called.method), called.reference
    wide = replace(called, reference=reference and (lambda: _in_float32(reference())))
    args, kwargs = again.inputs()
    low = _HeldModel(golden_file, model, replace(called, args=args, kwargs=kwargs), settings, None, tell)
    compared = low.outputs().finish()  # first: it may raise
    golden_in_float32 = replace(golden_file, trace=trace.wide)
    looked = _HeldModel(golden_in_float32, model, wide, settings, None, tell, wider)
    found = looked.checked_as_filled()

    def as_it_is() -> ParityReport:
        return low.checked_as_filled()

    def held_to(other: Trace, is_explained: bool) -> ParityReport:  # noqa: FBT001
        args, kwargs = again.inputs()
        own, how = replace(called, args=args, kwargs=kwargs), replace(settings, is_explained=is_explained)
        return compare_with(replace(golden_file, trace=other), model, own, how, group=group, tell=tell)

    def holds_alone() -> ParityReport:
        args, kwargs = again.inputs()
        called_anew = replace(wide, args=args, kwargs=kwargs)
        anew = _HeldModel(golden_in_float32, model, called_anew, settings, None, tell, wider)
        return anew.checked_as_filled()

    return hold_in_half(
        found, compared, trace, again, reference, as_it_is=as_it_is, holds_alone=holds_alone, held_to=held_to
    )


def _in_float32(forward: Rerun) -> Rerun:
    return forward.widened(to_float32(forward.model))


class _HeldModel(Comparison):
    """A model that is held to its golden while it runs."""

    def __init__(  # noqa: PLR0917 - those of :func:`compare_with`
        self,
        golden: TraceFile[Trace],
        model: torch.nn.Module,
        called: PortCall,
        settings: CheckSettings,
        group: Group | None,
        tell: Callable[[str], None] | None,
        wider: Wider = MappingProxyType({}),
    ) -> None:
        self._wider = wider  # in which dtypes the model is looked at
        self.golden, self.model, self.called, self.settings, self.group = golden, model, called, settings, group
        self.tell: Callable[[str], None] = tell or (lambda _: None)
        self.expected, self.rules = golden.trace, settings.rules
        self.rename = settings.rename or past_wrappers(modules_of(model).by_path, golden.trace.modules)
        self.internal, self.is_explained = settings.internal, settings.is_explained
        self.seconds = settings.explain_seconds
        self._rerun = Rerun(model, called.args, called.kwargs, called.method, wider)
        self._notes = [*golden.trace.notes, *filter(None, [called.note])]
        self._outputs: list[torch.Tensor | None] | None = None  # what the first forward gave
        self._is_told = False  # whether what pads have to do with a failure says it all

    @property
    def notes(self) -> list[str]:
        """What could not be seen of both forwards."""
        return self._notes

    @property
    def again(self) -> tuple[Again, Again]:
        """The model, and what the golden keeps of the reference's values."""
        return self._rerun, self.expected.again

    @property
    def reference(self) -> Callable[[], Rerun] | None:
        """How the reference is run again, where the test has it."""
        return self.called.reference

    def asks(self, found: Ended) -> bool:
        """Whether values are asked: not on ranks, each of which has its parts alone, nor where an input is lacking."""
        is_plain = self.called.lacking is not None and found.fails is True
        return super().asks(found) and self.group is None and not is_plain

    def checked(self) -> ParityReport:
        """Compare, and say of a failure what weights and environment have to do with it."""
        report = self.report()
        if report.ok:
            return report
        if self.called.lacking is not None:
            own, _ = self.called.lacking
            advice = f'Add it to the port\'s own inputs: port_inputs={{..., "{own}": ...}}'
            report = replace(report, advice=advice)
        elif not self._is_told:
            report = self.with_circumstances(report)
        is_shown = self.settings.in_detail and self.group is None
        return replace(report, elements=self.failing_elements(report)) if is_shown else report

    @cached_property
    def values(self) -> Values | None:
        """What the golden's operators computed."""
        return None if self.expected.again is None else self.expected.again.values()

    def under(self, names: Rename) -> Comparator:
        """Run the model, its modules under some names: with the inputs of the test at first, then with copies."""
        return self._under(names, frozenset())

    def outputs(self) -> Comparator:
        """Run the model, and compare what it returns alone."""
        return self._under(self.rename, frozenset(), are_outputs_alone=True)

    def checked_as_filled(self) -> ParityReport:
        """Compare; a model that fails, with what ``fill`` gave to the golden's names where it has others.

        What is wrong is looked for only with these.
        """
        is_plain = self.group is None and self.settings.rename is None and self.values is not None
        if not is_plain or not is_filled_otherwise(self.model, self.golden.extra["weights"]):
            return self.checked()
        report = self._once(replace(self.settings, is_explained=False))
        if report.ok:  # what names do not pair is asked of values
            report = self.checked()
        return report if report.ok else self._filled_alike(report)

    def _filled_alike(self, report: ParityReport) -> ParityReport:
        assert self.values is not None  # noqa: S101 - who asks has them
        shapes = {name: shape for name, (_, shape) in self.values.parameters.items()}
        calls = [item.call for item in report.calls]
        alike = filled_alike(self.model, calls, self.golden.extra["weights"], shapes, self.expected.calls)
        with alike.applied(self.model):
            report = self._once(self.settings)
        if not alike.values:
            return replace(report, facts=[*report.facts, *alike.told_unknown])
        facts = report.facts if report.ok else [*report.facts, *alike.told_unknown]
        notes, renamed = [*report.notes, alike.told], [*report.renamed, alike.told]
        return replace(report, notes=notes, renamed=renamed, facts=facts)

    def _once(self, settings: CheckSettings) -> ParityReport:
        """Compare with copies of the inputs."""
        args, kwargs = self._rerun.inputs()
        called = replace(self.called, args=args, kwargs=kwargs)
        return _HeldModel(self.golden, self.model, called, settings, None, self.tell, self._wider).checked()

    def _under(self, names: Rename, hidden: frozenset[str], *, are_outputs_alone: bool = False) -> Comparator:
        settings, modules, expected = self.settings, modules_of(self.model), self.expected
        known = renamed(names, modules.by_path)
        among = () if are_outputs_alone else coverage_of(expected).among(known)
        picked = Selection(settings.include, settings.exclude, settings.level, known, among, expected.modules)
        unrecorded = hidden | (modules.by_path.keys() - picked.pick(self.model, modules.by_path).keys())
        kept = self.golden.extra.get("kept")
        comparator = Comparator(
            with_input_names(expected, self.called.names),
            names,
            settings.tolerances,
            modules=list(modules.by_path),
            aliases=modules.aliases,
            unrecorded=unrecorded,
            group=self.group,
            rules=replace(settings.rules, are_recorded=isinstance(kept, dict) and bool(kept.get("positions"))),
        )
        is_first = self._outputs is None
        inputs = (self.called.args, self.called.kwargs) if is_first else self._rerun.inputs()
        with computing(self.model, inputs, self._wider, comparator) as (given, consumer):
            recorder = Recorder(self.model, consumer, picked)
            with recorder:
                output = recorder.run(self.called.method, *given)
        if is_first:
            self._outputs = [leaf.tensor for leaf in walk(output)]
        self._notes += [note for note in recorder.notes if note not in self._notes]
        compiled_away = unrecorded.union(recorder.unrecorded)
        if compiled_away != unrecorded:  # only the forward tells which modules a compiled function hides
            return self._under(names, compiled_away, are_outputs_alone=are_outputs_alone)
        return comparator

    def in_float64(self, own: Rerun, reference: Rerun) -> _HeldModel | None:
        """Run the model and its reference in float64, and hold one to the other."""
        is_plain = self.group is None and self.settings.tolerances.are_defaults
        if not is_plain or is_in_float64(own) or is_in_float64(reference):
            return None
        theirs, (args, kwargs) = to_float64(reference), own.inputs()
        golden = replace(self.golden, trace=made(theirs, self.expected))
        called = replace(self.called, args=args, kwargs=kwargs, reference=lambda: theirs)
        settings = replace(self.settings, tolerances=AS_FLOAT32)
        return _HeldModel(golden, self.model, called, settings, None, self.tell, to_float64(own).wider)

    def once_more(self) -> ParityReport:
        """Run the model once more and hold it to the golden."""
        args, kwargs = self._rerun.inputs()
        called, settings = replace(self.called, args=args, kwargs=kwargs), replace(self.settings, is_explained=False)
        return _HeldModel(self.golden, self.model, called, settings, None, None, self._wider).checked()

    def on_part(self, reference: Rerun, take: Take, rules: OutputRules) -> ParityReport | None:
        """Hold the model to what the reference gives on a part of its inputs; None if one of them has none."""
        theirs, own = on_part(reference, take), on_part(self._rerun, take)
        if theirs is None or own is None:
            return None
        trace = made(theirs)
        if has_floors(self.expected):
            measure_floors(trace)
        args, kwargs = own.inputs()
        call = replace(self.called, args=args, kwargs=kwargs, reference=lambda: theirs, is_part=True)
        settings = replace(self.settings, rules=rules, is_explained=rules.positions is None)
        golden = replace(self.golden, trace=trace)
        return _HeldModel(golden, self.model, call, settings, None, None, self._wider).checked()

    def _explained(self, found: Ended) -> ParityReport:
        """Look at the code alone where weights are near the reference's: with its numbers in them."""
        reference = self.reference if self.asks(found) and self.group is None and found.fails is not False else None
        recorded = self.golden.extra["weights"]
        theirs = reference and reference()
        near = theirs and near_weights(self.model, theirs.model, self.rename, recorded)
        report = self._with_near(near, found) if near else None
        if near and theirs and report is not None and not report.ok:  # not all of them may be wrong
            own, expected = self._rerun.values(), theirs.values()
            left = near.that_count(own, expected) if own is not None and expected is not None else near
            report = report if left == near else self._with_near(left, found) if left else None
            near = left
        if not near or report is None:  # they are used otherwise there: a batch norm is folded into the port's, say
            return super()._explained(found)
        if report.ok and near.are_folded:
            return replace(report, notes=[*report.notes, near.folded])
        if report.ok:
            found = replace(found, circumstance=near.claim(self.model, found.judged.compared.calls))
            return replace(conclude(found, known=Known(given=tuple(self.given()))), advice=near.advice)
        self._is_told = True
        report = replace(report, facts=[*(report.facts if report.other_weights else []), near.told])
        if near.are_folded or report.culprit is None:
            return report
        weights = settled(near.claim(self.model, found.judged.compared.calls, is_all=False))
        told = f"{near.condition}, {report.told_of_faults}" if report.told_of_faults else ""
        return replace(
            report,
            culprit=conditional(report.culprit, near.condition),
            behind=(*report.behind, weights),
            told_of_faults=told,
        )

    def _with_near(self, near: NearWeights, found: Ended) -> ParityReport | None:
        """Hold the model with the reference's numbers in such weights; None if they mean something else there."""
        args, kwargs = self._rerun.inputs()
        called, settings = replace(self.called, args=args, kwargs=kwargs), self.settings
        if settings.tolerances.are_given:  # for what the weights make differ, which is gone
            settings = replace(settings, tolerances=Tolerances())
        with near.as_the_reference_has():
            held = _HeldModel(self.golden, self.model, called, settings, None, self.tell, self._wider)
            is_as_near = _apart(held.under(held.rename).finish()) <= _AS_NEAR * _apart(found.judged.compared)
            return held.checked() if is_as_near else None

    def _beside_pads(self) -> tuple[ParityReport | None, str]:
        beside, mask = super()._beside_pads()
        self._is_told = beside is not None or bool(mask)
        return beside, mask

    def explained(self, *, fails: bool | None) -> Explained | None:
        """Run the model once more and hold its operators to the reference's or the golden's, if that has any."""
        expected, reference, seconds = self.values, self.called.reference, self.seconds
        if expected is None:
            return None
        if expected.is_widened and not self._wider:
            fails = None  # of rounding, maybe
        tape, count, begun = Tape(), len(expected.calls), time.monotonic()
        actual = self._rerun.values(
            self._outputs or [],
            lambda done: self.tell(f"call {done} of {count}"),
            tape=None if seconds == 0 else tape,
        )
        if actual is None:
            return Explained(None, is_known=False, compared=0, expected=0, notes=[NOT_AGAIN])
        self.tell(f"{len(actual.values)} values beside {len(expected.values)}")
        ran = None if reference is None or seconds == 0 else _ran_again(reference, expected)
        expected, live = (expected, Tape()) if ran is None else ran
        look = explain(expected, actual, fails=fails, applied=tape.numbers(), held=self._rerun.weights())
        again = None if ran is None or reference is None else (self._rerun, reference())
        theirs = Live(live, outputs_of(self.expected))
        return with_faults(look, Trial(Live(tape, {}), theirs, seconds, begun, again, self.called.is_part))

    def both(self) -> tuple[Ran, Ran] | None:
        """Run the model and its reference once more; None where one of them gives something else."""
        expected, reference, tape = self.values, self.called.reference, Tape()
        own = self._rerun.values(self._outputs or [], tape=tape)
        theirs = None if expected is None or reference is None else _ran_again(reference, expected)
        return None if own is None or theirs is None else (Ran(own, tape), theirs)

    def given(self) -> Iterator[Claim]:
        """Yield what the test gave the model otherwise than the reference."""
        root, called = root_name(self.model), self.called
        if called.lacking is not None:
            own, theirs = called.lacking
            wrong = f"was not given {own}, and the reference was given {theirs}"
            yield Claim(root, "inputs", Evidence.INPUTS, root, "All that differs may come from that.", wrong)
        elif called.other is not None and not self._is_told:
            own, theirs = called.other
            why = f"{own!r} of port_inputs= differs from the reference's {theirs}, so nothing else was compared."
            yield Claim(root, "inputs", Evidence.INPUTS, root, why)

    def with_circumstances(self, report: ParityReport) -> ParityReport:
        """Say whether weights and environment are those of the golden, and how likely the difference is drift."""
        model, group, rename, recorded = self.model, self.group, self.rename, self.golden.extra["weights"]
        report = replace(report, has_own_inputs=self.called.other is not None)
        present = fingerprint(model) if group is None else fingerprint_on_ranks(model, group, recorded, rename)
        names = {own: there for own, there in renamed_tensors(rename, present).items() if there in recorded}
        wrong = [own for own, there in names.items() if recorded[there] != present[own]]
        culprit = report.culprit
        own = [name for name in wrong if culprit is not None and holder(name) == culprit.path]
        is_of_dtype, told = culprit is not None and culprit.kind == "dtype", ""
        made = [name for name in own if name in unsaved(model)] if group is None else []
        if made and len(made) == len(own) and culprit is not None and culprit.kind == "module":
            told = _MADE.format(made[0])
            if not culprit.proved:
                report, told = replace(report, culprit=_of_table(culprit, made[0])), ""
        elif own and culprit is not None and (group is not None or culprit.kind == "module"):
            why = ""
            if group is not None:
                known = None if self.values is None else self.values.parameters.get(names[own[0]])
                why = sharded_too_often(model, group, own[0], () if known is None else known[1])
            report = replace(report, culprit=_of_weights(culprit, own, len(wrong) - len(own), why))
        elif own:
            told = f"The weights differ, not the code: {own[0]!r} is not the recorded one"
            told += f", nor are {len(wrong) - 1} others." if len(wrong) > 1 else "."
        elif wrong:
            listing = listed([repr(wrong[0]), *wrong[1:]], 1)
            told = "" if is_of_dtype else f"Weights that differ from the recorded ones: {listing}."  # it changes all
        elif names:
            told = "All weights with matching names are the recorded ones."
        elif not report.by_values:  # else the values were compared whatever their names
            told = "Weights were not compared: no names match (use rename=)."
        since = list(changed_environment(self.golden.extra["provenance"], provenance(model)))
        lines = [f"Changed since it was recorded: {'; '.join(since)}." if since else ""]
        is_drift = False
        if not report.by_values and not is_of_dtype:
            assessed = assess(report, since, [name for name in wrong if name not in made])
            is_drift = assessed.finding == "drift"
            lines.append(str(assessed))
        facts = [*report.facts, *filter(None, [told])]
        between = [line for line in lines if line]
        return replace(report, facts=facts, between=between, changed=since, other_weights=wrong, is_drift=is_drift)

    def failing_elements(self, report: ParityReport) -> ElementGrid | None:
        """Return the elements of the first differing tensor that both sides have whole.

        The comparison no longer holds the tensors under test, so the forward is made once more and that one tensor
        kept.
        """
        args, kwargs = self._rerun.inputs()
        for call, leaf in _candidates(report):
            expected = leaf.expected.tensor if leaf.expected is not None else None
            if expected is None or tuple(expected.shape) != leaf.shape:
                continue
            picked = Selection(include=(call.path,)) if call.parent is not None else Selection(among=())
            recorded = None
            with second_look([]):
                recorded = recorded_forward(
                    self.model, args, kwargs, picked, method=self._rerun.method, wider=self._wider
                )
            if recorded is None:
                return None
            actual = recorded.tensor(call.path, call.call, leaf.direction, leaf.leaf)
            if actual is not None and actual.shape == expected.shape:
                what = f"{leaf.direction} {leaf.leaf}".rstrip() + f" of {call.name}"
                given = (each for each in (*args, *kwargs.values()) if isinstance(each, torch.Tensor))
                ids = next((tuple(each.shape) for each in given if each.dim() == _BATCH_AND_TOKENS), ())
                tolerance = self.settings.tolerances.of(call.path, leaf.dtype)
                return element_grid(what, expected, actual, tolerance, axis_names(leaf.shape, ids))
        return None


def _ran_again(reference: Callable[[], Rerun], recorded: Values) -> Ran | None:
    """Run a reference, and return what its operators computed and what ran; None where it gives something else now."""
    tape, values = Tape(), None
    with second_look([]), torch.random.fork_rng(devices=[]):
        values = reference().values(tape=tape)
    if values is None or len(values.results) != len(recorded.results):
        return None
    pairs = zip(values.results, recorded.results, strict=True)
    is_same = all(distance(values.values[i].print, recorded.values[j].print) <= AGREE for (_, i), (_, j) in pairs)
    return Ran(values, tape) if is_same else None


def _apart(compared: Compared) -> float:
    """Return how far the output that is furthest from the expected one is, as relative L2."""
    leaves = (leaf for item in compared.calls if item.call.parent is None for leaf in item.outputs)
    return max((leaf.metrics.relative_l2 for leaf in leaves if leaf.metrics is not None), default=0.0)


def _of_weights(culprit: Culprit, own: list[str], others: int, told: str) -> Culprit:
    why = f"Its inputs agree, and {own[0]!r} is not the recorded one: the weights differ, not the code."
    why += f" So do {others} more of the model." if others else ""
    of_weights = replace(_claim(culprit, "weights", f"{why} {told}".rstrip()), weights=tuple(own))
    return settled(replace(of_weights, proved=culprit.proved, changes=culprit.changes))


def _of_table(culprit: Culprit, name: str) -> Culprit:
    claim = _claim(culprit, "module", f"Its inputs agree. {_MADE.format(name)}")
    return settled(replace(claim, wrong=f"holds another table: {name}"))


def _claim(culprit: Culprit, kind: Kind, why: str) -> Claim:
    """Return a claim on the place of a culprit, whose parameter or buffer was compared with the recorded one."""
    return Claim(
        culprit.path,
        kind,
        Evidence.WEIGHT,
        culprit.class_name,
        why,
        source=culprit.source,
        reference=culprit.reference,
        ranks=culprit.ranks,
        divergence=culprit.divergence,
    )


def _candidates(report: ParityReport) -> Iterator[tuple[Call, LeafComparison]]:
    culprit = report.culprit
    meant = culprit.divergence if culprit is not None else None
    by_name = {(item.call.path, item.call.call): item.call for item in report.calls}
    for divergence in (meant, *report.divergences):
        if divergence is not None and divergence.metrics is not None:
            yield by_name[divergence.path, divergence.call], divergence.comparison
    for item in report.calls:
        yield from ((item.call, leaf) for leaf in item.outputs if leaf.problem == "values")

"""A model held to its golden: one forward that is compared while it runs, and another to explain a failure."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import listed, second_look
from pytest_tfdebug.goldens.golden_file import changed_environment, provenance
from pytest_tfdebug.goldens.recording import fingerprint_on_ranks, sharded_too_often
from pytest_tfdebug.goldens.weights import fingerprint
from pytest_tfdebug.parity.calls.noise import assess
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.compare import Ended, conclude, coverage_of, ended, outputs_of
from pytest_tfdebug.parity.find.pads import at_pads, beside_pads, made, on_part
from pytest_tfdebug.parity.find.several import with_faults
from pytest_tfdebug.parity.find.values import NOT_AGAIN, Explained, explain
from pytest_tfdebug.parity.pair.pairing import with_input_names
from pytest_tfdebug.parity.pair.rename import Rename, renamed, renamed_tensors
from pytest_tfdebug.parity.proof.prove import Live, Trial
from pytest_tfdebug.parity.settle import settle
from pytest_tfdebug.parity.tensors.comparator import Comparator, Compared
from pytest_tfdebug.parity.tensors.elements import axis_names, element_grid
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.modules import Selection, modules_of, root_name
from pytest_tfdebug.tracing.record.recorder import Recorder
from pytest_tfdebug.tracing.trace import recorded_forward
from pytest_tfdebug.tracing.values.precision import has_floors, measure_floors
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.tracing.values.tape import Tape
from pytest_tfdebug.values import distance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.check_record import ElementGrid
    from pytest_tfdebug.goldens.golden_check import Progress
    from pytest_tfdebug.goldens.port_call import PortCall
    from pytest_tfdebug.goldens.settings import CheckSettings
    from pytest_tfdebug.parity.find.pads import Take
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.tensors.outputs import OutputRules
    from pytest_tfdebug.records import Call, Culprit, LeafComparison
    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.record.ranks import Group
    from pytest_tfdebug.values import Values

_BATCH_AND_TOKENS = 2


def compare_with(
    golden_file: TraceFile,
    model: torch.nn.Module,
    called: PortCall,
    settings: CheckSettings,
    *,
    group: Group | None = None,
    progress: Progress | None = None,
) -> ParityReport:
    """Run a model and compare each tensor with its golden while it is alive; a second run explains a failure.

    So does one of the reference, where it is at hand and still gives what the golden holds.
    """
    held = _HeldModel(golden_file, model, called, settings, group)
    comparator, output = held.under(settings.rename, (called.args, called.kwargs))

    found, notes = ended(comparator, tuple(held.notes), internal=settings.internal), list[str]()
    with second_look(notes):
        return _explained(held, found, output, progress)
    report = conclude(found)
    return replace(report, notes=[*report.notes, *notes])


def _explained(held: _HeldModel, found: Ended, output: object, progress: Progress | None) -> ParityReport:
    golden_file, called, settings, group, mask = held.golden, held.called, held.settings, held.group, ""
    is_plain = called.lacking is not None and found.fails is True  # nothing more can be told
    if found.asks and settings.is_explained and group is None and not is_plain:  # a rank has values of its parts alone

        def hold(reference: Rerun, take: Take, rules: OutputRules) -> ParityReport | None:
            again = replace(settings, rules=rules, is_explained=rules.positions is None)
            part = held.on_part(reference, take)
            return None if part is None else compare_with(*part, again)

        beside = None
        if found.fails and called.reference is not None:
            beside, mask = beside_pads(golden_file.trace, called.reference, settings.rules, hold)
        if beside is not None:
            return beside
        found = found.answered(held.by_values(output, progress, fails=found.fails))
    tried = found.names_to_try()
    report = conclude(found, tried, held.under_names(tried), (held.again, golden_file.trace.again))
    if report.ok:
        return report
    plain = held.of_inputs(report, mask)
    report = held.with_circumstances(report) if plain is None else plain
    return replace(report, elements=held.failing_elements(report)) if settings.in_detail and group is None else report


@dataclass
class _HeldModel:
    golden: TraceFile
    model: torch.nn.Module
    called: PortCall
    settings: CheckSettings
    group: Group | None

    def __post_init__(self) -> None:
        self.again = Rerun(self.model, self.called.args, self.called.kwargs, self.called.method)
        self.notes = [*self.golden.trace.notes, *filter(None, [self.called.note])]

    @cached_property
    def values(self) -> Values | None:
        """What the golden's operators computed."""
        return None if self.golden.trace.again is None else self.golden.trace.again.values()

    def under_names(self, tried: dict[str, str]) -> Compared | None:
        """Run the model once more, its modules under other names."""
        rename = self.settings.rename
        if callable(rename) or not tried:
            return None
        with second_look([]):
            return self.under({**(rename or {}), **tried}, self.again.inputs())[0].finish()
        return None

    def under(
        self, names: Rename, inputs: tuple[tuple[Any, ...], dict[str, Any]], hidden: frozenset[str] = frozenset()
    ) -> tuple[Comparator, Any]:
        """Run the model, its modules under some names; return what was compared, and its output."""
        settings, modules, expected = self.settings, modules_of(self.model), self.golden.trace
        known = renamed(names, modules.by_path)
        among = coverage_of(expected).among(known)
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
        recorder = Recorder(self.model, comparator, picked)
        output = recorder.run_alone(self.called.method, *inputs)
        self.notes += [note for note in recorder.notes if note not in self.notes]
        compiled_away = unrecorded.union(recorder.unrecorded)
        if compiled_away != unrecorded:  # only the forward tells which modules a compiled function hides
            return self.under(names, self.again.inputs(), compiled_away)
        return comparator, output

    def on_part(self, reference: Rerun, take: Take) -> tuple[TraceFile, torch.nn.Module, PortCall] | None:
        """Return what the reference gives on a part of its inputs, and the model's call on it; None if it has none."""
        theirs, own = on_part(reference, take), on_part(self.again, take)
        if theirs is None or own is None:
            return None
        trace = made(theirs)
        if has_floors(self.golden.trace):
            measure_floors(trace)
        args, kwargs = own.inputs()
        call = replace(self.called, args=args, kwargs=kwargs, reference=lambda: theirs)
        return replace(self.golden, trace=trace), self.model, call

    def by_values(self, output: object, progress: Progress | None, *, fails: bool | None) -> Explained | None:
        """Run the model once more and hold its operators to the reference's or the golden's, if that has any."""
        expected, reference, seconds = self.values, self.called.reference, self.settings.explain_seconds
        if expected is None:
            return None
        tape, count, begun = Tape(), len(expected.calls), time.monotonic()
        step = None if progress is None else lambda done: progress.tell(f"call {done} of {count}")
        outputs = [leaf.tensor for leaf in walk(output)]
        actual = self.again.values(outputs, step, tape=None if seconds == 0 else tape)
        if actual is None:
            return Explained(None, is_known=False, compared=0, expected=0, notes=[NOT_AGAIN])
        if progress is not None:
            progress.tell(f"{len(actual.values)} values beside {len(expected.values)}")
        ran = None if reference is None or seconds == 0 else _ran_again(reference, expected)
        expected, live = (expected, Tape()) if ran is None else ran
        look = explain(expected, actual, fails=fails, applied=tape.numbers())
        again = None if ran is None or reference is None else (self.again, reference())
        theirs = Live(live, outputs_of(self.golden.trace))
        return with_faults(look, Trial(Live(tape, {}), theirs, seconds, begun, again))

    def of_inputs(self, report: ParityReport, mask: str) -> ParityReport | None:
        """Return the report of a difference that no code is to blame for; None of any other."""
        if self.called.lacking is None:
            return at_pads(report, mask) if mask else None
        own, theirs = self.called.lacking
        wrong = f"was not given {own}, and the reference was given {theirs}"
        advice = f'Add it to the port\'s own inputs: port_inputs={{..., "{own}": ...}}'
        return replace(report, culprit=self._given("All that differs may come from that.", wrong), advice=advice)

    def _given(self, why: str, wrong: str = "") -> Culprit:
        root = root_name(self.model)
        return settle([Claim(root, "inputs", Evidence.INPUTS, root, why, wrong)])[0]

    def with_circumstances(self, report: ParityReport) -> ParityReport:
        """Say whether weights and environment are those of the golden, and how likely the difference is drift."""
        model, group, rename, recorded = self.model, self.group, self.settings.rename, self.golden.extra["weights"]
        if self.called.other is not None:
            own_ids, theirs = self.called.other
            why = f"{own_ids!r} of port_inputs= differs from the reference's {theirs}, so nothing else was compared."
            report = replace(report, has_own_inputs=True, culprit=self._given(why))
        present = fingerprint(model) if group is None else fingerprint_on_ranks(model, group, recorded, rename)
        names = {own: there for own, there in renamed_tensors(rename, present).items() if there in recorded}
        wrong = [own for own, there in names.items() if recorded[there] != present[own]]
        culprit = report.culprit
        own = [name for name in wrong if culprit is not None and name.rpartition(".")[0] == culprit.path]
        is_of_dtype, told = culprit is not None and culprit.kind == "dtype", ""
        if own and culprit is not None and (group is not None or culprit.kind == "module"):
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
            assessed = assess(report, since, wrong)
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
        args, kwargs = self.again.inputs()
        for call, leaf in _candidates(report):
            expected = leaf.expected.tensor if leaf.expected is not None else None
            if expected is None or tuple(expected.shape) != leaf.shape:
                continue
            picked = Selection(include=(call.path,)) if call.parent is not None else Selection(among=())
            recorded = None
            with second_look([]):
                recorded = recorded_forward(self.model, args, kwargs, picked, method=self.again.method)
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


def _ran_again(reference: Callable[[], Rerun], recorded: Values) -> tuple[Values, Tape] | None:
    """Run a reference, and return what its operators computed and what ran; None where it gives something else now."""
    tape, values = Tape(), None
    with second_look([]), torch.random.fork_rng(devices=[]):
        values = reference().values(tape=tape)
    if values is None or len(values.results) != len(recorded.results):
        return None
    pairs = zip(values.results, recorded.results, strict=True)
    is_same = all(distance(values.values[i].print, recorded.values[j].print) <= AGREE for (_, i), (_, j) in pairs)
    return (values, tape) if is_same else None


def _of_weights(culprit: Culprit, own: list[str], others: int, told: str) -> Culprit:
    why = f"Its inputs agree, and {own[0]!r} is not the recorded one: the weights differ, not the code."
    why += f" So do {others} more of the model." if others else ""
    claim = Claim(
        culprit.path,
        "weights",
        Evidence.WEIGHT,
        culprit.class_name,
        f"{why} {told}".rstrip(),
        source=culprit.source,
        reference=culprit.reference,
        proved=culprit.proved,
        changes=culprit.changes,
        weights=tuple(own),
        ranks=culprit.ranks,
        divergence=culprit.divergence,
    )
    return settle([claim])[0]


def _candidates(report: ParityReport) -> Iterator[tuple[Call, LeafComparison]]:
    culprit = report.culprit
    meant = culprit.divergence if culprit is not None else None
    by_name = {(item.call.path, item.call.call): item.call for item in report.calls}
    for divergence in (meant, *report.divergences):
        if divergence is not None and divergence.metrics is not None:
            yield by_name[divergence.path, divergence.call], divergence.comparison
    for item in report.calls:
        yield from ((item.call, leaf) for leaf in item.outputs if leaf.problem == "values")

"""Who is to blame for a step: the first thing of a training that is done otherwise, and the change that shows it."""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.module_path import holder
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.find.values import lines_of
from pytest_tfdebug.parity.result import ParityReport
from pytest_tfdebug.parity.settle import settled
from pytest_tfdebug.records import Coverage, SourceRange
from pytest_tfdebug.steps.blame import hold_backward
from pytest_tfdebug.steps.compare import BackwardPair, row_error
from pytest_tfdebug.steps.gradients import SAME
from pytest_tfdebug.steps.rows import PROJECTIONS, ParameterPairs, ParameterRows
from pytest_tfdebug.steps.rules import SAME_STEP, is_given_by, others, replayed, rule_of, step_error
from pytest_tfdebug.steps.training import OWN_CODE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_tfdebug.steps.blame import Again
    from pytest_tfdebug.steps.training import OptimizerStep, Training
    from pytest_tfdebug.values import Line

    _Looks = tuple[Callable[[int, OptimizerStep, OptimizerStep], "StepFault | None"], ...]

logger = logging.getLogger(__name__)

#: After the first step weights have drifted by their rounding, which Adam makes whole steps of: only more than this
#: share of a gradient tells something then.
_DRIFTED = 0.05
#: Share by which the factors of clipping may differ in the first step.
_CLIPPED = 1e-3
#: Share of the greatest gradient below which one is rounding: an Adam makes whole steps of it.
_NO_GRADIENT = 1e-5
#: Share by which a running statistic may move otherwise.
_FLOWED = 1e-3
_SUBJECT = "The training differs from the reference's"


@dataclass(frozen=True)
class StepFault:
    """What a step does otherwise."""

    wrong: str  # in a few words
    why: str  # what was observed
    lines: tuple[Line, ...] = ()
    parameters: tuple[str, ...] = ()
    source: SourceRange | None = None
    proved: str = ""
    reference: tuple[Line, ...] = ()
    evidence: Evidence = Evidence.TRAINING


def hold_training(expected: Training, actual: Training, again: Again | None = None) -> ParityReport:
    """Hold a training to that of a reference: the backward of the first step, then each step."""
    steps = _Steps(expected, actual)
    fault = steps.first_fault()
    if fault is not None and fault.wrong != _GRADIENT:
        return _report(steps, fault)
    if steps.is_accumulated:
        report = _of_sums(steps)
    else:
        report = hold_backward(expected.backward, actual.backward, again, steps.unseen(1))
    if not report:
        return report
    if fault is not None:
        return _report(steps, fault)
    told = f"{report.agreement} So do {counted(len(actual.steps), 'step')} of {actual.steps[0].optimizer}."
    return replace(report, agreement=told)


def _of_sums(steps: _Steps) -> ParityReport:
    """Return the report on a training that makes another number of backwards in a step: their values are others."""
    counts = [counted(len(side.steps[0].batches), "backward") for side in (steps.actual, steps.expected)]
    count = len(steps.pairs.paired)
    told = f"Parity: the gradients of {counted(count, 'parameter')} agree, of {counts[0]} here and {counts[1]} there; "
    told += "the values behind them were not compared."
    coverage = Coverage(count, count + len(steps.pairs.unpaired), root=True)
    return ParityReport(None, [], [], count, subject=_SUBJECT, coverage=coverage, by_values=True, agreement=told)


#: What is said of a batch whose gradient is another, where its backward is to say more.
_GRADIENT = "gives another gradient"


class _SeenGradients(NamedTuple):
    """What both optimisers saw of the gradients that the backwards had left."""

    own: float | None  # factor of all parameters together; None where there is no one factor
    each: dict[str, float | None]  # factor of each parameter of the port
    expected: float | None
    allowed: float  # share by which the factors may differ

    def told(self) -> tuple[str, str] | None:
        """Return what is wrong, and what was observed."""
        if self.own is not None and self.expected is not None:
            if abs(self.own - self.expected) <= self.allowed * abs(self.expected):
                return None
            times = f"The optimiser sees {self.own:.6g} times the gradients"
            is_as_left = abs(self.own - 1) < SAME
            said = "does not clip the gradients" if is_as_left else "clips or scales the gradients otherwise"
            return said, f"{times}, and the reference's {self.expected:.6g} times."
        if self.expected is None:
            if self.own is None or self.allowed > _CLIPPED:
                return None
            why = "The reference scales each parameter's gradient alone, and the port all of them alike."
            return "clips or scales all gradients together", why
        known = [factor for factor in self.each.values() if factor is not None]
        if known and len(known) == len(self.each):
            span = f"{min(known):.4g} to {max(known):.4g} times the gradients, parameter by parameter"
            why = f"The optimiser sees {span}; the reference's sees {self.expected:.6g} times of all."
            return "clips or scales each parameter's gradient alone", why
        off = [name for name, factor in self.each.items() if factor is None]
        why = f"What the optimiser sees is no multiple of what the backwards left: {listed(off, 3)}."
        if not off:
            why = "No parameter of the optimiser has a gradient as it steps."
        return f"{'changes the gradients' if off else 'takes the gradients away'} before the step", why


class _Steps:
    """Two trainings side by side."""

    def __init__(self, expected: Training, actual: Training) -> None:
        self.expected, self.actual = expected, actual
        first, own = expected.steps[0], actual.steps[0]
        self.pairs = ParameterPairs(own.given, first.given)
        self.buffers = ParameterPairs(own.buffers, first.buffers)
        self._unseen: dict[int, frozenset[str]] = {}

    @property
    def is_accumulated(self) -> bool:
        """Whether a step is made of another number of backwards than the reference's."""
        both = zip(self.expected.steps, self.actual.steps, strict=False)
        return any(len(theirs.batches) != len(own.batches) for theirs, own in both)

    def first_fault(self) -> StepFault | None:
        """Return the first thing that is done otherwise."""
        looks: _Looks = (
            self._stale,
            self._batches,
            self._seen,
            self._kept,
            self._held,
            self._settings,
            self._buffers,
            self._moves,
            self._moved_alone,
        )
        later: _Looks = (self._outside, self._buffers, *looks)  # what happened before its forward comes first
        by_hand: _Looks = (self._batches, self._moved_by_hand)
        for number, (theirs, own) in enumerate(zip(self.expected.steps, self.actual.steps, strict=False), 1):
            usual = looks if number == 1 else later
            for look in by_hand if OWN_CODE in (own.optimizer, theirs.optimizer) else usual:
                fault = look(number, theirs, own)
                if fault is not None:
                    return fault
        if len(self.expected.steps) == len(self.actual.steps):
            return self._ended()
        counts = counted(len(self.actual.steps), "step"), counted(len(self.expected.steps), "step")
        return StepFault(f"makes {counts[0]}; the reference makes {counts[1]}", "", self.actual.steps[-1].lines)

    def unseen(self, number: int) -> frozenset[str]:
        """Return the parameters whose gradient neither optimiser sees in a step: frozen, or taken away before it."""
        if number not in self._unseen:
            own, theirs = (side.steps[number - 1].given for side in (self.actual, self.expected))
            both = ((name, self.pairs.beside(name, own, theirs)) for name in self.pairs.paired)
            silent = (name for name, sides in both if not any(each[:, -1].any() for each in sides))
            self._unseen[number] = frozenset(silent)
        return self._unseen[number]

    # --- what each step is made of

    def _batches(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        if len(theirs.batches) != len(own.batches):
            return self._accumulated(number, theirs, own)
        for place, (one, other) in enumerate(zip(theirs.batches, own.batches, strict=True), 1):
            if one.is_fresh != other.is_fresh:
                between = "zeroes the gradients between two batches of a step"
                wrong = "does not zero the gradients" if one.is_fresh else between
                held = "gradients" if one.is_fresh else "none"
                why = f"Before batch {place} of step {number} the parameters have {held}."
                return StepFault(wrong, why, other.lines, reference=one.lines)
            fault = self._added(f"batch {place} of step {number}", number, (one.added, other.added), other.lines)
            if fault is not None:
                return replace(fault, reference=one.lines)
        return None

    def _accumulated(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Return what is wrong with a step of another number of backwards: their sum, or that they are not summed."""
        sums = [ParameterRows.together([each.added for each in step.batches]) for step in (theirs, own) if step.batches]
        which = f"all batches of step {number}"
        fault = self._added(which, number, (sums[0], sums[1]), own.lines) if len(sums) > 1 else None
        is_zeroed = any(batch.is_fresh for step in (theirs, own) for batch in step.batches[1:])
        if fault is None and not is_zeroed and len(sums) > 1:
            return None
        counts = counted(len(own.batches), "backward"), counted(len(theirs.batches), "backward")
        wrong = f"makes {counts[0]} before step {number}; the reference makes {counts[1]}"
        if fault is not None and fault.wrong != _GRADIENT:
            wrong = fault.wrong
        return StepFault(wrong, "" if fault is None else fault.why, own.lines, reference=theirs.lines)

    def _added(
        self, which: str, number: int, rows: tuple[ParameterRows, ParameterRows], lines: tuple[Line, ...]
    ) -> StepFault | None:
        """Return what is wrong with what a batch adds to the gradients."""
        names = self.pairs.paired.keys() - self.unseen(number)
        found = {name: self.pairs.beside(name, rows[1], rows[0]) for name in self.pairs.paired if name in names}
        greatest = max((float(own[:, -1].max(initial=0.0)) for _, own in found.values()), default=0.0)
        allowed = SAME if number == 1 else _DRIFTED
        wrong = _otherwise(found, allowed, greatest)
        if not wrong:
            return None
        own, other = (
            np.concatenate([each[side][:, :PROJECTIONS].ravel() for each in found.values()]) for side in (0, 1)
        )
        k = _multiple(own, other, allowed)
        if k is not None and len(wrong) * 2 > len(found):
            why = f"The gradient of {which} is {k:.4g} times the reference's, of all parameters alike."
            return StepFault(f"gives {k:.4g} times the gradient: {_accumulated(k)}", why, lines)
        why = f"The gradient of {which} is another for {counted(len(wrong), 'parameter')}: {listed(wrong, 3)}."
        evidence = Evidence.TRAINING if number == 1 else Evidence.LATER_STEP
        return StepFault(_GRADIENT, why, lines, tuple(wrong), evidence=evidence)

    def _seen(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """What the optimiser sees of the gradients that the backwards left: clipped, scaled, noised."""
        allowed, unseen = _DRIFTED if number > 1 else _CLIPPED, self.unseen(number)
        each = {name: k for name, k in own.factors.items() if name not in unseen}
        same = next(iter(each.values()), None)
        is_one = same is not None and all(k is not None and abs(k - same) <= allowed * same for k in each.values())
        seen = _SeenGradients(same if is_one else own.factor, each, theirs.factor, allowed)
        told = seen.told()
        return None if told is None else StepFault(*told, own.lines, reference=theirs.lines)

    def _kept(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Gradients of earlier backwards that an optimiser sees beside those of its own: they were not zeroed."""
        kept = [_left_over(step) for step in (own, theirs)]
        if kept[0] is None or kept[1] is None:
            return None
        names = own.settings.keys() - self.unseen(number)
        found = {name: self.pairs.beside(name, kept[0], kept[1]) for name in self.pairs.paired if name in names}
        greatest = max(own.given.sizes().values(), default=0.0)
        wrong = _otherwise(found, _DRIFTED, greatest)
        if not wrong:
            return None
        has_more = sum(float(found[name][0][:, -1].sum()) for name in wrong) > sum(
            float(found[name][1][:, -1].sum()) for name in wrong
        )
        said = "does not zero the gradients" if has_more else "zeroes the gradients"
        told = f"{said} of {counted(len(wrong), 'parameter')} before step {number}"
        seen = "more than" if has_more else "not all that"
        why = f"{own.optimizer} sees {seen} the backwards of this step have added: {listed(wrong, 3)}."
        return StepFault(told, why, own.lines, tuple(wrong), reference=theirs.lines)

    def _stale(self, _number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Parameters of the optimiser in whose place the model has others by now: these are not trained."""
        if not own.stale or theirs.stale:
            return None
        wrong = f"{own.optimizer} has parameters that the model has replaced: {listed(list(own.stale), 3)}"
        why = "The model has another parameter of that name: the optimiser was made before it was replaced."
        return StepFault(wrong, why, own.made_at or own.lines, own.stale)

    def _held(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Parameters that the optimiser lacks, or has twice."""
        if own.twice and not theirs.twice:
            wrong = f"has {counted(len(own.twice), 'parameter')} twice: {listed(list(own.twice), 3)}"
            return StepFault(f"{own.optimizer} {wrong}", "", own.made_at or own.lines, own.twice)
        everywhere = {name for step in self.actual.steps for name in step.settings}
        theirs_everywhere = {name for step in self.expected.steps for name in step.settings}
        lacking = tuple(
            name
            for name, pair in self.pairs.paired.items()
            if name not in everywhere and any(other in theirs_everywhere for other in pair.others)
        )
        extra = tuple(
            name
            for name, pair in self.pairs.paired.items()
            if name in everywhere and not any(other in theirs_everywhere for other in pair.others)
        )
        if number == 1 and (lacking or extra):
            names, verb = (lacking, "does not have") if lacking else (extra, "has, and the reference's has not,")
            wrong = f"{own.optimizer} {verb} {listed(list(names), 3)}"
            return StepFault(
                wrong, "The reference's optimiser has them." * bool(lacking), own.made_at or own.lines, names
            )
        return None

    def _settings(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Hyperparameters that differ, where both sides have them."""
        if theirs.optimizer != own.optimizer and not (own.is_torch and theirs.is_torch):
            return None
        differing: dict[str, dict[str, tuple[Any, Any]]] = {}
        for name, settings in own.settings.items():
            there = self._settings_of(name, theirs)
            for key in settings.keys() & (there or {}).keys():
                if there is not None and not _is_same_number(settings[key], there[key]):
                    differing.setdefault(key, {})[name] = settings[key], there[key]
        if not differing:
            return None
        key = min(differing, key=lambda each: (each != "lr", each))
        mine, there = next(iter(differing[key].values()))
        names = tuple(differing[key])
        which = "" if len(names) == len(own.settings) else f" for {listed(list(names), 2)}"
        why = f"In step {number}, {counted(len(names), 'parameter')}: {listed(list(names), 3)}."
        if key == "lr":
            why = f"{why} {self._lr_of(mine, number)}".rstrip()
        wrong = f"{own.optimizer} has {key} {_shown(mine)}{which}; the reference has {_shown(there)}"
        lines = own.lines if key == "lr" and number > 1 else own.made_at or own.lines
        return StepFault(wrong, why, lines, names, reference=theirs.made_at or theirs.lines)

    def _lr_of(self, lr: float, number: int) -> str:
        lrs = [next(iter(step.settings.values()), {}).get("lr") for step in self.expected.steps]
        if len(set(lrs)) > 1 and lr in lrs and lrs.index(lr) + 1 != number:
            return f"It is the reference's lr of step {lrs.index(lr) + 1}: the scheduler steps at another time."
        return ""

    def _settings_of(self, name: str, theirs: OptimizerStep) -> dict[str, Any] | None:
        pair = self.pairs.paired.get(name)
        held = [theirs.settings[other] for other in (pair.others if pair else ()) if other in theirs.settings]
        return held[0] if held else None

    def _buffers(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Running statistics, and other buffers."""
        return self._flowed(own.buffers, theirs.buffers, _FLOWED if number == 1 else _DRIFTED)

    def _flowed(self, own: ParameterRows, theirs: ParameterRows, allowed: float) -> StepFault | None:
        """Return which buffers move otherwise."""
        found = {name: self.buffers.beside(name, own, theirs) for name in self.buffers.paired}
        wrong = _otherwise(found, allowed, _greatest(theirs))
        if not wrong:
            return None
        why = f"{counted(len(wrong), 'buffer')}: {listed(wrong, 3)}."
        return StepFault(f"{wrong[0]} {_how(*found[wrong[0]], 'is updated')}", why, (), tuple(wrong))

    def _moved_by_hand(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Parameters that move otherwise, where no optimiser of torch moves them on one of the sides."""
        if own.moved is None or theirs.moved is None:
            return None
        sizes = own.given.sizes()
        telling = {name for name, size in sizes.items() if size > _NO_GRADIENT * max(sizes.values())}
        paired = telling.intersection(self.pairs.paired)
        found = {name: self.pairs.beside(name, own.moved, theirs.moved) for name in own.given.ways if name in paired}
        wrong = _otherwise(found, _CLIPPED if number == 1 else _DRIFTED, _greatest(theirs.moved))
        if not wrong:
            return None
        why = f"In step {number}, {counted(len(wrong), 'parameter')} of {len(found)}: {listed(wrong, 3)}."
        told = f"{wrong[0]} {_how(*found[wrong[0]], 'is moved')} after this backward"
        lines = own.written.get(wrong[0], own.lines)
        return StepFault(told, why, lines, tuple(wrong), reference=theirs.lines, evidence=Evidence.LATER_STEP)

    def _outside(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Parameters that move otherwise between two steps: an average of weights, or weights that are cut off."""
        if own.outside is None or theirs.outside is None:
            return None
        return self._moved_outside(own.outside, theirs.outside, f"before step {number}", own.written)

    def _moved_outside(
        self, own: ParameterRows, theirs: ParameterRows, when: str, written: Mapping[str, tuple[Line, ...]]
    ) -> StepFault | None:
        found = {name: self.pairs.beside(name, own, theirs) for name in self.pairs.paired}
        moved = self.expected.steps[0].moved
        wrong = _otherwise(found, _DRIFTED, 0.0 if moved is None else _greatest(moved))
        if not wrong:
            return None
        why = f"{counted(len(wrong), 'parameter')}, outside of the optimiser's steps: {listed(wrong, 3)}."
        told = f"{wrong[0]} {_how(*found[wrong[0]], 'is moved')} {when}"
        lines = written.get(wrong[0], self.actual.steps[0].lines)
        return StepFault(told, why, lines, tuple(wrong), evidence=Evidence.LATER_STEP)

    def _ended(self) -> StepFault | None:
        """Buffers, and what moved parameters after the last step, once the run is over."""
        own, theirs = self.actual.end, self.expected.end
        if own is None or theirs is None:
            return None
        after = f"after step {len(self.actual.steps)}"
        fault = self._moved_outside(own.outside, theirs.outside, after, own.written)
        return fault or self._flowed(own.flowed, theirs.flowed, _DRIFTED)

    # --- the rule

    @cached_property
    def _errors(self) -> dict[str, dict[int, float]]:
        """How far each step of a parameter is from the reference's rule on the port's own gradients, by its number."""
        found: dict[str, dict[int, float]] = {}
        for name in self.pairs.paired:
            steps, settings = self._steps_of(name)
            kinds = {_class_of(self.expected.steps[number]) for number in steps}
            own, kind = [self.actual.steps[number] for number in steps], next(iter(kinds), None)
            lives = [step.live for step in own if step.live is not None]
            if len(kinds) != 1 or kind is None or len(lives) < len(steps):
                continue
            try:
                made = replayed(own, name, settings, kind)
            except Exception:  # an optimiser that takes more than its group: nothing can be said
                logger.debug("steps of %s could not be made again", kind, exc_info=True)
                continue
            errors = (
                step_error(live.after[name] - live.before[name], moved, live.before[name])
                for live, moved in zip(lives, made, strict=True)
            )
            found[name] = dict(zip((number + 1 for number in steps), errors, strict=True))
        return found

    def _steps_of(self, name: str) -> tuple[list[int], list[dict[str, Any]]]:
        """Return which steps are those of a parameter of the port, and how the reference's optimiser makes them."""
        both = enumerate(zip(self.expected.steps, self.actual.steps, strict=False))
        held = ((number, self._settings_of(name, theirs)) for number, (theirs, own) in both if name in own.settings)
        found = [(number, settings) for number, settings in held if settings is not None]
        return [number for number, _ in found], [settings for _, settings in found]

    def _moves(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Parameters that the reference's rule moves otherwise."""
        wrong = [name for name, errors in self._errors.items() if errors.get(number, 0.0) > SAME_STEP]
        return self._rule_fault(wrong, theirs, own) if wrong else None

    def _moved_alone(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Parameters without a gradient that the port's optimiser moves, and the reference's leaves as they are."""
        if own.moved is None or theirs.moved is None:
            return None
        both = ((name, self.pairs.beside(name, own.moved, theirs.moved)) for name in self.unseen(number))
        wrong = sorted(name for name, (mine, other) in both if mine[:, -1].any() and not other[:, -1].any())
        if not wrong:
            return None
        told = f"{own.optimizer} moves {listed(wrong, 2)}, which the reference's leaves as they are"
        why = (
            f"In step {number} these get no gradient. Of one of zeros an optimiser decays a weight all the same, and "
            "goes on with its momentum: set it to None, or requires_grad to False."
        )
        return StepFault(told, why, own.lines, tuple(wrong), reference=theirs.lines)

    def _rule_fault(self, wrong: list[str], theirs: OptimizerStep, own: OptimizerStep) -> StepFault:
        source = SourceRange(*own.rule) if own.rule is not None else None
        why = (
            "On the port's own gradients the reference's rule gives other steps for "
            f"{counted(len(wrong), 'parameter')}: {listed(wrong, 3)}."
        )
        where = () if source is not None else own.made_at or own.lines
        said = f"{own.optimizer} makes other steps than {theirs.optimizer}"
        told = StepFault(said, why, where, tuple(wrong), source, evidence=Evidence.LATER_STEP)
        live = own.live
        if live is None:
            return told
        largest = max(wrong, key=lambda name: live.before[name].numel())
        for change in dict.fromkeys(other.wrong for other in self._others(largest)):
            if all(self._is_moved_by(change, name) for name in (largest, *wrong)):
                proved = f"the reference's rule that {change} gives the port's steps"
                return replace(told, wrong=f"{own.optimizer} {change}", proved=proved, evidence=Evidence.STEP_PROOF)
        return told

    def _is_moved_by(self, change: str, name: str) -> bool:
        """Tell whether the reference's rule with a change gives the steps of a parameter."""
        own = [self.actual.steps[number] for number in self._steps_of(name)[0]]
        return any(is_given_by(each, own, name) for each in self._others(name) if each.wrong == change)

    def _others(self, name: str) -> Iterator[Any]:
        steps, settings = self._steps_of(name)
        rule = rule_of(self.expected.steps[steps[0]].optimizer, settings[0]) if settings else None
        if rule is not None:
            yield from others(rule, [float(each["lr"]) for each in settings])


def _class_of(step: OptimizerStep) -> type | None:
    """Return the class of an optimiser: the one that ran, or that of its name; what a golden names is not imported."""
    from torch.optim import Optimizer

    found = step.kind or getattr(sys.modules.get(step.module), step.optimizer, None)
    return found if isinstance(found, type) and issubclass(found, Optimizer) else None


def _left_over(step: OptimizerStep) -> ParameterRows | None:
    """Return what an optimiser saw beside what the backwards of its step have added; None where that is not known."""
    if not step.factor or not step.batches:
        return None
    added = [batch.added for batch in step.batches]
    return ParameterRows.together([step.given, *added], [1 / step.factor, *(-1.0 for _ in added)])


def _greatest(rows: ParameterRows) -> float:
    """Return the norm of the greatest row of all."""
    return max((float(ways[0].numbers[:, -1].max(initial=0.0)) for ways in rows.ways.values() if ways), default=0.0)


def _otherwise(found: Mapping[str, tuple[Any, Any]], allowed: float, greatest: float) -> list[str]:
    """Return the names of what is otherwise than the reference's."""
    return [name for name, (one, other) in found.items() if row_error(one, other, greatest) > allowed]


def _how(own: Any, other: Any, verb: str) -> str:  # noqa: ANN401 - arrays
    """Say how something moves that moves otherwise than the reference's."""
    mine, there = own[:, :PROJECTIONS].ravel(), other[:, :PROJECTIONS].ravel()
    if not mine.any():
        return f"{verb.partition(' ')[0]} not {verb.partition(' ')[2]}"
    if (k := _multiple(mine, there, 1e-2)) is not None:
        return f"moves {k:.4g} times as far as the reference's"
    return f"{verb} otherwise than the reference's"


def _multiple(own: Any, other: Any, allowed: float) -> float | None:  # noqa: ANN401 - arrays
    square = float(other @ other)
    if not square:
        return None
    k = float(own @ other) / square
    apart = float(np.linalg.norm(own - k * other))
    return k if apart <= allowed * float(np.linalg.norm(own)) and abs(k - 1) > allowed else None


def _accumulated(k: float) -> str:
    whole = round(k)
    if whole > 1 and abs(k - whole) < SAME * whole:
        return f"the loss is not divided by {whole}, or is summed"
    if k and abs(1 / k - round(1 / k)) < SAME / k:
        return f"the loss is divided by {round(1 / k)} too often, or averaged twice"
    return "the loss is averaged over another count"


def _is_same_number(one: Any, other: Any) -> bool:  # noqa: ANN401 - hyperparameters
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)) and len(one) == len(other):
        return all(map(_is_same_number, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return abs(one - other) <= 1e-6 * max(abs(one), abs(other))
    return bool(one == other)


def _shown(value: Any) -> str:  # noqa: ANN401
    return f"{value:g}" if isinstance(value, float) else str(value)


def _report(steps: _Steps, fault: StepFault) -> ParityReport:
    side = BackwardPair(steps.expected.backward, steps.actual.backward).sides[1]
    call, name = side.root, fault.parameters[0] if len(fault.parameters) == 1 else ""
    if name:
        path = holder(name)
        call = next((each for each in side.table.calls if each.path == path), call)
    source = fault.source or (lines_of(fault.lines[0]) if fault.lines else call.source)
    claim = Claim(
        call.path,
        "step",
        fault.evidence,
        call.class_name,
        fault.why,
        fault.wrong,
        source,
        lines_of(fault.reference[0]) if fault.reference else None,
        fault.proved,
    )
    culprit = settled(claim)
    count = len(steps.pairs.paired)
    return ParityReport(
        culprit, [], [], count, subject=_SUBJECT, coverage=Coverage(count, count, root=True), by_values=True
    )

"""Why an optimiser sees other gradients than the reference's: what each backward adds, and what is made of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.steps.gradients import SAME
from pytest_tfdebug.steps.rows import PROJECTIONS, ParameterRows
from pytest_tfdebug.steps.training_pair import CLIPPED, DRIFTED, allowed_in, multiple, otherwise

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_tfdebug.records import SourceRange
    from pytest_tfdebug.steps.training import OptimizerStep
    from pytest_tfdebug.steps.training_pair import TrainingPair
    from pytest_tfdebug.values import Line

#: What is said of a gradient that is another one, where its backward is to say more.
GRADIENT = "gives another gradient"


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
            if self.own is None or self.allowed > CLIPPED:
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


class GradientFaults:
    """The looks at the gradients of two trainings."""

    def __init__(self, pair: TrainingPair) -> None:
        self._pair = pair

    def look(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """What the optimiser sees; where that is right, nobody asks how it came about."""
        found = self._pair.gradients(number, own.given, theirs.given)
        wrong = otherwise(found, allowed_in(number), _greatest_of(found))
        is_hidden = not wrong and not own.is_rescaled and not theirs.is_rescaled and self._scale(number, theirs, own)
        if not wrong and not is_hidden:  # torch's clipping undoes no scale, and may hide one
            return None
        looks = (self._scaled, self._batches, self._seen, self._kept)
        if own.is_rescaled and self._scale(number, theirs, own) is not None:  # what follows may undo what a batch adds
            looks = (self._scaled, self._seen, self._kept, self._batches)
        causes = (look(number, theirs, own) for look in looks)
        known = next((fault for fault in causes if fault is not None), None)
        return known or self._added(f"the optimiser in step {number}", number, (theirs.given, own.given), own.lines)

    def _scale(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> float | None:
        """Return k where the backwards of a step leave k times the reference's gradients, all alike."""
        sums = _sums_of(theirs, own)
        return None if sums is None else self._times(number, sums)

    def _batches(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """What each backward adds, and whether it adds to what is there."""
        if len(theirs.batches) != len(own.batches):
            return self._accumulated(number, theirs, own)
        for place, (one, other) in enumerate(zip(theirs.batches, own.batches, strict=True), 1):
            if one.is_fresh != other.is_fresh:
                between = "zeroes the gradients between two batches of a step"
                wrong = "does not zero the gradients" if one.is_fresh else between
                held = "gradients" if one.is_fresh else "none"
                why = f"Before batch {place} of step {number} the parameters have {held}."
                lines = other.lines if one.is_fresh else other.touched or other.lines
                return StepFault(wrong, why, lines, reference=one.lines)
            fault = self._added(f"batch {place} of step {number}", number, (one.added, other.added), other.lines)
            if fault is not None:
                return replace(fault, reference=one.lines)
        return None

    def _accumulated(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Return what is wrong with a step of another number of backwards: their sum, or that they are not summed."""
        sums = _sums_of(theirs, own)
        which = f"all batches of step {number}"
        fault = None if sums is None else self._added(which, number, sums, own.lines)
        is_zeroed = any(batch.is_fresh for step in (theirs, own) for batch in step.batches[1:])
        if fault is None and not is_zeroed and sums is not None:
            return None
        counts = counted(len(own.batches), "backward"), counted(len(theirs.batches), "backward")
        wrong = f"makes {counts[0]} before step {number}; the reference makes {counts[1]}"
        if fault is not None and fault.wrong != GRADIENT:
            return StepFault(fault.wrong, fault.why, own.lines, reference=theirs.lines)
        why, lines = "" if fault is None else fault.why, own.batches[0].lines if own.batches else own.lines
        return StepFault(wrong, why, lines, reference=theirs.lines, evidence=Evidence.BACKWARDS)

    def _added(
        self, which: str, number: int, rows: tuple[ParameterRows, ParameterRows], lines: tuple[Line, ...]
    ) -> StepFault | None:
        """Return what is wrong with what a batch adds to the gradients."""
        found = self._pair.gradients(number, rows[1], rows[0])
        wrong = otherwise(found, allowed_in(number), _greatest_of(found))
        if not wrong:
            return None
        k = self._times(number, rows)
        if k is not None and len(wrong) * 2 > len(found):
            why = f"The gradient of {which} is {k:.4g} times the reference's, of all parameters alike."
            return StepFault(f"gives {k:.4g} times the gradient: {_accumulated(k)}", why, lines)
        why = f"The gradient of {which} is another for {counted(len(wrong), 'parameter')}: {listed(wrong, 3)}."
        evidence = Evidence.TRAINING if number == 1 else Evidence.LATER_STEP
        return StepFault(GRADIENT, why, lines, tuple(wrong), evidence=evidence)

    def _times(self, number: int, rows: tuple[ParameterRows, ParameterRows]) -> float | None:
        """Return k where the gradients of the port are k times the reference's, all alike."""
        found = self._pair.gradients(number, rows[1], rows[0]).values()
        own, other = (
            np.concatenate([np.zeros(0), *(each[at][:, :PROJECTIONS].ravel() for each in found)]) for at in (0, 1)
        )
        return multiple(own, other, allowed_in(number))

    def _scaled(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """A loss that is scaled, and gradients that are scaled back otherwise than by that."""
        if own.factor is None or theirs.factor is None or not own.is_rescaled:
            return None
        k = self._scale(number, theirs, own)
        if k is None or abs(own.factor - theirs.factor) <= DRIFTED * theirs.factor:
            return None
        why = (
            f"The backwards leave {k:.6g} times the reference's gradients, of which the optimiser sees "
            f"{own.factor:.4g} times; the reference's sees {theirs.factor:.4g} times its own."
        )
        lines = next(reversed(own.touched.values()), own.lines)
        wrong = "clips or scales the gradients otherwise"
        return StepFault(wrong, why, lines, reference=theirs.lines, evidence=Evidence.LATER_STEP)

    def _seen(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """What the optimiser sees of the gradients that the backwards left: clipped, scaled, noised."""
        allowed, unseen = DRIFTED if number > 1 else CLIPPED, self._pair.unseen(number)
        each = {name: k for name, k in own.factors.items() if name not in unseen}
        same = next(iter(each.values()), None)
        is_one = same is not None and all(k is not None and abs(k - same) <= allowed * same for k in each.values())
        told = _SeenGradients(same if is_one else own.factor, each, theirs.factor, allowed).told()
        lines = next(reversed(own.touched.values()), own.lines)
        return None if told is None else StepFault(*told, lines, reference=theirs.lines)

    def _kept(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Gradients of earlier backwards that an optimiser sees beside those of its own: they were not zeroed."""
        kept = [_left_over(step) for step in (own, theirs)]
        if kept[0] is None or kept[1] is None:
            return None
        both = self._pair.gradients(number, kept[0], kept[1])
        found = {name: sides for name, sides in both.items() if name in own.settings}
        wrong = otherwise(found, DRIFTED, max(own.given.sizes().values(), default=0.0))
        if not wrong:
            return None
        sizes = [sum(float(found[name][side][:, -1].sum()) for name in wrong) for side in (0, 1)]
        has_more = sizes[0] > sizes[1]
        said = "does not zero the gradients" if has_more else "zeroes the gradients"
        told = f"{said} of {counted(len(wrong), 'parameter')} before step {number}"
        seen = "more than" if has_more else "not all that"
        why = f"{own.optimizer} sees {seen} the backwards of this step have added: {listed(wrong, 3)}."
        return StepFault(told, why, own.lines, tuple(wrong), reference=theirs.lines)


def _left_over(step: OptimizerStep) -> ParameterRows | None:
    """Return what an optimiser saw beside what the backwards of its step have added; None where that is not known."""
    if not step.factor or not step.batches:
        return None
    added = [batch.added for batch in step.batches]
    return ParameterRows.together([step.given, *added], [1 / step.factor, *(-1.0 for _ in added)])


def _sums_of(theirs: OptimizerStep, own: OptimizerStep) -> tuple[ParameterRows, ParameterRows] | None:
    """Return what all backwards of a step add to the gradients of both sides; None where one of them makes none."""
    if not theirs.batches or not own.batches:
        return None
    one, other = (ParameterRows.together([each.added for each in step.batches]) for step in (theirs, own))
    return one, other


def _greatest_of(found: Mapping[str, tuple[Any, Any]]) -> float:
    return max((float(there[:, -1].max(initial=0.0)) for _, there in found.values()), default=0.0)


def _accumulated(k: float) -> str:
    whole = round(k)
    if whole > 1 and abs(k - whole) < SAME * whole:
        return f"the loss is not divided by {whole}, or is summed"
    if k and abs(1 / k - round(1 / k)) < SAME / k:
        return f"the loss is divided by {round(1 / k)} too often, or averaged twice"
    return "the loss is averaged over another count"

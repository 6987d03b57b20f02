"""What a training does otherwise: the looks at each step, in the order in which a step is made."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.steps.gradients import SAME
from pytest_tfdebug.steps.rows import PROJECTIONS, ParameterRows
from pytest_tfdebug.steps.rules import is_given_by, others, rule_of
from pytest_tfdebug.steps.training_pair import CLIPPED, DRIFTED, allowed_in, greatest, multiple, otherwise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_tfdebug.steps.training import OptimizerStep
    from pytest_tfdebug.steps.training_pair import TrainingPair
    from pytest_tfdebug.values import Line

    _Look = Callable[[int, OptimizerStep, OptimizerStep], "StepFault | None"]

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


class StepFaults:
    """The looks at the steps of two trainings."""

    def __init__(self, pair: TrainingPair) -> None:
        self._pair = pair
        self._expected, self._actual = pair.expected, pair.actual

    def first(self) -> StepFault | None:
        """Return the first thing that is done otherwise."""
        usual: tuple[_Look, ...] = (
            self._stale,
            self._gradients,
            self._held,
            self._settings,
            self._outside,
            self._buffers,
            self._moves,
            self._moved_alone,
        )
        later = (self._outside, self._buffers, *usual)  # what happened before its forward comes first
        for number, (theirs, own) in enumerate(zip(self._expected.steps, self._actual.steps, strict=False), 1):
            is_by_hand = not own.holders or not theirs.holders
            for look in (self._by_hand,) if is_by_hand else usual if number == 1 else later:
                fault = look(number, theirs, own)
                if fault is not None:
                    return fault
        if len(self._expected.steps) == len(self._actual.steps):
            return self._ended()
        counts = counted(len(self._actual.steps), "step"), counted(len(self._expected.steps), "step")
        return StepFault(f"makes {counts[0]}; the reference makes {counts[1]}", "", self._actual.steps[-1].lines)

    # --- the gradients that the optimiser sees, and why they are others

    def _gradients(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
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
        sums = [ParameterRows.together([each.added for each in step.batches]) for step in (theirs, own) if step.batches]
        return self._times(number, (sums[0], sums[1])) if len(sums) > 1 else None

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
        sums = [ParameterRows.together([each.added for each in step.batches]) for step in (theirs, own) if step.batches]
        which = f"all batches of step {number}"
        fault = self._added(which, number, (sums[0], sums[1]), own.lines) if len(sums) > 1 else None
        is_zeroed = any(batch.is_fresh for step in (theirs, own) for batch in step.batches[1:])
        if fault is None and not is_zeroed and len(sums) > 1:
            return None
        counts = counted(len(own.batches), "backward"), counted(len(theirs.batches), "backward")
        wrong = f"makes {counts[0]} before step {number}; the reference makes {counts[1]}"
        if fault is not None and fault.wrong != GRADIENT:
            wrong = fault.wrong
        return StepFault(wrong, "" if fault is None else fault.why, own.lines, reference=theirs.lines)

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

    # --- what the optimisers hold

    def _stale(self, _number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Parameters of the optimiser in whose place the model has others by now: these are not trained."""
        if not own.stale or theirs.stale:
            return None
        wrong = f"{own.holder(own.stale[0]).name} has parameters that the model has replaced: {listed(own.stale, 3)}"
        why = "The model has another parameter of that name: the optimiser was made before it was replaced."
        return StepFault(wrong, why, _made_at(own, own.stale), own.stale)

    def _held(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Parameters that the optimiser lacks, or has twice."""
        if own.twice and not theirs.twice:
            wrong = f"has {counted(len(own.twice), 'parameter')} twice: {listed(own.twice, 3)}"
            return StepFault(f"{own.optimizer} {wrong}", "", _made_at(own, own.twice), own.twice)
        everywhere = {name for step in self._actual.steps for name in step.settings}
        theirs_everywhere = {name for step in self._expected.steps for name in step.settings}
        held = {
            name: any(other in theirs_everywhere for other in pair.others)
            for name, pair in self._pair.pairs.paired.items()
        }
        lacking = tuple(name for name, is_held in held.items() if is_held and name not in everywhere)
        extra = tuple(name for name, is_held in held.items() if not is_held and name in everywhere)
        if number == 1 and (lacking or extra):
            names, verb = (lacking, "does not have") if lacking else (extra, "has, and the reference's has not,")
            wrong = f"{own.optimizer} {verb} {listed(names, 3)}"
            return StepFault(wrong, "The reference's optimiser has them." * bool(lacking), _made_at(own, names), names)
        return None

    def _settings(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Hyperparameters that differ, where both sides have them, and where nothing makes up for that."""
        differing: dict[str, dict[str, tuple[Any, Any]]] = {}
        for name, settings in own.settings.items():
            there, holders = (
                self._pair.settings_of(name, theirs),
                (own.holder(name), self._pair.holder_of(name, theirs)),
            )
            if there is None or not _is_of_one_kind(*holders) or self._is_made_up_for(number, name):
                continue
            for key in settings.keys() & there.keys():
                if not _is_same_number(settings[key], there[key]):
                    differing.setdefault(key, {})[name] = settings[key], there[key]
        if not differing:
            return None
        key = min(differing, key=lambda each: (each != "lr", each))
        mine, there = next(iter(differing[key].values()))
        names, holder = tuple(differing[key]), own.holder(next(iter(differing[key])))
        which = "" if len(names) == len(own.settings) else f" for {listed(names, 2)}"
        why = f"In step {number}, {counted(len(names), 'parameter')}: {listed(names, 3)}."
        if key == "lr":
            why = f"{why} {self._lr_of(mine, number)}".rstrip()
        wrong = f"{holder.name} has {key} {_shown(mine)}{which}; the reference has {_shown(there)}"
        lines = holder.lines if key in holder.changed else _made_at(own, names)
        reference = self._pair.holder_of(names[0], theirs)
        return StepFault(wrong, why, lines, names, reference=(reference and reference.made_at) or theirs.lines)

    def _is_made_up_for(self, number: int, name: str) -> bool:
        """Tell whether a parameter comes where it should though its own rule is not the reference's."""
        return self._pair.is_other_step(number, name) and self._pair.arrives(number, name)

    def _lr_of(self, lr: float, number: int) -> str:
        lrs = [next(iter(step.settings.values()), {}).get("lr") for step in self._expected.steps]
        if len(set(lrs)) > 1 and lr in lrs and lrs.index(lr) + 1 != number:
            return f"It is the reference's lr of step {lrs.index(lr) + 1}: the scheduler steps at another time."
        return ""

    # --- where parameters and buffers come to

    def _buffers(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Running statistics, and other buffers."""
        return self._flowed(own.buffers, theirs.buffers, CLIPPED if number == 1 else DRIFTED)

    def _flowed(self, own: ParameterRows, theirs: ParameterRows, allowed: float) -> StepFault | None:
        """Return which buffers move otherwise."""
        buffers = self._pair.buffers
        found = {name: buffers.beside(name, own, theirs) for name in buffers.paired}
        wrong = otherwise(found, allowed, greatest(theirs))
        if not wrong:
            return None
        why = f"{counted(len(wrong), 'buffer')}: {listed(wrong, 3)}."
        return StepFault(f"{wrong[0]} {_how(*found[wrong[0]], 'is updated')}", why, (), tuple(wrong))

    def _by_hand(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """A step that no optimiser makes on one of the sides: nothing else is known for sure than where it leads."""
        wrong = self._pair.gone_otherwise(number, self._pair.pairs.paired)
        if not wrong:
            return None
        return self._gradients(number, theirs, own) or self._moves(number, theirs, own)

    def _moves(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Parameters that the reference's rule moves otherwise, or that come elsewhere where no rule is known."""
        known = self._pair.errors
        wrong = [name for name in known if self._pair.is_other_step(number, name)]
        wrong = [name for name in wrong if not self._pair.arrives(number, name)]
        if wrong:
            return self._rule_fault(wrong, theirs, own)
        wrong = self._pair.gone_otherwise(number, (name for name in self._pair.pairs.paired if name not in known))
        if not wrong:
            return None
        is_last = number == len(self._actual.steps)
        when = f"after step {number}" if is_last else f"before step {number + 1}"
        is_of_step = not own.holders or wrong[0] in own.holders
        by_whom = "" if is_of_step else ", outside of the optimiser's steps"
        why = f"In step {number}, {counted(len(wrong), 'parameter')}{by_whom}: {listed(wrong, 3)}."
        told = _how(*self._pair.moves(number)[wrong[0]], "is moved")
        told = f"{wrong[0]} {told} {'after this backward' if is_of_step else when}"
        lines, other = own.written.get(wrong[0], own.lines), self._pair.pairs.paired[wrong[0]].others[0]
        reference = theirs.written.get(other, theirs.lines)
        return StepFault(told, why, lines, tuple(wrong), reference=reference, evidence=Evidence.LATER_STEP)

    def _outside(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Parameters that move otherwise between two steps, and come elsewhere: weights that are cut off, say."""
        if own.outside is None or theirs.outside is None:
            return None
        numbers = (number - 1, number) if number > 1 else (number,)
        return self._moved_outside(own.outside, theirs.outside, f"before step {number}", numbers)

    def _moved_outside(
        self, own: ParameterRows, theirs: ParameterRows, when: str, numbers: Sequence[int]
    ) -> StepFault | None:
        """Return which parameters of an optimiser are moved otherwise where none steps, in some steps."""
        steps = [self._actual.steps[number - 1] for number in numbers]
        held = (name for name in self._pair.pairs.paired if any(name in step.holders for step in steps))
        found = {name: self._pair.pairs.beside(name, own, theirs) for name in held}
        wrong = otherwise(found, DRIFTED, self._pair.greatest_move(1))
        wrong = [name for name in wrong if not all(self._pair.arrives(number, name) for number in numbers)]
        if not wrong:
            return None
        why = f"{counted(len(wrong), 'parameter')}, outside of the optimiser's steps: {listed(wrong, 3)}."
        told = f"{wrong[0]} {_how(*found[wrong[0]], 'is moved')} {when}"
        written = next((step.written[wrong[0]] for step in reversed(steps) if wrong[0] in step.written), None)
        lines = written or self._actual.steps[0].lines
        return StepFault(told, why, lines, tuple(wrong), evidence=Evidence.LATER_STEP)

    def _ended(self) -> StepFault | None:
        """Buffers, and what moved parameters after the last step, once the run is over."""
        own, theirs, count = self._actual.end, self._expected.end, len(self._actual.steps)
        if own is None or theirs is None:
            return None
        fault = self._moved_outside(own.outside, theirs.outside, f"after step {count}", (count,))
        return fault or self._flowed(own.flowed, theirs.flowed, DRIFTED)

    def _moved_alone(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Rows without a gradient that the port's optimiser moves, and the reference's leaves as they are."""
        alone = {}
        for name, moved in self._pair.moves(number).items():
            given, _ = self._pair.pairs.beside(name, own.given, theirs.given)
            has_gradient, is_moved, should_be = (rows[:, -1].astype(bool) for rows in (given, *moved))
            if name in own.settings:
                alone[name] = ~has_gradient & is_moved & ~should_be
        wrong = sorted(name for name, rows in alone.items() if rows.any())
        if not wrong:
            return None
        rows = "" if all(alone[name].all() for name in wrong) else "rows of "
        told = f"{own.holder(wrong[0]).name} moves {rows}{listed(wrong, 2)}, which the reference's leaves as they are"
        why = (
            f"In step {number} these get no gradient. Of one of zeros an optimiser decays a weight all the same, and "
            "goes on with its momentum: set it to None, or requires_grad to False."
        )
        return StepFault(told, why, own.lines, tuple(wrong), reference=theirs.lines)

    # --- the rule

    def _rule_fault(self, wrong: list[str], theirs: OptimizerStep, own: OptimizerStep) -> StepFault:
        largest = max(wrong, key=lambda name: own.live.before[name].numel() if own.live else 0)
        holder, reference = own.holder(largest), self._pair.holder_of(largest, theirs)
        source = SourceRange(*holder.rule) if holder.rule is not None else None
        why = (
            "On the port's own gradients the reference's rule gives other steps for "
            f"{counted(len(wrong), 'parameter')}: {listed(wrong, 3)}."
        )
        where = () if source is not None else own.written.get(largest) or _made_at(own, [largest])
        said = f"{holder.name} makes other steps than {reference.name if reference else theirs.optimizer}"
        told = StepFault(said, why, where, tuple(wrong), source, evidence=Evidence.LATER_STEP)
        for change in dict.fromkeys(other.wrong for other in self._others(largest)):
            if all(self._is_moved_by(change, name) for name in (largest, *wrong)):
                proved = f"the reference's rule that {change} gives the port's steps"
                return replace(told, wrong=f"{holder.name} {change}", proved=proved, evidence=Evidence.STEP_PROOF)
        return told

    def _is_moved_by(self, change: str, name: str) -> bool:
        """Tell whether the reference's rule with a change gives the steps of a parameter."""
        own = [self._actual.steps[number] for number in self._pair.steps_of(name)[0]]
        return any(is_given_by(each, own, name) for each in self._others(name) if each.wrong == change)

    def _others(self, name: str) -> Iterator[Any]:
        steps, settings = self._pair.steps_of(name)
        holder = self._pair.holder_of(name, self._expected.steps[steps[0]]) if steps else None
        rule = rule_of(holder.name, settings[0]) if holder is not None else None
        if rule is not None:
            yield from others(rule, [float(each["lr"]) for each in settings])


def _made_at(step: OptimizerStep, names: Sequence[str]) -> tuple[Line, ...]:
    """Return where the optimiser of the first of some parameters was made, or else where it steps."""
    holder = step.holder(names[0])
    return holder.made_at or holder.lines


def _is_of_one_kind(own: Any, theirs: Any) -> bool:  # noqa: ANN401 - holders
    return theirs is not None and (own.name == theirs.name or (own.is_torch and theirs.is_torch))


def _left_over(step: OptimizerStep) -> ParameterRows | None:
    """Return what an optimiser saw beside what the backwards of its step have added; None where that is not known."""
    if not step.factor or not step.batches:
        return None
    added = [batch.added for batch in step.batches]
    return ParameterRows.together([step.given, *added], [1 / step.factor, *(-1.0 for _ in added)])


def _greatest_of(found: Mapping[str, tuple[Any, Any]]) -> float:
    return max((float(there[:, -1].max(initial=0.0)) for _, there in found.values()), default=0.0)


def _how(own: Any, other: Any, verb: str) -> str:  # noqa: ANN401 - arrays
    """Say how something moves that moves otherwise than the reference's."""
    mine, there = own[:, :PROJECTIONS].ravel(), other[:, :PROJECTIONS].ravel()
    if not mine.any():
        return f"{verb.partition(' ')[0]} not {verb.partition(' ')[2]}"
    if (k := multiple(mine, there, 1e-2)) is not None:
        return f"moves {k:.4g} times as far as the reference's"
    return f"{verb} otherwise than the reference's"


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

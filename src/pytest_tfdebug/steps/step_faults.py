"""What a training does otherwise: the looks at each step, in the order in which a step is made."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.steps.gradient_faults import GradientFaults, StepFault
from pytest_tfdebug.steps.rows import PROJECTIONS, ParameterRows
from pytest_tfdebug.steps.rules import is_given_by, others, rule_of
from pytest_tfdebug.steps.training_pair import CLIPPED, DRIFTED, greatest, multiple, otherwise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_tfdebug.steps.training import OptimizerStep
    from pytest_tfdebug.steps.training_pair import TrainingPair
    from pytest_tfdebug.values import Line

    _Look = Callable[[int, OptimizerStep, OptimizerStep], "StepFault | None"]


#: Hyperparameters that do something only where another one is not 0.
_ONLY_WITH = {"decoupled_weight_decay": "weight_decay", "nesterov": "momentum", "dampening": "momentum"}


class StepFaults:
    """The looks at the steps of two trainings."""

    def __init__(self, pair: TrainingPair) -> None:
        self._pair, self._gradients = pair, GradientFaults(pair).look
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
        numbers = range(1, min(len(self._actual.steps), len(self._expected.steps)) + 1)
        held = {  # what comes to where the reference's comes may be moved by whom it likes
            name: is_held
            for name, is_held in held.items()
            if not all(self._pair.arrives(each, name) for each in numbers)
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
        made_up = set[tuple[str, ...]]()  # what others with these settings make up for: so may those that rest
        for name, settings in own.settings.items():
            there = self._pair.settings_of(name, theirs)
            if there is None or not _is_of_one_kind(own.holder(name), self._pair.holder_of(name, theirs)):
                continue
            for key in settings.keys() & there.keys():
                is_used = key not in _ONLY_WITH or any(side.get(_ONLY_WITH[key]) for side in (settings, there))
                if is_used and not _is_same_number(settings[key], there[key]):
                    differing.setdefault(key, {})[name] = settings[key], there[key]
                    if self._is_made_up_for(number, name):
                        made_up.add((key, *map(repr, (settings[key], there[key]))))
        for key, found in [*differing.items()]:
            differing[key] = {name: both for name, both in found.items() if (key, *map(repr, both)) not in made_up}
        differing = {key: found for key, found in differing.items() if found}
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
        if not wrong and not self._other_steps(number):
            return None
        return self._gradients(number, theirs, own) or self._moves(number, theirs, own)

    def _moves(self, number: int, theirs: OptimizerStep, own: OptimizerStep) -> StepFault | None:
        """Parameters that the reference's rule moves otherwise, or that come elsewhere where no rule is known."""
        known, wrong = self._pair.errors, self._other_steps(number)
        if wrong:
            return self._rule_fault(wrong, theirs, own)
        wrong = self._pair.gone_otherwise(
            number, (name for name in self._pair.pairs.paired if number not in known.get(name, {}))
        )
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

    def _other_steps(self, number: int) -> list[str]:
        """Return the parameters that the reference's rule moves otherwise, and that come elsewhere."""
        found = (name for name in self._pair.errors if self._pair.is_other_step(number, name))
        return [name for name in found if not self._pair.arrives(number, name)]

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
        rule = rule_of(holder.name, settings[0]) if holder is not None and holder.is_torch else None
        if rule is not None:
            yield from others(rule, [float(each["lr"]) for each in settings])


def _made_at(step: OptimizerStep, names: Sequence[str]) -> tuple[Line, ...]:
    """Return where the optimiser of the first of some parameters was made, or else where it steps."""
    holder = step.holder(names[0])
    return holder.made_at or holder.lines


def _is_of_one_kind(own: Any, theirs: Any) -> bool:  # noqa: ANN401 - holders
    return theirs is not None and (own.name == theirs.name or (own.is_torch and theirs.is_torch))


def _how(own: Any, other: Any, verb: str) -> str:  # noqa: ANN401 - arrays
    """Say how something moves that moves otherwise than the reference's."""
    mine, there = own[:, :PROJECTIONS].ravel(), other[:, :PROJECTIONS].ravel()
    if not mine.any():
        return f"{verb.partition(' ')[0]} not {verb.partition(' ')[2]}"
    if (k := multiple(mine, there, 1e-2)) is not None:
        return f"moves {k:.4g} times as far as the reference's"
    return f"{verb} otherwise than the reference's"


def _is_same_number(one: Any, other: Any) -> bool:  # noqa: ANN401 - hyperparameters
    if isinstance(one, (tuple, list)) and isinstance(other, (tuple, list)) and len(one) == len(other):
        return all(map(_is_same_number, one, other))
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return abs(one - other) <= 1e-6 * max(abs(one), abs(other))
    return bool(one == other)


def _shown(value: Any) -> str:  # noqa: ANN401
    return f"{value:g}" if isinstance(value, float) else str(value)

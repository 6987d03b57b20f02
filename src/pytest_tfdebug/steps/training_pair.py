"""Two trainings side by side: what their optimisers saw, how far parameters came, and the reference's rule made again.

What counts is what the optimiser sees at its step, and where the parameters are when the next one begins. What lies
between (a scale of the loss, the number of backwards, a hook, who decays a weight) is a cause, told where these differ.
"""

from __future__ import annotations

import logging
import math
import sys
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_tfdebug.steps.compare import row_error
from pytest_tfdebug.steps.gradients import SAME
from pytest_tfdebug.steps.rows import ParameterPairs, ParameterRows
from pytest_tfdebug.steps.rules import SAME_STEP, replayed, step_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pytest_tfdebug.steps.gradients import Floats
    from pytest_tfdebug.steps.training import Holder, OptimizerStep, Training

    #: What both sides hold for some parameters, the port's first.
    Sides = dict[str, tuple[Floats, Floats]]

logger = logging.getLogger(__name__)

#: After the first step weights have drifted by their rounding, which Adam makes whole steps of: only more than this
#: share of a gradient tells something then.
DRIFTED = 0.05
#: Share by which what is made of a gradient in the first step may differ: its clipping, the way of a parameter.
CLIPPED = 1e-3
#: Share of the greatest gradient below which one is rounding: an Adam makes whole steps of it.
_NO_GRADIENT = 1e-5


class TrainingPair:
    """Two trainings side by side."""

    def __init__(self, expected: Training, actual: Training) -> None:
        self.expected, self.actual = expected, actual
        first, own = expected.steps[0], actual.steps[0]
        both = [(mine.moved, theirs.moved) for theirs, mine in zip(expected.steps, actual.steps, strict=False)]
        moved = [(mine, theirs) for mine, theirs in both if mine is not None and theirs is not None]
        self.pairs = ParameterPairs(own.given, first.given, moved)
        self.buffers = ParameterPairs(own.buffers, first.buffers)
        self._unseen: dict[int, frozenset[str]] = {}
        self._moves: dict[int, Sides] = {}

    @property
    def is_accumulated(self) -> bool:
        """Whether a step is made of another number of backwards than the reference's."""
        both = zip(self.expected.steps, self.actual.steps, strict=False)
        return any(len(theirs.batches) != len(own.batches) for theirs, own in both)

    @property
    def silent(self) -> frozenset[str]:
        """The parameters whose gradient is seen in no step."""
        numbers = range(1, min(len(self.expected.steps), len(self.actual.steps)) + 1)
        return frozenset.intersection(*(self.unseen(number) for number in numbers))

    def unseen(self, number: int) -> frozenset[str]:
        """Return the parameters whose gradient no optimiser sees in a step: of another one, frozen, or taken away."""
        if number not in self._unseen:
            own, theirs = (side.steps[number - 1] for side in (self.actual, self.expected))
            both = {name: self.pairs.beside(name, own.given, theirs.given) for name in self.pairs.paired}
            silent = (name for name, sides in both.items() if not any(each[:, -1].any() for each in sides))
            is_by_hand = not own.holders or not theirs.holders
            others = (name for name in both if name not in own.holders and self.holder_of(name, theirs) is None)
            self._unseen[number] = frozenset((*silent, *(() if is_by_hand else others)))
        return self._unseen[number]

    # --- what the optimiser sees

    def gradients(self, number: int, own: ParameterRows, theirs: ParameterRows) -> Sides:
        """Return what both sides hold of gradients in a step, of the rows whose gradients count."""
        names = [name for name in self.pairs.paired if name not in self.unseen(number)]
        sides = {name: self.pairs.beside(name, own, theirs) for name in names}
        counts = {name: self._counts(name, number) for name in names}
        return {name: (mine[counts[name]], there[counts[name]]) for name, (mine, there) in sides.items()}

    def _counts(self, name: str, number: int) -> Any:  # noqa: ANN401 - an array of bools
        """Tell of which rows of a parameter the gradient counts in a step.

        One that the reference keeps where it is, though its optimiser sees a gradient, shall not move: whatever the
        gradient is. So is one that rests on both sides.
        """
        own_rests, rests = self._rests[name]
        _, given = self.pairs.beside(name, self.actual.steps[0].given, self.expected.steps[number - 1].given)
        return ~(rests & (own_rests | given[:, -1].astype(bool)))

    @cached_property
    def _rests(self) -> dict[str, tuple[Any, Any]]:
        """Which rows of each parameter no step moves, on the port's side and on the reference's."""
        sides = {name: self.pairs.beside(name, *self._all_moved) for name in self.pairs.paired}
        return {name: (~own[:, -1].astype(bool), ~theirs[:, -1].astype(bool)) for name, (own, theirs) in sides.items()}

    @cached_property
    def _all_moved(self) -> tuple[ParameterRows, ParameterRows]:
        """How far all steps have moved the rows of both sides; where nothing has moved, the gradients."""
        sides = [[step.moved for step in side.steps if step.moved is not None] for side in (self.actual, self.expected)]
        found = [ParameterRows.together(moved) if moved else None for moved in sides]
        own, theirs = found
        if own is None or theirs is None or not any(theirs.sizes().values()):
            return self.actual.steps[0].given, self.expected.steps[0].given
        return own, theirs

    # --- where the parameters come to

    def moves(self, number: int) -> Sides:
        """Return by how much both sides moved parameters in a step, from its first backward to the next one's."""
        own, theirs = (side.steps[number - 1].moved for side in (self.actual, self.expected))
        if own is None or theirs is None:
            return {}
        if number not in self._moves:
            self._moves[number] = {name: self.pairs.beside(name, own, theirs) for name in self.pairs.paired}
        return self._moves[number]

    def gone_otherwise(self, number: int, names: Iterable[str]) -> list[str]:
        """Return which parameters come elsewhere in a step than the reference's, but for rounding."""
        found, telling = self.moves(number), self._telling(number)
        told = {name: found[name] for name in names if name in found and name in telling}
        return otherwise(told, CLIPPED if number == 1 else DRIFTED, self.greatest_move(number))

    def arrives(self, number: int, name: str) -> bool:
        """Tell whether a parameter comes in a step to where the reference's comes, whoever moves it."""
        found = self.moves(number)
        return name in found and row_error(*found[name], self.greatest_move(number)) <= SAME_STEP

    def greatest_move(self, number: int) -> float:
        """Return how far the reference's most moved row comes in a step."""
        moved = self.expected.steps[number - 1].moved
        return 0.0 if moved is None else greatest(moved)

    def _telling(self, number: int) -> set[str]:
        """Return the parameters that are moved by more than rounding: those with a gradient, and copies of these."""
        given = self.actual.steps[number - 1].given
        sizes = given.sizes()
        least = _NO_GRADIENT * max(filter(math.isfinite, sizes.values()), default=0.0)
        noisy = {_first_keys(given, name) for name, size in sizes.items() if 0 < size <= least}
        return {name for name, size in sizes.items() if not size <= least or _first_keys(given, name) not in noisy}

    # --- the rule

    @cached_property
    def errors(self) -> dict[str, dict[int, float]]:
        """How far each step of a parameter is from the reference's rule on the port's own gradients, by its number."""
        found: dict[str, dict[int, float]] = {}
        for name in self.pairs.paired:
            steps, settings = self.steps_of(name)
            kinds = {self._class_of(name, self.expected.steps[number]) for number in steps}
            own, kind = [self.actual.steps[number] for number in steps], next(iter(kinds), None)
            lives = [step.live for step in own if step.live is not None]
            is_twice = any(name in step.twice for step in own)
            if len(kinds) != 1 or kind is None or len(lives) < len(steps) or is_twice:
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

    def is_other_step(self, number: int, name: str) -> bool:
        """Tell whether the reference's rule gives another step of a parameter on the port's own gradients."""
        return self.errors.get(name, {}).get(number, 0.0) > SAME_STEP

    def steps_of(self, name: str) -> tuple[list[int], list[dict[str, Any]]]:
        """Return which steps are those of a parameter of the port, and how the reference's optimiser makes them."""
        both = enumerate(zip(self.expected.steps, self.actual.steps, strict=False))
        is_held = ((number, theirs, name in own.settings or not own.holders) for number, (theirs, own) in both)
        held = ((number, self.settings_of(name, theirs)) for number, theirs, is_own in is_held if is_own)
        found = [(number, settings) for number, settings in held if settings is not None]
        return [number for number, _ in found], [settings for _, settings in found]

    def settings_of(self, name: str, theirs: OptimizerStep) -> dict[str, Any] | None:
        """Return the hyperparameters that the reference's optimiser has for a parameter of the port."""
        pair = self.pairs.paired.get(name)
        held = [theirs.settings[other] for other in (pair.others if pair else ()) if other in theirs.settings]
        return held[0] if held else None

    def holder_of(self, name: str, theirs: OptimizerStep) -> Holder | None:
        """Return the reference's optimiser of a parameter of the port."""
        pair = self.pairs.paired.get(name)
        held = [theirs.holders[other] for other in (pair.others if pair else ()) if other in theirs.holders]
        return held[0] if held else None

    def _class_of(self, name: str, theirs: OptimizerStep) -> type | None:
        """Return a class of optimiser: the one that ran, or that of its name; what a golden names is not imported."""
        from torch.optim import Optimizer

        holder = self.holder_of(name, theirs)
        if holder is None:
            return None
        found = holder.kind or getattr(sys.modules.get(holder.module), holder.name, None)
        return found if isinstance(found, type) and issubclass(found, Optimizer) else None


def _first_keys(rows: ParameterRows, name: str) -> bytes:
    return rows.ways[name][0].keys.tobytes() if rows.ways[name] else b""


def greatest(rows: ParameterRows) -> float:
    """Return the norm of the greatest row of all."""
    return max((float(ways[0].numbers[:, -1].max(initial=0.0)) for ways in rows.ways.values() if ways), default=0.0)


def otherwise(found: Mapping[str, tuple[Floats, Floats]], allowed: float, size: float) -> list[str]:
    """Return the names of what is otherwise than the reference's, beside a greatest row of some size."""
    return [name for name, (one, other) in found.items() if row_error(one, other, size) > allowed]


def multiple(own: Floats, other: Floats, allowed: float) -> float | None:
    """Return k where numbers are k times others, and k is not one."""
    square = float(np.vdot(other, other))
    if not square:
        return None
    k = float(np.vdot(own, other)) / square
    apart = float(np.linalg.norm(own - k * other))
    return k if apart <= allowed * float(np.linalg.norm(own)) and abs(k - 1) > allowed else None


def allowed_in(number: int) -> float:
    """Return the share by which gradients of a step may differ."""
    return SAME if number == 1 else DRIFTED

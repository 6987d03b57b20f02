"""The numbers that the other forward has: the first to try where a constant may be wrong."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.proof.value_graph import kind_of_operator
from pytest_tfdebug.tracing.record.modules import bare

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    import torch

    from pytest_tfdebug.tracing.values.tape import Step, Tape
    from pytest_tfdebug.values import Values

#: How unlikely a number is: one that the other side alone has, and any other one that it has.
_ALONE, _SHARED = 0.8, 1.3
#: How unlikely an epsilon is that both sides have: less so than any other.
_SHARED_EPSILON = 0.9
#: Operators whose number may be the inverse, the root or the inverse root of one that is known.
_SCALES = ("scale", "power")
#: Numbers that every forward has say nothing.
_COMMON = (0.0, 1.0, -1.0)
#: Numbers below this keep something from being 0.
_TINY = 2e-2
#: What else a scale may be made of a number: the power, and what it is called.
_DERIVED = {-1.0: "1 /", 0.5: "the root of", -0.5: "1 / the root of"}
#: How unlikely it is that a step that does nothing does it with a wrong number: the step of the other side is missing.
_IDLE = 2.2

#: Settings that no checked forward uses: what a model is trained and begun with.
_UNUSED = re.compile("drop|init|loss|coef|momentum")

#: A number as text.
_NUMBER = re.compile(r"-?\d+(\.\d*)?(e[+-]?\d+)?")


class KnownNumber(NamedTuple):
    """A number that the other side has."""

    number: float
    told: str  # where it is from, ``as the reference has``
    cost: float  # how unlikely it is


@dataclass(frozen=True)
class KnownNumbers:
    """All numbers that the other side has, and does not share with this one at each operator."""

    side: str = ""  # whose they are, ``the reference``
    applied: Mapping[str, Collection[float]] = field(default_factory=dict)  # by what operators do, ``sum``
    held: Mapping[float, str] = field(default_factory=dict)  # what modules hold, and its name there
    shared: Collection[float] = ()  # magnitudes that this side has too
    # by operator, lists of integers that it was given: ``(1, 2, 1, 2)`` of a pad
    lists: Mapping[str, Collection[tuple[int, ...]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, side: str, table: Values, tape: Tape, own: Values, own_tape: Tape, *, settings: Mapping[float, str]
    ) -> KnownNumbers:
        """Return the numbers of one forward, to be tried in another.

        Args:
            side: What the forward is called, ``the reference``.
            table: Its values; what its modules hold is known from a golden too.
            tape: What ran in it; empty where it cannot be run.
            own: The values of the forward that is changed.
            own_tape: What ran in that.
            settings: The numbers of the other side's configuration, see :func:`configured_numbers`.
        """
        applied: dict[str, set[float]] = {}
        for step in tape.steps:
            numbers = {float(each) for _, each in step.given if type(each) is float and math.isfinite(each)}
            applied.setdefault(kind_of_operator(step.operator), set()).update(numbers)
        held = {**settings, **{number: name for name, number in held_numbers(table)}}
        shared = {abs(number) for _, number in held_numbers(own)} | {abs(each) for each in own_tape.numbers()}
        lists: dict[str, set[tuple[int, ...]]] = {}
        for step in tape.steps:
            lists.setdefault(step.operator, set()).update(each for _, each in lists_of(step))
        return cls(side, applied, held, shared, lists)

    def is_theirs(self, number: float) -> bool:
        """Tell whether the other side's modules or configuration hold a number, too: then it is hardly wrong."""
        return any(math.isclose(number, each, rel_tol=1e-9) for each in self.held if each not in _COMMON)

    def at(self, operator: str, old: float) -> Iterator[KnownNumber]:
        """Yield what an operator's number may be instead of the one that it is."""
        kind, seen = kind_of_operator(operator), {old}
        for number, told in self._candidates(kind):
            if old in _COMMON and abs(number) < _TINY:  # a 1 that is added is no epsilon
                continue
            for new, how in ((number, told), (-number, told)) if old < 0 else ((number, told),):
                if not any(math.isclose(new, each, rel_tol=1e-9) for each in seen):
                    seen.add(new)
                    is_shared = any(math.isclose(abs(new), each, rel_tol=1e-6) for each in self.shared)
                    is_idle, is_epsilon = kind in _SCALES and old == 1, 0 < old < _TINY and 0 < new < _TINY
                    shared = _SHARED_EPSILON if is_epsilon else _SHARED
                    yield KnownNumber(new, how, _IDLE if is_idle else shared if is_shared else _ALONE)

    def _candidates(self, kind: str) -> Iterator[tuple[float, str]]:
        for number in sorted(self.applied.get(kind, ())):
            if number not in _COMMON:
                yield number, f"as {self.side} has"
        held = {number: name for number, name in self.held.items() if number not in _COMMON}
        for number in held:  # all of them before any that is made of one: 1e6 is rope_theta, and not 1 / eps
            yield number, f"as {self.side} has"
        for number, name in held.items():
            if kind in _SCALES and number > 0:
                for new, what in (
                    (1 / number, "1 / "),
                    (number**0.5, "the root of "),
                    (number**-0.5, "1 / the root of "),
                ):
                    yield new, f"{what}{self.side}'s {name} {number:g}"


NONE_KNOWN = KnownNumbers()


def lists_of(step: Step) -> Iterator[tuple[tuple[int, int], tuple[int, ...]]]:
    """Yield the lists of integers that an operator was given, with where they stand among its arguments."""
    for place, each in enumerate(step.args):
        if isinstance(each, (list, tuple)) and len(each) > 1 and all(type(item) is int for item in each):
            yield (0, place), tuple(each)


def held_numbers(table: Values) -> set[tuple[str, float]]:
    """Return name and value of each number that a module holds and a checked forward may use."""
    return {
        (name, float(text))
        for path, held in table.attributes.items()
        for name, text in held.items()
        if _NUMBER.fullmatch(text) and "drop" not in path and not _UNUSED.search(name)
    }


def configured_numbers(model: torch.nn.Module) -> dict[float, str]:
    """Return each fraction that a model's configuration has, at any depth, and its name: ``{1e6: "rope_theta"}``.

    Tables that are made when a model is built hold no such number any more, and whole ones are sizes.
    """
    config = getattr(bare(model), "config", None)
    to_dict = getattr(config, "to_dict", None)
    left, found = [("", to_dict() if callable(to_dict) else config)], dict[float, str]()
    while left:
        name, value = left.pop()
        if isinstance(value, Mapping):
            left.extend((str(key), each) for key, each in value.items())
        elif type(value) is float and math.isfinite(value) and not _UNUSED.search(name):
            found.setdefault(value, name)
    return found

"""What each thing may cost, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from measuring.figures import (
    LAYERS,
    LINEAR,
    MEGABYTES,
    MORE_FORWARDS,
    OF_BARE,
    OF_PYTEST,
    OF_SCRIPT,
    OF_SCRIPT_FOR_ONE,
    OVER_SMALLEST,
)
from measuring.growth import FAILURE, LOGITS, TIMED
from measuring.ours import EXPLAINING, LOADED_CHECK
from measuring.padding import BESIDE as PADDING
from measuring.peers import KEEPING
from measuring.scanner import COLD, FILLING, ONE, WARM

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from measuring.figures import Figure

_LLAMA = "Llama, 8 layers"
#: A floor may be exceeded by this factor where it lies above the budget.
_ABOVE_FLOOR = 1.2


@dataclass(frozen=True)
class Budget:
    """The most that one figure may be, and why. No ``work`` stands for any; another unit is not judged.

    ``floor``: figures of the same section and work that together cannot be undercut. The limit is 1.2 times their sum
    where that is more.
    """

    section: str
    work: str
    name: str
    limit: float
    unit: str
    reason: str
    floor: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """A budget beside its figure, the figure's number, and what is allowed here, the floor considered."""

    budget: Budget
    figure: Figure
    value: float
    limit: float

    @property
    def ok(self) -> bool:
        """Tell whether the budget holds."""
        return self.value <= self.limit

    def __str__(self) -> str:
        figure = self.figure
        return (
            f"{figure.section}: {figure.name} ({figure.work}) is {self.value:.2f} {figure.unit}, "
            f"{self.limit:.2f} allowed: {self.budget.reason}"
        )


_CURVE = ("growth, depth", "32 layers over 2 layers")
_READ = "each distinct tensor is read and written once, and a second forward is looked at operator by operator"
_SEARCH = "a second forward, its operators, and the search among them"
_BESIDE = "records nothing unless it fails, and reads each output once"
# fmt: off
BUDGETS: tuple[Budget, ...] = (
    Budget("core", _LLAMA, "trace", 1.15, OF_BARE, "tensors are captured copy-on-write: nothing is copied", (KEEPING,)),
    Budget("core", _LLAMA, "trace and compare", 2.0, OF_BARE, "reads every tensor of both sides, equality first"),
    Budget("goldens", _LLAMA, "golden, update", 6.0, OF_BARE, _READ, ("bare forward", "save_file of the same bytes")),
    Budget("goldens", _LLAMA, "golden, check", 2.5, OF_BARE, "the file is mapped, and read as the forward goes"),
    *(Budget("explaining", _LLAMA, name, 10.0, OF_BARE, _SEARCH) for name in EXPLAINING),
    Budget("overflow", _LLAMA, "overflow_guard", 1.25, OF_BARE, "each tensor is read once, where it is"),
    Budget("padding", _LLAMA, PADDING, 0.3, MORE_FORWARDS, _BESIDE),
    Budget("padding", "all-MiniLM-L6-v2", PADDING, 0.3, MORE_FORWARDS, _BESIDE),
    Budget("idle", "pytest", "import", 4.5, OF_PYTEST, "every run of pytest pays it: 5 ms of 110"),
    Budget("idle", "pytest", "heavy modules", 0, "modules", "torch alone takes a second to import"),
    Budget("memory", _LLAMA, LOADED_CHECK, 1.0, LAYERS, "looks at a call's tensors and lets them go"),
    Budget("memory", _LLAMA, "overflow_guard", 1.0, LAYERS, "looks at a call's tensors and lets them go"),
    Budget("memory", LOGITS, FAILURE, 16.0, MEGABYTES, "tensors that differ are measured in pieces"),
    *(Budget(*_CURVE, name, 1.25, OVER_SMALLEST, "every call is looked at once, whatever came before")
      for name in TIMED),
    *(Budget(*_CURVE, f"{name}: memory", 1.25, OVER_SMALLEST, "what was looked at is let go")
      for name in (LOADED_CHECK, "overflow_guard", "padding_invariant")),
    Budget("scanner", "", COLD, 8.0, OF_SCRIPT, "each different text is read by libcst once, and only what matters"),
    Budget("scanner", "", ONE, 6.0, OF_SCRIPT_FOR_ONE, "what another test asks is not read"),
    Budget("scanner", "", WARM, 0.3, OF_SCRIPT, "an answer whose files have not changed is not looked into"),
    *(Budget("scanner", "", f"{name}: memory", 300.0, MEGABYTES, "a process keeps what it has read of its models")
      for name in (COLD, FILLING, WARM)),
    *(Budget("scanner, growth", "400 files over 50", name, 1.25, LINEAR, "a file is read once, whatever came before")
      for name in (COLD, WARM)),
)
# fmt: on


def judge(figures: Sequence[Figure], budgets: Iterable[Budget] = BUDGETS) -> Iterator[Verdict]:
    """Yield a verdict on each budget whose figure was measured."""
    values = {figure.key: figure.value for figure in figures}
    for budget in budgets:
        for figure in figures:
            if figure.value is not None and _is_of(budget, figure):
                floors = [values.get((figure.section, figure.work, name)) for name in budget.floor]
                known = [floor for floor in floors if floor is not None]
                floor = _ABOVE_FLOOR * sum(known) if known and len(known) == len(floors) else 0.0
                yield Verdict(budget, figure, figure.value, max(budget.limit, floor))


def _is_of(budget: Budget, figure: Figure) -> bool:
    wanted = (budget.section, budget.work or figure.work, budget.name, budget.unit)
    return wanted == (*figure.key, figure.unit)

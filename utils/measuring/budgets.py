"""What each thing may cost, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from measuring.figures import Figure

_LLAMA = "Llama, 8 layers"
#: A floor may be exceeded by this factor where it lies above the budget.
_ABOVE_FLOOR = 1.2


@dataclass(frozen=True)
class Budget:
    """The most that one figure may be.

    Args:
        section: Of the figure.
        work: Of the figure.
        name: Of the figure.
        limit: The most that is allowed.
        unit: Of the figure.
        reason: Why so much, and no more.
        floor: Names of figures of the same section and work that together with one bare forward cannot be undercut. The
            limit is 1.2 times their sum where that is more.
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
    """A budget beside its figure.

    Args:
        budget: The budget.
        value: The figure's number.
        limit: What is allowed here, the floor considered.
    """

    budget: Budget
    value: float
    limit: float

    @property
    def ok(self) -> bool:
        """Tell whether the budget holds."""
        return self.value <= self.limit

    def __str__(self) -> str:
        budget = self.budget
        return f"{budget.section}: {budget.name} ({budget.work}): {self.value:.2f} of {self.limit:.2f} {budget.unit}"


BUDGETS: tuple[Budget, ...] = (
    Budget("core", _LLAMA, "trace", 1.15, "x bare forward", "tensors are captured copy-on-write: nothing is copied"),
    Budget("core", _LLAMA, "trace and compare", 2.0, "x bare forward", "two reads of every tensor, equality first"),
    Budget(
        "goldens",
        _LLAMA,
        "golden, update",
        2.5,
        "x bare forward",
        "each distinct tensor is read once for its statistics and written once",
        ("save_file of the same bytes",),
    ),
    Budget("goldens", _LLAMA, "golden, check", 2.5, "x bare forward", "the file is mapped, and read while compared"),
    Budget("overflow", _LLAMA, "overflow_guard", 1.25, "x bare forward", "each tensor is read once, on its device"),
)


def judge(figures: Iterable[Figure], budgets: Iterable[Budget] = BUDGETS) -> Iterator[Verdict]:
    """Yield a verdict on each budget whose figure was measured."""
    values = {figure.key: figure.value for figure in figures}
    for budget in budgets:
        value = values.get((budget.section, budget.work, budget.name))
        if value is None:
            continue
        floors = [values.get((budget.section, budget.work, name)) for name in budget.floor]
        known = [floor for floor in floors if floor is not None]
        floor = _ABOVE_FLOOR * (1 + sum(known)) if known and len(known) == len(floors) else 0.0
        yield Verdict(budget, value, max(budget.limit, floor))

"""A run that trains by itself, as plain data: each backward, and what its optimiser saw and did in each step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from pytest_tfdebug.steps.rows import ParameterRows
    from pytest_tfdebug.steps.table import Backward
    from pytest_tfdebug.values import Line


@dataclass
class Batch:
    """One backward of a step."""

    loss: float
    is_fresh: bool  # whether no parameter had a gradient before
    added: ParameterRows  # what it added to the gradient of each parameter
    lines: tuple[Line, ...]  # where it was made
    touched: tuple[Line, ...] = ()  # where gradients were last written to before, since the backward before it


@dataclass
class LiveStep:
    """The tensors of a step, by the name of the parameter, as long as the run is at hand."""

    gradients: dict[str, torch.Tensor | None]  # that the optimiser saw
    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]


#: What makes the steps of a run that moves its parameters by itself.
OWN_CODE = "own code"


@dataclass(frozen=True)
class Holder:
    """An optimiser that some parameters of a step are of."""

    name: str  # of its class
    module: str  # of its class, ``torch.optim.adamw``
    lines: tuple[Line, ...] = ()  # where its step was asked for
    made_at: tuple[Line, ...] = ()  # where it was made; empty where that was before the run
    changed: frozenset[str] = frozenset()  # hyperparameters that are others by now than it was made with
    rule: tuple[str, int, int] | None = None  # file and lines of a step method that is not torch's
    kind: type | None = field(default=None, repr=False)  # its class

    @property
    def is_torch(self) -> bool:
        """Whether the class is torch's own."""
        return self.module.startswith("torch.")


@dataclass
class OptimizerStep:
    """One step: all that optimisers do between two backwards, or code of one's own."""

    batches: list[Batch]
    given: ParameterRows  # gradients that it saw
    # that gradient over what the backwards have left: of all parameters together, and of each; None where it is no
    # multiple
    factor: float | None
    factors: dict[str, float | None]
    holders: dict[str, Holder]  # of each parameter that an optimiser holds; none in code of one's own
    settings: dict[str, dict[str, Any]]  # of each parameter: its group's hyperparameters
    twice: tuple[str, ...]  # parameters that are held twice
    stale: tuple[str, ...]  # parameters that are held, and the model has others of that name by now
    buffers: ParameterRows  # by how much each buffer moved since the step before
    lines: tuple[Line, ...]  # where the last one was asked for
    # by how much each parameter moved from the first backward of this step to that of the next, or to the end; by how
    # much from the step before to this one, so that no optimiser did it; None: not told
    moved: ParameterRows | None = None
    outside: ParameterRows | None = None
    live: LiveStep | None = field(default=None, repr=False)
    written: dict[str, tuple[Line, ...]] = field(default_factory=dict)  # where each parameter was, by no optimiser
    touched: dict[str, tuple[Line, ...]] = field(default_factory=dict)  # where each gradient was, since its backwards
    is_rescaled: bool = False  # whether gradients were, by more than torch's clipping, which undoes no scale

    @property
    def optimizer(self) -> str:
        """The names of the classes of its optimisers."""
        return " and ".join(dict.fromkeys(holder.name for holder in self.holders.values())) or OWN_CODE

    def holder(self, name: str) -> Holder:
        """Return the optimiser of a parameter, or else one that is there."""
        held = self.holders
        return held.get(name) or next(iter(held.values()), Holder(OWN_CODE, "", self.lines))


@dataclass
class Training:
    """A run that trained by itself."""

    backward: Backward  # the backwards of its first step
    steps: list[OptimizerStep]
    end: TrainingEnd | None = None  # None in a golden that does not tell it


@dataclass
class TrainingEnd:
    """What a run has changed once it is over."""

    outside: ParameterRows  # by how much each parameter moved after the last step: an average of weights, say
    flowed: ParameterRows  # by how much each buffer moved in all
    written: dict[str, tuple[Line, ...]] = field(default_factory=dict)  # as of a step

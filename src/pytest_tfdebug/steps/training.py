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


@dataclass
class LiveStep:
    """The tensors of a step, by the name of the parameter, as long as the run is at hand."""

    gradients: dict[str, torch.Tensor | None]  # that the optimiser saw
    before: dict[str, torch.Tensor]
    after: dict[str, torch.Tensor]


#: The optimiser of a run that moves its parameters by itself.
OWN_CODE = "own code"


@dataclass
class OptimizerStep:
    """One step of an optimiser."""

    optimizer: str  # name of its class
    module: str  # of its class, ``torch.optim.adamw``; empty where there is none
    batches: list[Batch]
    given: ParameterRows  # gradients that it saw
    # that gradient over what the backwards have left: of all parameters together, and of each; None where it is no
    # multiple
    factor: float | None
    factors: dict[str, float | None]
    settings: dict[str, dict[str, Any]]  # of each parameter: its group's hyperparameters
    twice: tuple[str, ...]  # parameters that it holds twice
    stale: tuple[str, ...]  # parameters that it holds, and the model has others of that name by now
    buffers: ParameterRows  # by how much each buffer moved since the step before
    lines: tuple[Line, ...]  # where the step was asked for
    made_at: tuple[Line, ...]  # where the optimiser was made; empty where that was before the run
    # by how much each parameter moved since the step before, and by how much before this one began; None: not told
    moved: ParameterRows | None = None
    outside: ParameterRows | None = None
    rule: tuple[str, int, int] | None = None  # file and lines of a step method that is not torch's
    live: LiveStep | None = field(default=None, repr=False)
    kind: type | None = field(default=None, repr=False)  # its class
    # where each parameter was last written to since the step before, by no optimiser
    written: dict[str, tuple[Line, ...]] = field(default_factory=dict)

    @property
    def is_torch(self) -> bool:
        """Whether the class is torch's own."""
        return self.module.startswith("torch.")


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

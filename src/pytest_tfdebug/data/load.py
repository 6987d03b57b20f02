"""What became of every tensor of a checkpoint and of a model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

#: What became of a tensor. Of one in the checkpoint only ``never read`` and ``loaded twice`` are said.
Verdict = Literal[
    "read",
    "cast",
    "renamed",
    "transposed",
    "permuted",
    "fused",
    "split",
    "scaled",
    "tied",
    "made again",
    "constant",
    "not saved",
    "never read",
    "left at its initial values",
    "changed",
    "partly filled",
    "from elsewhere",
    "in another order",
    "loaded twice",
    "not scaled",
    "not finite",
    "wrongly tied",
    "not judged",
]
#: Verdicts of what did not arrive, the gravest first.
LOST: tuple[Verdict, ...] = (
    "never read",
    "left at its initial values",
    "not finite",
    "from elsewhere",
    "loaded twice",
    "partly filled",
    "not scaled",
    "in another order",
    "wrongly tied",
    "changed",
    "not judged",
)


@dataclass(frozen=True)
class LoadRow:
    """A tensor of the model, or one of the checkpoint that did not end up in one place of the model."""

    tensor: str  # its name
    verdict: Verdict
    from_: tuple[str, ...] = ()  # tensors of the checkpoint that it holds; of a tied one, the name that it is tied to
    detail: str = ""  # how it differs, or where it probably belongs
    of: Literal["model", "checkpoint"] = "model"  # whose tensor it is
    allowed: bool = False  # whether ``allow=`` names it

    @property
    def ok(self) -> bool:
        """Whether it arrived, or need not arrive."""
        return self.allowed or self.verdict not in LOST


@dataclass(frozen=True, repr=False)
class LoadResult:
    """What became of every tensor of a checkpoint and of a model; false where something did not arrive."""

    model: str  # class of the model
    checkpoint: str  # what was read: a path, or ``a state dict``
    stored: int  # number of tensors in the checkpoint
    rows: tuple[LoadRow, ...] = field(default=())  # those that did not arrive first

    @property
    def ok(self) -> bool:
        """Whether everything arrived."""
        return all(row.ok for row in self.rows)

    def __bool__(self) -> bool:
        return self.ok

"""What is known so far of each tensor: where its numbers are from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pytest_tfdebug.module_path import NUMBER

if TYPE_CHECKING:
    from pytest_tfdebug.data.load import Verdict
    from pytest_tfdebug.loading.checkpoint import Checkpoint
    from pytest_tfdebug.loading.held import HeldTensor

_LAYER = re.compile(rf"(?:(?<![^.])(?:layers?|blocks?|h)_?(\d+)(?![^.]))|({NUMBER.pattern})")


@dataclass(frozen=True)
class Arrival:
    """Where the numbers of a tensor of the model are from."""

    verdict: Verdict
    sources: tuple[str, ...] = ()  # tensors of the checkpoint
    detail: str = ""


@dataclass
class Arrivals:
    """What was found of the tensors of a model."""

    checkpoint: Checkpoint
    held: dict[str, HeldTensor]  # tensors of the model, by their first name
    shapes: dict[str, tuple[int, ...]]  # of the tensors of the checkpoint
    found: dict[str, Arrival] = field(default_factory=dict)  # by first name
    readers: dict[str, list[str]] = field(default_factory=dict)  # tensor of the checkpoint -> those that hold it

    @property
    def left(self) -> list[HeldTensor]:
        """Tensors of the model of which nothing is known."""
        return [each for name, each in self.held.items() if name not in self.found]

    @property
    def unread(self) -> list[str]:
        """Tensors of the checkpoint that nothing holds."""
        return [name for name in self.shapes if name not in self.readers]

    def take(self, held: HeldTensor, verdict: Verdict, *sources: str, detail: str = "") -> None:
        """Say where a tensor is from."""
        self.found[held.name] = Arrival(verdict, sources, detail)
        for source in sources:
            self.readers.setdefault(source, []).append(held.name)

    def own_name(self, held: HeldTensor) -> str | None:
        """Return the name under which the checkpoint has a tensor too."""
        return next((name for name in held.names if name in self.shapes), None)


def numbers_in(name: str) -> tuple[int, ...]:
    """Return the numbers of layers and experts in a name, ``layers.3.experts.0`` and ``layers_3``."""
    return tuple(int(layer or number) for layer, number in _LAYER.findall(name))


def starred(name: str) -> str:
    """Return a name with a star for each number: what is called alike in every layer."""
    return re.sub(r"\d+", "*", name)

"""What a port of the corpus is made of: its pair of models, its bugs, and what a report must say of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    Import = Callable[[str], ModuleType]


def main_tensor(output: Any) -> torch.Tensor:
    """Return the first floating tensor of what a forward returned."""
    if isinstance(output, torch.Tensor):
        return output
    leaves, _ = torch.utils._pytree.tree_flatten(output)
    values = leaves if any(isinstance(leaf, torch.Tensor) for leaf in leaves) else vars(output).values()
    return next(leaf for leaf in values if isinstance(leaf, torch.Tensor) and leaf.is_floating_point())


@dataclass
class Case:
    """A reference and a port with the same weights, and how each is called.

    Attributes:
        reference: The model of transformers.
        port: The port.
        reference_args: Positional arguments of the reference.
        reference_kwargs: Keyword arguments of the reference.
        port_args: Positional arguments of the port.
        port_kwargs: Keyword arguments of the port.
        arranged: Takes the main output from what the port returns, laid out as the reference's.
        outputs: Which output of the port is which of the reference's, where that has to be said.
        main: Takes the main output from what the reference returns.
    """

    reference: nn.Module
    port: nn.Module
    reference_args: tuple[Any, ...] = ()
    reference_kwargs: dict[str, Any] = field(default_factory=dict)
    port_args: tuple[Any, ...] = ()
    port_kwargs: dict[str, Any] = field(default_factory=dict)
    arranged: Callable[[Any], torch.Tensor] = main_tensor
    outputs: dict[str, str] | None = None
    main: Callable[[Any], torch.Tensor] = main_tensor

    def reference_output(self) -> torch.Tensor:
        """Return the main output of the reference."""
        with torch.no_grad():
            return self.main(self.reference(*self.reference_args, **self.reference_kwargs))

    def port_output(self) -> torch.Tensor:
        """Return the main output of the port, in the reference's layout."""
        with torch.no_grad():
            return self.arranged(self.port(*self.port_args, **self.port_kwargs))


@dataclass(frozen=True)
class Bug:
    """One wrong line, or one wrong weight, and where a report must see it.

    Attributes:
        name: Unique in its port.
        at: Expected module paths, any of which is right. They are relative to the port's middle layer for a bug in it.
        module: The module whose source file is edited; empty for a wrong weight.
        old: Text in that file; see :class:`editing.EditedFile`.
        new: The text in its place.
        after: Where the search for ``old`` begins.
        in_layer: Whether the middle layer alone has the bug; the whole port otherwise.
        shows: Texts of the port's lines that may be reported instead of the edited line, because there its effect is
            first seen: the use of an attribute that a constructor sets, the split of a fused weight.
        reference_lines: Texts that may stand in the lines of the reference that are reported, where the port has no
            line for the step it leaves out.
        change: Gives the layer or the port a wrong weight.
    """

    name: str
    at: tuple[str, ...]
    module: str = ""
    old: str = ""
    new: str = ""
    after: str = ""
    in_layer: bool = True
    shows: tuple[str, ...] = ()
    reference_lines: tuple[str, ...] = ()
    change: Callable[[Any], None] | None = None

    @property
    def kind(self) -> str:
        """``weights`` or ``line``."""
        return "weights" if self.change else "line"


@dataclass(frozen=True)
class Port:
    """An implementation that shares no code with its reference.

    Attributes:
        name: Unique.
        package: The top-level package, which must be installed.
        reloaded: The modules and packages to import anew for an edited copy.
        build: Builds both models, from modules that it gets by name.
        bugs: All of its bugs.
        layer: Path of the middle layer.
        rename: Rules for ``rename=`` as a person writes them; they need not be complete.
    """

    name: str
    package: str
    reloaded: tuple[str, ...]
    build: Callable[[Import], Case]
    bugs: tuple[Bug, ...]
    layer: str = ""
    rename: dict[str, str] | None = None


def to_edit(name: str, package: str, build: Callable[[Import], Case], *reloaded: str) -> Port:
    """Return a port that is edited at random: it has no bugs of its own, and all of its package is imported anew."""
    return Port(name, package, reloaded or (package,), build, ())


def shaken(model: nn.Module, seed: int = 0) -> nn.Module:
    """Give a model weights of a trained model's size: nothing is zero, one, or too small to be seen."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.ndim > 1:
                parameter.copy_(noise * max(parameter[0].numel(), 1) ** -0.5)
            else:
                parameter.add_(noise * 0.1)
    return model.eval()


def tokens(vocabulary: int, batch: int = 2, length: int = 12) -> torch.Tensor:
    """Return seeded token ids, none of them one of the first three, which may be special."""
    return torch.randint(3, vocabulary, (batch, length), generator=torch.Generator().manual_seed(1))

"""What a fix is, and the numbers that its models are given."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

Build = Callable[[Any], tuple[torch.nn.Module, dict[str, Any]]]


class Fix(NamedTuple):
    """A commit that mends a model.

    Attributes:
        repository: Name of the clone.
        commit: The commit that mends it.
        file: The file that it mends, from the repository's root.
        build: Returns the model, given the package, and its inputs.
    """

    repository: str
    commit: str
    file: str
    build: Build


def numbers(*shape: int, seed: int = 3) -> torch.Tensor:
    """Return seeded random numbers of a shape."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def module_of(package: Any, name: str) -> Any:
    """Return a module of a package, which may have been imported from any revision."""
    return importlib.import_module(f"{package.__name__}.{name}")


def made(module: str, name: str, inputs: dict[str, Any], *args: Any, **given: Any) -> Build:
    """Return what builds one class of a package.

    Args:
        module: Module of the package that holds the class.
        name: Name of the class.
        inputs: What the model is called with.
        *args: What the class is called with.
        **given: What the class is called with by name.
    """

    def build(package: Any) -> Any:
        return getattr(module_of(package, module), name)(*args, **given), inputs

    return build

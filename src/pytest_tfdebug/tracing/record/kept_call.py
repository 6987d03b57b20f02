"""A call that a test made, kept as it was: to be made again, or written as a repro."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.tracing.record.capture import capture
from pytest_tfdebug.tracing.record.leaves import replaced
from pytest_tfdebug.tracing.record.state import autocast_of

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(eq=False)
class KeptCall:
    """A call, its inputs as they were."""

    model: torch.nn.Module  # the module that was called
    args: tuple[Any, ...]  # its positional inputs
    kwargs: dict[str, Any]  # its keyword inputs
    autocast: tuple[str, torch.dtype] | None  # device type and dtype of the autocast that was on; None when it was off

    @classmethod
    def of(cls, model: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> KeptCall:
        """Keep a call that is about to be made."""
        inputs = {name: kept(value) for name, value in kwargs.items()}
        return cls(model, tuple(map(kept, args)), inputs, autocast_of(model))


def kept(value: Any) -> Any:  # noqa: ANN401 - any input
    """Return a copy of a nested input, caches included, whose tensors share their storage until they are written to."""
    return replaced(value, _captured)


def _captured(tensor: torch.Tensor) -> torch.Tensor:
    values = capture(tensor) if tensor.layout == torch.strided else None
    return tensor if values is None else values

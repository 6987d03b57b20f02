"""The shape of nested inputs and outputs, as JSON, with the tensors left out.

It keeps what transformers' debugger writes about values that are not tensors: their text, without memory addresses.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pytest_tfdebug.tracing.leaves import Leaf

_ADDRESS = re.compile(r"object at 0x[0-9A-Fa-f]+")


def skeleton(value: object, leaves: list[Leaf]) -> Any:  # noqa: ANN401
    """Return a nested value with each tensor as ``{"leaf": position in leaves}`` and the rest as text."""
    return _bare(value, {id(leaf.tensor): position for position, leaf in reversed(list(enumerate(leaves)))})


def _bare(value: object, positions: dict[int, int]) -> Any:  # noqa: ANN401
    if isinstance(value, torch.Tensor):
        return {"leaf": positions[id(value)]} if id(value) in positions else "Tensor"
    if isinstance(value, (list, tuple)):
        return [_bare(child, positions) for child in value]
    if isinstance(value, dict):
        return {"items": {str(key): _bare(child, positions) for key, child in value.items()}}
    return _ADDRESS.sub("object at 0xXXXXXXXX", repr(value))

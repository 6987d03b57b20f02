"""The shape of nested inputs and outputs, as JSON, with the tensors left out.

It keeps what transformers' debugger writes about values that are not tensors: their text, without memory addresses.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from pytest_tfdebug.tracing.leaves import Leaf

_NUMBERS = (bool, int, float)
_ADDRESS = re.compile(r"object at 0x[0-9A-Fa-f]+")


def skeleton(value: object, leaves: list[Leaf]) -> Any:  # noqa: ANN401
    """Return a nested value with each tensor as ``{"leaf": position in leaves}`` and the rest as text."""
    positions: dict[int, int] = {}
    for position, leaf in enumerate(leaves):
        positions.setdefault(id(leaf.tensor), position)
    return _bare(value, positions)


def _bare(value: object, positions: dict[int, int]) -> Any:  # noqa: ANN401
    if isinstance(value, torch.Tensor):
        return {"leaf": positions[id(value)]} if id(value) in positions else "Tensor"
    if value is None or type(value) in _NUMBERS:
        return repr(value)
    if isinstance(value, (list, tuple)):
        return [_bare(child, positions) for child in value]
    if isinstance(value, Mapping):
        return {"items": {str(key): _bare(child, positions) for key, child in value.items()}}
    if is_dataclass(value) and not isinstance(value, type):  # its text would hold the values of its tensors
        return {"items": {item.name: _bare(getattr(value, item.name, None), positions) for item in fields(value)}}
    return _ADDRESS.sub("object at 0xXXXXXXXX", _text(value))


def _text(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a user's repr may raise anything, and must not end the forward
        return f"<{type(value).__name__} object>"

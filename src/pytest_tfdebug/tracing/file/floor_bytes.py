"""Floors of values <-> bytes: an eighth of a power of two tells enough of a rounding."""

from __future__ import annotations

import math

import torch

#: Steps for each power of two.
_STEPS = 8


def encode_floors(floors: list[float]) -> torch.Tensor:
    """Return floors as bytes: their logarithm, 0 for none."""
    steps = [round(-_STEPS * math.log2(floor)) if floor > 0 else 0 for floor in floors]
    return torch.tensor(
        [min(max(step, 1), 255) if floor > 0 else 0 for step, floor in zip(steps, floors, strict=True)],
        dtype=torch.uint8,
    )


def decode_floors(held: torch.Tensor, count: int) -> list[float]:
    """Return floors from their bytes.

    Raises:
        ValueError: If there are not as many as values.
        TypeError: If they are no bytes.
    """
    if held.dtype != torch.uint8:
        raise TypeError("the floors of values have another dtype")
    if held.shape != (count,):
        raise ValueError("there are not as many floors as values")
    return [2 ** (-step / _STEPS) if step else 0.0 for step in held.tolist()]

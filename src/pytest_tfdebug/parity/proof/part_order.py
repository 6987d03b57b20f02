"""In which order a fused parameter holds its parts: gate and up, or query, key and value."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from pytest_tfdebug.parity.closeness import CAST, SAME_WEIGHT
from pytest_tfdebug.values import Fingerprint, distance

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch


def order_within(tensor: torch.Tensor, parts: Mapping[str, Fingerprint]) -> tuple[str, ...]:
    """Return the order in which parts lie in a tensor along one of its axes; () where they do not, or two are alike."""
    if any(distance(one, other) <= CAST for one, other in combinations(parts.values(), 2)):
        return ()
    for axis in range(tensor.ndim):
        left, order, start = dict(parts), list[str](), 0
        while name := next((name for name, part in left.items() if _is_at(tensor, axis, start, part)), ""):
            start += left.pop(name).elements * tensor.shape[axis] // tensor.numel()
            order.append(name)
        if not left:
            return tuple(order)
    return ()


def _is_at(tensor: torch.Tensor, axis: int, start: int, part: Fingerprint) -> bool:
    """Tell whether a tensor holds a part from a place of an axis on."""
    length = part.elements * tensor.shape[axis] // tensor.numel()
    if not 0 < length <= tensor.shape[axis] - start:
        return False
    return distance(Fingerprint.of(tensor.narrow(axis, start, length)), part) <= SAME_WEIGHT

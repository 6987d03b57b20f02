"""What a step added to a key-value cache: each step holds all of it, and only the new part is worth keeping."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from pytest_tfdebug.records import TensorRecord

#: The names under which a model takes and returns its caches.
_NAMED = re.compile(r"^(\.|\[')?\w*(past_key_values?|cache)\w*('\])?", re.IGNORECASE)


class CacheGrowth:
    """Follows the tensors of caches through the forwards of a trace."""

    def __init__(self) -> None:
        self._last: dict[str, torch.Tensor] = {}

    @staticmethod
    def is_cache(record: TensorRecord, role: str) -> bool:
        """Tell whether a leaf of a root, or what a call wrote, stands in a cache."""
        return role == "write" or _NAMED.match(record.leaf) is not None

    def added(self, record: TensorRecord, role: str) -> tuple[int, int] | None:
        """Return the axis and start of what is new in a tensor since the last one in its place; None for all of it.

        Args:
            record: A leaf, in the order in which the tensors were made.
            role: What it is: ``input``, ``output`` or ``write``.
        """
        if record.tensor is None or not self.is_cache(record, role):
            return None
        place = _NAMED.sub("", record.leaf, count=1)
        last, self._last[place] = self._last.get(place), record.tensor
        return None if last is None else _grown(last, record.tensor)


def _grown(last: torch.Tensor, now: torch.Tensor) -> tuple[int, int] | None:
    if last.dim() != now.dim() or last.dtype != now.dtype or last.device != now.device:
        return None
    other = [axis for axis, (before, after) in enumerate(zip(last.shape, now.shape, strict=True)) if before != after]
    if len(other) != 1:
        return None
    axis, start = other[0], last.shape[other[0]]
    if not 0 < start < now.shape[axis] or not torch.equal(now.narrow(axis, 0, start), last):
        return None
    return axis, start

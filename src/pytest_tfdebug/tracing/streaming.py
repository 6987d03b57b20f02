"""Reduce each tensor of a forward once the forward has let it go, so that a recording does not grow with depth.

What a tensor may keep hangs on all others, which are not known yet. But the more there are, the less each gets, and a
smaller digest holds the first elements of a larger one: a tensor keeps what it would get if it were the last, and
:func:`.budget.bounded` takes away what is too much. The model's inputs and outputs stay whole until then.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.records import TensorRecord
from pytest_tfdebug.tracing.budget import Item, level_of
from pytest_tfdebug.tracing.cache_growth import CacheGrowth
from pytest_tfdebug.tracing.capture import captured, still_shares, storages_of, tensor_record, version
from pytest_tfdebug.tracing.statistics import statistics

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.records import Call, Statistics
    from pytest_tfdebug.tracing.leaves import Leaf

#: The level is computed anew once there are so many times as many tensors.
_MORE = 1.125
#: Bytes of a part of the pool, and of the places in it.
_PART, _PLACE = 2**20, 16


@dataclass(eq=False)
class _Shown:
    """A tensor that calls have shown.

    Args:
        item: What is kept of it.
        version: Torch's count of its writes as it was captured.
        shares: Whether it shared its storage with what was captured.
        tensor: It, as long as the forward holds it.
        statistics: Known once it was reduced.
    """

    item: Item
    version: int
    shares: bool
    tensor: weakref.ref[torch.Tensor]
    statistics: Statistics | None = None

    def is_of(self, tensor: torch.Tensor) -> bool:
        """Tell whether it is this tensor, unchanged since."""
        is_unwritten = not tensor.is_inference() and self.version == version(tensor)
        return self.tensor() is tensor and is_unwritten and (not self.shares or still_shares(tensor))


class Stream:
    """Keeps of the tensors of a forward what a file of a given size may hold, as they are made.

    Args:
        room: Bytes of the file.
        owned: The parameters and buffers of the model, which share no memory with what is kept.
    """

    def __init__(self, room: int, owned: Iterable[torch.Tensor] = ()) -> None:
        self._room = self._level = room
        self._owned = storages_of(owned)
        self._growth = CacheGrowth()
        self._latest: dict[int, _Shown] = {}
        self._waiting: dict[int, _Shown] = {}
        self._let_go: deque[int] = deque()
        self._reduced: list[Item] = []
        self._next = 0
        self._kept_values = _Pool()
        self._records: list[tuple[TensorRecord, _Shown]] = []

    def take(self, call: Call, leaf: Leaf, role: str) -> TensorRecord:
        """Return the record of a leaf; its values are put into it by :meth:`finish`.

        Args:
            call: The call that shows it.
            leaf: The leaf.
            role: What it is of the call: ``input``, ``output`` or ``write``.
        """
        self._reduce_what_was_let_go()
        shown = self._latest.get(id(leaf.tensor))
        if shown is None or not shown.is_of(leaf.tensor):
            kept, shares = captured(leaf.tensor, self._owned)
            record = tensor_record(leaf, kept)
            if kept is None:
                return record
            shown = self._new(record, leaf.tensor, role, shares=shares)
            record.tensor = None
        else:
            record = TensorRecord(leaf.path, shown.item.shape, shown.item.dtype, None)
        if call.parent is None and not self._growth.is_cache(record, role):
            shown.item.is_input |= role == "input"
            shown.item.is_output |= role == "output"
        self._records.append((record, shown))
        return record

    def _new(self, record: TensorRecord, tensor: torch.Tensor, role: str, *, shares: bool) -> _Shown:
        item = Item.of(record, self._growth.added(record, role))
        number, let_go = len(self._records), self._let_go
        gone = weakref.ref(tensor, lambda _: let_go.append(number))
        shown = _Shown(item, version(tensor), shares and still_shares(tensor), gone)
        self._latest[id(tensor)] = self._waiting[number] = shown
        return shown

    def _reduce_what_was_let_go(self) -> None:
        while self._let_go:
            shown = self._waiting.pop(self._let_go.popleft())
            if not shown.item.is_input and not shown.item.is_output:
                self._reduce(shown)

    def _reduce(self, shown: _Shown) -> None:
        """Keep of a tensor what it gets at the present level."""
        item = shown.item
        self._reduced.append(item)
        if len(self._reduced) >= self._next:
            fits = sum(each.whole for each in self._reduced) <= self._room
            self._level = self._room if fits else level_of(self._reduced, self._room)
            self._next = int(len(self._reduced) * _MORE) + 1
        assert item.tensor is not None  # noqa: S101 - it is reduced but once
        shown.statistics = statistics([item.tensor])[0]
        item.reduce(self._level)
        if item.tensor is not None:
            item.tensor = self._kept_values.put(item.tensor)
        if item.digest is not None:
            elements, sums = map(self._kept_values.put, (item.digest.elements, item.digest.sums))
            item.digest = replace(item.digest, elements=elements, sums=sums)

    def finish(self) -> None:
        """Put into each record what was kept of its tensor, once the forward has ended."""
        self._reduce_what_was_let_go()
        for shown in self._waiting.values():
            if not shown.item.is_input and not shown.item.is_output:
                self._reduce(shown)
        self._waiting.clear()
        self._latest.clear()
        for record, shown in self._records:
            record.tensor, record.digest, record.statistics = shown.item.tensor, shown.item.digest, shown.statistics


class _Pool:
    """Keeps small tensors together: each in a place of its own would lie in the room that a large one has left.

    The next large one would find none, and the process would grow with depth though nothing is held.
    """

    def __init__(self) -> None:
        self._part = torch.empty(0, dtype=torch.uint8)
        self._used = 0

    def put(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor, in the pool unless it is large or on a device."""
        size = tensor.numel() * tensor.element_size()
        if tensor.device.type != "cpu" or size > _PART or not size:
            return tensor
        if self._used + size > len(self._part):
            self._part, self._used = torch.empty(_PART, dtype=torch.uint8), 0
        place = self._part[self._used : self._used + size].view(tensor.dtype).view(tensor.shape)
        self._used += -(-size // _PLACE) * _PLACE
        return place.copy_(tensor)

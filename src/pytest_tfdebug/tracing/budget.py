"""How much of each tensor a file keeps: inputs whole, outputs within a share, of the rest as much as there is room for.

Whatever the budget, every tensor keeps its form, its sums and some elements: a file of a very deep model outgrows it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.records import Digest, TensorRecord, Write
from pytest_tfdebug.tracing.cache_growth import CacheGrowth
from pytest_tfdebug.tracing.digest import BUCKETS, FEWEST, digest_of, shortened, stored, top_places
from pytest_tfdebug.tracing.statistics import summarize

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tracing.trace import Trace

#: What a golden takes unless something else is asked for, in bytes.
DEFAULT = 1_000_000
#: Share of the budget that the root's outputs may take whole.
_OF_OUTPUTS = 0.25
#: Largest elements that are kept of a row of an output, and the bytes of a place.
_TOPS, _PLACE = 8, 8
#: Bytes that a tensor with a name of its own takes beside its elements.
_NAME = 130
#: Bytes of a tensor's sums, norm and statistics.
_SUMS = 4 * BUCKETS + 48
_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?b|)\s*", re.IGNORECASE)


def parse_size(text: object, name: str) -> int:
    """Return the bytes that ``"1 MB"``, ``"64 kB"`` or a number stands for.

    Raises:
        TFDebugError: If it is no size; the message begins with ``name``.
    """
    found = _SIZE.fullmatch(str(text)) if isinstance(text, (str, int)) and not isinstance(text, bool) else None
    size = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if size <= 0:
        raise TFDebugError(f'{name} {text!r} is not a size such as "1 MB" or "64 kB".')
    return size


def shown_size(size: int) -> str:
    """Return a number of bytes as people write it: ``83 kB``, ``1.8 GB``."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6)):
        if size >= factor:
            return f"{size / factor:.1f} {unit}"
    return f"{max(1, round(size / 1000))} kB"


def bounded(trace: Trace, room: int) -> Trace:
    """Return a trace whose tensors take no more than a number of bytes, as far as that can be had.

    Args:
        trace: A trace that holds all elements, or what :mod:`.streaming` has left of them.
        room: Bytes.
    """
    summarize(trace.records())
    items = _items(trace)
    shares = dict(zip(items, _shares(list(items.values()), room), strict=True))
    kept = {key: item.keep(shares[key]) for key, item in items.items()}

    def reduce(record: TensorRecord) -> TensorRecord:
        if record.held is None:
            return record
        tensor, digest = kept[id(record.held)]
        return replace(record, tensor=tensor, digest=digest)

    calls = [
        replace(
            call,
            inputs=tuple(map(reduce, call.inputs)),
            outputs=None if call.outputs is None else tuple(map(reduce, call.outputs)),
            writes=tuple(Write(reduce(record), before) for record, before in call.writes),
        )
        for call in trace.calls
    ]
    return replace(trace, calls=calls)


@dataclass
class Item:
    """A distinct tensor, and what may be kept of it.

    Args:
        shape: Its shape.
        dtype: Name of its dtype.
        tensor: All of it; None where a digest is left.
        digest: What is left of it.
        added: The part that a step added to a cache.
        is_input: Whether the root was given it.
        is_output: Whether the root returned it.
    """

    shape: tuple[int, ...]
    dtype: str
    tensor: torch.Tensor | None
    digest: Digest | None = None
    added: tuple[int, int] | None = None
    is_input: bool = False
    is_output: bool = False

    @classmethod
    def of(cls, record: TensorRecord, added: tuple[int, int] | None) -> Item:
        """Return the item of the tensor that a record shows."""
        known = added if record.digest is None else record.digest.added
        return cls(record.shape, record.dtype, record.tensor, record.digest, known)

    @property
    def element_size(self) -> int:
        """Bytes of an element."""
        return int(getattr(torch, self.dtype).itemsize)

    @property
    def whole(self) -> int:
        """Bytes of all that is to be kept of it."""
        return self._count * self.element_size + _NAME

    @property
    def least(self) -> int:
        """Bytes that it takes whatever the budget."""
        return min(self.whole, _SUMS + FEWEST * self.element_size)

    @property
    def _count(self) -> int:
        """Number of elements of all that is to be kept of it."""
        axis, start = self.added or (0, 0)
        return math.prod(size - (start if place == axis else 0) for place, size in enumerate(self.shape))

    @property
    def _parts(self) -> int:
        """Numbers of an element: two of a complex one."""
        return 2 if self.dtype.startswith("complex") else 1

    def reduce(self, share: int) -> None:
        """Let go of what a share of the bytes does not hold, and keep the sums as they were added up."""
        tensor, share = self.tensor, max(share, self.least)
        if tensor is None:
            return
        if share < self.whole or self.added is not None:
            self.digest = digest_of(tensor, self._kept(share, (0, 0)), added=self.added, is_stored=False)
            self.tensor = None
        elif tensor.untyped_storage().nbytes() > 2 * self.whole:  # a view would keep all of what it is a view of
            self.tensor = tensor.clone()

    def keep(self, share: int) -> tuple[torch.Tensor | None, Digest | None]:
        """Return the tensor, or its digest where a share of the bytes does not hold it."""
        if self.tensor is None:
            return None, None if self.digest is None else self._shortened(self.digest, self._kept(share, (0, 0)))
        if share >= self.whole and self.added is None:
            return self.tensor, None
        tops = self._tops(share // 2) if self.is_output else (0, 0)
        kept = self._kept(share, tops)
        return None, digest_of(self.tensor, kept, at=top_places(self.tensor, *tops), added=self.added)

    def _kept(self, share: int, tops: tuple[int, int]) -> int:
        """Return how many elements a share of the bytes holds, beside the largest ones of some rows."""
        per = self.element_size // self._parts
        if share >= self.whole:
            return self.whole  # more than there are: all of them
        return max(FEWEST, (share - _SUMS - tops[0] * tops[1] * (per + _PLACE)) // per)

    def _shortened(self, digest: Digest, kept: int) -> Digest:
        """Return a digest as it is stored, with no more than a number of elements."""
        return stored(shortened(digest, kept, self._count * self._parts), getattr(torch, self.dtype))

    def _tops(self, share: int) -> tuple[int, int]:
        """Return of how many rows how many of the largest elements go into a number of bytes."""
        rows = math.prod(self.shape[:-1])
        count = share // (self.element_size + _PLACE)
        each = max(1, min(_TOPS, count // max(rows, 1)))
        return min(rows, count // each), each


def _items(trace: Trace) -> dict[int, Item]:
    """Return the distinct tensors of a trace by id, in the order in which they are first seen."""
    growth = CacheGrowth()
    items: dict[int, Item] = {}
    for call, record, role in _leaves(trace.calls):
        if record.held is None:
            continue
        item = items.get(id(record.held))
        if item is None:
            added = None if trace.is_streamed else growth.added(record, role)
            item = items[id(record.held)] = Item.of(record, added)
        if call.parent is None and not growth.is_cache(record, role):
            item.is_input |= role == "input"
            item.is_output |= role == "output"
    return items


def _leaves(calls: list[Call]) -> Iterator[tuple[Call, TensorRecord, str]]:
    """Yield the leaves of calls as they were made: what a call wrote and returned comes after what is inside of it."""
    for call in calls:
        yield from ((call, record, "input") for record in call.inputs)
    for call in calls:
        yield from ((call, write.record, "write") for write in call.writes)
    for call in calls:
        yield from ((call, record, "output") for record in call.outputs or ())


def _shares(items: list[Item], room: int) -> list[int]:
    """Return the bytes of each tensor: those of the inputs, of the outputs, and one equal share for the rest."""
    shares = [0] * len(items)
    left_of_outputs = int(room * _OF_OUTPUTS)
    rest: list[int] = []
    for place, item in enumerate(items):
        if item.is_input:
            shares[place] = item.whole
        elif item.is_output:
            shares[place] = min(item.whole, max(item.least, left_of_outputs))
            left_of_outputs -= shares[place]
        else:
            rest.append(place)
    spent = sum(share for share, item in zip(shares, items, strict=True) if item.is_output or item.is_input)
    level = level_of([items[place] for place in rest], room - spent)
    for place in rest:
        shares[place] = max(items[place].least, min(items[place].whole, level))
    return shares


def level_of(items: list[Item], room: int) -> int:
    """Return the largest share at which tensors, each no more than whole and no less than its least, have room."""
    sizes = [(item.least, item.whole) for item in items]
    low, high = 0, max([whole for _, whole in sizes], default=0)
    while low < high:
        middle = (low + high + 1) // 2
        if sum(max(least, min(whole, middle)) for least, whole in sizes) <= room:
            low = middle
        else:
            high = middle - 1
    return low

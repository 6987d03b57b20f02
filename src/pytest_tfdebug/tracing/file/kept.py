"""What a golden keeps of each tensor: the inputs whole, of the rest a fixed number of elements and the sums of all.

A tensor is reduced as it is seen, so a recording holds no more of a deep model than its file will. What the root is
given is kept whole, unless the forward made it (a cache that goes on to the next step), and so is what it returns, as
far as that is small.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pytest_tfdebug.records import Call, Direction, TensorRecord, inputs_of, skeleton_ends
from pytest_tfdebug.tensors import tensor_record
from pytest_tfdebug.tracing.record.capture import SeenTensors, captured, storages_of
from pytest_tfdebug.tracing.values.digest import digest_of, statistics, top_places

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

    from pytest_tfdebug.tracing.record.leaves import Leaf
    from pytest_tfdebug.tracing.trace import Trace


#: Elements that are kept of a tensor inside the model: a golden of an 8-layer Llama takes a third of a megabyte.
KEPT = 256
#: Elements that are kept of all that the root returns; what has no room any more is sampled.
OF_OUTPUTS = 2**16
#: Largest elements that are kept of a row of an output that is sampled: of logits, the likeliest tokens.
_TOPS = 8


class Samples:
    """Reduces the tensors of a forward as calls show them."""

    def __init__(self, owned: Iterable[torch.Tensor] = ()) -> None:
        self._owned = storages_of(owned)
        self._seen: SeenTensors[TensorRecord] = SeenTensors()
        self._left = OF_OUTPUTS

    def take(self, call: Call, leaf: Leaf, role: str) -> TensorRecord:
        """Return the record of a leaf."""
        seen = self._seen.of(leaf.tensor)
        is_result = call.parent is None and role == "output"
        if seen is not None and not (is_result and seen.digest is not None):
            return replace(seen, leaf=leaf.path)
        kept, shares = captured(leaf.tensor, self._owned)
        record = tensor_record(leaf, kept)
        if kept is None:
            return record
        record = self.reduced(record, is_input=call.parent is None and role == "input", is_result=is_result)
        return self._seen.note(leaf.tensor, record, shares=shares)

    def reduced(self, record: TensorRecord, *, is_input: bool, is_result: bool) -> TensorRecord:
        """Return the record of a tensor with what is kept of it."""
        tensor, count = record.tensor, math.prod(record.shape)
        if tensor is None or is_input or count <= KEPT:
            return replace(record, tensor=None if tensor is None else _alone(tensor))
        tops = (0, 0)
        kept = KEPT
        if is_result:
            if count <= self._left:
                self._left -= count
                return replace(record, tensor=_alone(tensor))
            kept = max(KEPT, self._left // 2)
            self._left = max(0, self._left - kept)
            tops = (min(count // record.shape[-1], max(1, kept // _TOPS**2)), _TOPS) if record.shape else tops
        digest = digest_of(tensor, kept, at=top_places(tensor, *tops))
        return replace(record, tensor=None, digest=digest, statistics=record.statistics or statistics(tensor))


def _alone(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that does not keep all of what it is a view of."""
    is_part = tensor.untyped_storage().nbytes() > 2 * tensor.numel() * tensor.element_size()
    return tensor.clone() if is_part else tensor


def sampled(trace: Trace) -> Trace:
    """Return a trace that holds all elements with what a golden keeps of each tensor."""
    samples = Samples()
    inner, results = dict[int, TensorRecord](), dict[int, TensorRecord]()

    def reduced(call: Call, record: TensorRecord, role: Direction) -> TensorRecord:
        key, is_root = id(record.held), call.parent is None
        if record.tensor is None:
            return record
        if key not in inner:
            inner[key] = samples.reduced(record, is_input=is_root and role == "input", is_result=False)
        kept = inner[key]
        if is_root and role == "output" and kept.digest is not None:
            if key not in results:
                results[key] = samples.reduced(record, is_input=False, is_result=True)
            kept = results[key]
        return replace(record, tensor=kept.tensor, digest=kept.digest, statistics=kept.statistics)

    return replace(trace, calls=[call.with_records(partial(reduced, call)) for call in trace.calls])


_QUOTES = ("'", '"')


def string_inputs(trace: Trace) -> list[str]:
    """Return the names of a model's inputs that hold texts."""
    given = (pair for call in trace.calls if call.parent is None for pair in inputs_of(call))
    texts = (name for name, bare in given if any(str(end).startswith(_QUOTES) for _, end in skeleton_ends(bare)))
    return list(dict.fromkeys(texts))

"""The room that a file of a given size has for tensors, beside all that it says of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_tfdebug.tracing.budget import bounded
from pytest_tfdebug.tracing.document import outline
from pytest_tfdebug.tracing.packing import packed

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from pytest_tfdebug.tracing.trace import Trace

#: Bytes that the header and the document take for a distinct tensor.
_ENTRY = 60
#: Bytes of the header beside that.
_HEADER = 1500


def within(
    trace: Trace,
    budget: int,
    table: Mapping[str, torch.Tensor] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Trace:
    """Return a trace whose file takes no more than a number of bytes, as far as that can be had.

    Args:
        trace: A trace that holds all elements, or what :mod:`.streaming` has left of them.
        budget: Bytes of the file.
        table: The table of values that goes into it.
        extra: What else does.
    """
    told = packed({**outline(trace), "extra": dict(extra or {})}).numel() + _HEADER
    beside = sum(each.numel() * each.element_size() for each in (table or {}).values())
    shown = len({id(record.held) for record in trace.records()})
    return bounded(trace, max(0, budget - told - beside - _ENTRY * shown))

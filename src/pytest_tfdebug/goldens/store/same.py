"""Whether a golden holds a forward already: then the file is left as it is, byte for byte."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import torch

from pytest_tfdebug.tracing.file.document import outline
from pytest_tfdebug.tracing.values.digest import digest_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pytest_tfdebug.records import Digest, TensorRecord
    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.trace import Trace

#: Relative difference of two sums that were added up in another order.
_ROUNDING = 1e-6
#: Entries beside the tensors that must be the same.
_EXTRA = ("test", "weights", "kept")
#: Fields of a call that hold lines of source, which may have moved.
_PLACES = ("site", "inner_site", "source")


def is_same(old: TraceFile, trace: Trace, extra: Mapping[str, Any]) -> bool:
    """Tell whether a golden holds these tensors in this call tree, in the present format.

    Lines of source that moved are no change, nor are versions of libraries, nor is the last digit of a sum: with
    another number of threads it is added up in another order.
    """
    if any(old.extra.get(key) != extra[key] for key in _EXTRA):
        return False
    if _tree(old.trace) != _tree(trace):
        return False
    known: dict[tuple[int, int], bool] = {}
    for one, other in zip(old.trace.records(), trace.records(), strict=True):
        key = id(one.held), id(other.held)
        if key not in known:
            known[key] = _is_same_record(one, other)
        if not known[key]:
            return False
    return True


def _tree(trace: Trace) -> str:
    """Return the calls of a trace without what may change and without its tensors, as text."""
    document = msgspec.to_builtins(outline(trace))
    calls = [{key: value for key, value in call.items() if key not in _PLACES} for call in document["calls"]]
    return json.dumps({**document, "calls": calls})


def _is_same_record(one: TensorRecord, other: TensorRecord) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if one.digest is not None:
        kept, count = one.digest, one.digest.elements.numel()
        if other.tensor is not None:
            return _is_same_digest(kept, digest_of(other.tensor, count, at=kept.top_places))
        return other.digest is not None and _is_same_digest(kept, other.digest)
    if one.tensor is None or other.tensor is None:
        return one.held is other.held
    return _has_same_bytes(one.tensor, other.tensor)


def _is_same_digest(one: Digest, other: Digest) -> bool:
    return (
        torch.allclose(one.sums.double(), other.sums.double(), rtol=_ROUNDING, atol=_ROUNDING * one.norm)
        and _has_same_bytes(one.elements, other.elements)
        and _has_same_bytes(one.tops, other.tops)
    )


def _has_same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    plain = (each.resolve_conj().resolve_neg().contiguous() for each in (one, other))
    mine, theirs = (each.reshape(-1).view(torch.uint8) for each in plain)
    return bool(mine.equal(theirs.to(mine.device)))

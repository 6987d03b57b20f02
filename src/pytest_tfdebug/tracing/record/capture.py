"""Keep a tensor as it is now, whatever is done to it later, without copying it.

``torch._lazy_clone`` makes both tensors share their storage until one of them is written to: capturing costs
microseconds, and a module that works in place pays for the copy itself. It is a private function of torch, called here
and nowhere else. Its limit: a write through memory that torch does not own (a numpy array that shares the storage) is
not seen; such storages refuse, and are copied. What a model owns is copied too: its memory stays where it is.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.records import TensorRecord

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pytest_tfdebug.tracing.record.leaves import Leaf

_lazy_clone = getattr(torch, "_lazy_clone", None)
_is_cow = getattr(torch._C, "_is_cow_tensor", None)  # noqa: SLF001 - the other half of ``_lazy_clone``
_functorch = torch._C._functorch  # noqa: SLF001 - what a tensor is inside a transform has no public test
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


#: Dtypes that torch's kernels read; of others (``float4_e2m1fn_x2``, ``uint4``, ``bits8``) the bytes are read.
_READ = frozenset(
    dtype
    for dtype in vars(torch).values()
    if isinstance(dtype, torch.dtype)
    and (dtype.is_complex or str(dtype).startswith(("torch.float8", "torch.bfloat16", "torch.bool")))
) | {
    *(torch.float16, torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.uint16, torch.uint32, torch.uint64),
}


def is_plain(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's own elements can be read as they lie: neither packed, sparse, nested nor a stand-in."""
    if tensor.is_meta or tensor.is_nested or tensor.layout != torch.strided or tensor.dtype not in _READ:
        return False
    return type(tensor) in _PLAIN or not (_is_packed(tensor) or _has_no_values(tensor))


def readable(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor with the same values that can be read element by element: the one reader of every kind of tensor.

    Returns:
        The tensor itself when it is plain. The dense form of a sparse tensor; what a quantized one stands for; all of a
        ``DTensor``; a nested one padded with zeros; the bytes of a dtype that torch cannot compute with. None where
        there are no values to read (meta and fake tensors, inside ``torch.vmap``), or no way to read them is known.
    """
    if _functorch.is_batchedtensor(tensor) or tensor.is_meta:
        return None
    if is_plain(tensor):
        return tensor
    try:
        return _plain_form(tensor.detach())
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):  # a kind that nobody told us of
        return None


def _plain_form(tensor: torch.Tensor) -> torch.Tensor | None:
    if _has_no_values(tensor):
        return None
    if tensor.is_nested:
        return _padded(tensor.unbind())
    if hasattr(tensor, "full_tensor"):
        return readable(tensor.full_tensor())
    if tensor.is_quantized or _is_packed(tensor):
        return readable(tensor.dequantize())
    if tensor.layout != torch.strided:
        return readable(tensor.to_dense())
    return tensor.contiguous().view(torch.uint8)


def _is_packed(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor of another class stands for values that it holds in another way (torchao, ``DTensor``)."""
    return hasattr(tensor, "full_tensor") or type(tensor).dequantize is not torch.Tensor.dequantize


def _has_no_values(tensor: torch.Tensor) -> bool:
    return type(tensor).__name__ in {"FakeTensor", "FunctionalTensor"}


def _padded(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the parts of a nested tensor as one, zeros after the end of each."""
    sizes = [max(lengths) for lengths in zip(*(part.shape for part in parts), strict=True)]
    padded = parts[0].new_zeros((len(parts), *sizes))
    for row, part in zip(padded, parts, strict=True):
        row[tuple(slice(length) for length in part.shape)] = part
    return padded


def tensor_record(leaf: Leaf, kept: torch.Tensor | None) -> TensorRecord:
    """Return the record of a leaf, of the shape and dtype in which its values can be read.

    Args:
        leaf: Path and tensor.
        kept: The values to keep for it.
    """
    path, tensor = leaf
    if kept is not None:
        return TensorRecord(path, tuple(kept.shape), dtype_name(kept.dtype), kept)
    shape = () if tensor.is_nested else tuple(tensor.shape)  # a ragged axis has no size
    return TensorRecord(path, shape, dtype_name(tensor.dtype), None)


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype, ``"float32"``."""
    return str(dtype).removeprefix("torch.")


def capture(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the values of a tensor as they are now, detached from autograd.

    Args:
        tensor: Any tensor: any dtype, strided or not, empty, a view.

    Returns:
        A tensor that later writes to ``tensor`` do not change; None where :func:`readable` finds no values.
    """
    return captured(tensor)[0]


def captured(tensor: torch.Tensor, owned: Collection[int] = ()) -> tuple[torch.Tensor | None, bool]:
    """As :func:`capture`, and whether the tensor shares its storage with what was captured; never an owned storage."""
    values = readable(tensor)
    if values is not tensor:
        return _own(values, tensor), False
    detached = tensor.detach()
    if _lazy_clone is not None and type(tensor) in _PLAIN:
        try:
            if not owned or _storage(tensor) not in owned:
                return _lazy_clone(detached), True
        except RuntimeError:  # a storage that torch did not allocate: memory-mapped, shared, numpy's
            pass
    return detached.clone(), False


def _storage(tensor: torch.Tensor) -> int:
    identity: int = tensor.untyped_storage()._cdata  # noqa: SLF001 - which does not touch the (shared) data
    return identity


def storages_of(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Return the identities of the storages of tensors, for ``owned`` of :func:`captured`."""
    return {_storage(tensor) for tensor in tensors if type(tensor) in _PLAIN and is_plain(tensor)}


def _own(values: torch.Tensor | None, tensor: torch.Tensor) -> torch.Tensor | None:
    """Return values that no write to a tensor changes: bytes are read where they lie."""
    return values.clone() if values is not None and values.dtype == torch.uint8 != tensor.dtype else values


def version(tensor: torch.Tensor) -> int:
    """Return torch's own count of the writes to a tensor; -1 for one that keeps none."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 - there is no public name


class Captures:
    """The tensors captured during one forward; one that is seen again unchanged is not captured again.

    A module's input is most often its neighbour's output, so this halves what is kept.

    Args:
        owned: The parameters and buffers of the model, which share no memory with what is kept.
    """

    def __init__(self, owned: Iterable[torch.Tensor] = ()) -> None:
        self._owned = storages_of(owned)
        self._seen: dict[int, tuple[torch.Tensor, int, torch.Tensor | None, bool]] = {}

    def take(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Capture a tensor, or return the earlier capture of the same tensor if nothing wrote to it since."""
        if tensor.is_inference():  # keeps no count of its writes
            return capture(tensor)
        seen = self._seen.get(id(tensor))
        written = version(tensor)
        if seen is not None and seen[1] == written and (not seen[3] or still_shares(tensor)):
            return seen[2]
        kept, shares = captured(tensor, self._owned)
        self._seen[id(tensor)] = (tensor, written, kept, shares and still_shares(tensor))
        return kept


def still_shares(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor still shares its storage with a capture: a write, also one through ``.data``, ends that."""
    return _is_cow is not None and not _functorch.is_gradtrackingtensor(tensor) and bool(_is_cow(tensor))

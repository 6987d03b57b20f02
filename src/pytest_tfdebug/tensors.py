"""A tensor of any kind as one whose elements can be read: its dtype, its plain form, its record."""

from __future__ import annotations

import math
import re
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch.utils._pytree import tree_leaves

from pytest_tfdebug.records import TensorRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

_functorch = torch._C._functorch  # noqa: SLF001 - what a tensor is inside a transform has no public test
#: Classes of tensors that hold their elements as they are.
PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
#: A label that losses leave out: torch's own default of ``ignore_index``.
IGNORED_LABEL = -100
#: Dtypes that are reduced as they are; float16 and bfloat16 are summed in float32, the rest converted.
_WIDE = (torch.float32, torch.float64)
#: Dtypes that torch's kernels read; of others (``float4_e2m1fn_x2``, ``uint4``, ``bits8``) the bytes are read.
_READ_NAME = re.compile(r"torch\.(?:bool|bfloat16|complex\d+|float(?:16|32|64|8_\w+)|u?int(?:8|16|32|64))")
_READ = frozenset(
    each for each in vars(torch).values() if isinstance(each, torch.dtype) and _READ_NAME.fullmatch(str(each))
)


class Leaf(NamedTuple):
    """A tensor inside a nested value."""

    path: str  # how to reach it: ``[0]``, ``.logits``, ``['k']``, ``.layers[1].keys``; empty for the value itself
    tensor: torch.Tensor


def tensors_in(values: object) -> list[torch.Tensor]:
    """Return the tensors in nested arguments, or in what an operator gives, in their order."""
    return [each for each in tree_leaves(values) if isinstance(each, torch.Tensor)]


def is_plain(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor's own elements can be read as they lie: neither packed, sparse, nested nor a stand-in."""
    if tensor.is_meta or tensor.is_nested or tensor.layout != torch.strided or tensor.dtype not in _READ:
        return False
    return type(tensor) in PLAIN or not (_is_packed(tensor) or _has_no_values(tensor))


def readable(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor with the same values that can be read element by element: every kind of tensor is read here."""
    tensor = unwrapped(tensor)
    if tensor.is_meta or (storage_of(tensor) is None and type(tensor) in PLAIN and tensor.layout == torch.strided):
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
    """Return the record of a leaf, of the shape and dtype in which its values can be read."""
    path, tensor = leaf
    if kept is not None:
        return TensorRecord(path, tuple(kept.shape), dtype_name(kept.dtype), kept)
    shape = () if tensor.is_nested else tuple(tensor.shape)  # a ragged axis has no size
    return TensorRecord(path, shape, dtype_name(tensor.dtype), None)


@cache
def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a dtype, ``"float32"``."""
    return str(dtype).removeprefix("torch.")


def version(tensor: torch.Tensor) -> int:
    """Return torch's own count of the writes to a tensor; -1 for one that keeps none."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 - there is no public name


def storage_id(tensor: torch.Tensor) -> int:
    """Return torch's own key for the storage of a tensor; its data, which may be shared, is not touched."""
    storage = storage_of(tensor)
    identity: int = -id(tensor) if storage is None else storage._cdata  # noqa: SLF001 - there is no public name
    return identity


def storage_of(tensor: torch.Tensor) -> torch.UntypedStorage | None:
    """Return what holds the elements of a tensor; None of one inside a transform (``vmap``), sparse or packed."""
    try:
        return tensor.untyped_storage()
    except (NotImplementedError, RuntimeError):
        return None


def storage_bytes(tensor: torch.Tensor) -> int:
    """Return the bytes of what holds a tensor's elements; of a tensor without a storage, those of its elements."""
    storage = storage_of(tensor)
    return tensor.numel() * tensor.element_size() if storage is None else storage.nbytes()


def unwrapped(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor that ``torch.func.grad`` and its kind have wrapped to follow it; any other as it is.

    A wrapper must not outlive its transform: torch may crash.
    """
    while True:
        if _functorch.is_gradtrackingtensor(tensor):
            tensor = _functorch.get_unwrapped(tensor)
        elif torch._is_functional_tensor(tensor):  # noqa: SLF001 - as above
            torch._functionalize_sync(tensor)  # noqa: SLF001
            tensor = torch._from_functional_tensor(tensor)  # noqa: SLF001
        else:
            return tensor


def varies(tensor: torch.Tensor) -> bool:
    """Tell whether most elements of a tensor are finite, and they differ: one number throughout shows little."""
    flat = widen(tensor.detach()).flatten()
    finite = flat[flat.isfinite()]
    return 2 * finite.numel() >= max(flat.numel(), 1) and bool((finite != finite[0]).any())


def widen(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor as float32 or float64, so that it can be reduced and subtracted on any device.

    Complex tensors become their real and imaginary parts in a last axis of 2; integers become float64, which is exact
    up to 2**53.
    """
    if tensor.dtype in _WIDE:
        return tensor
    if tensor.is_complex():
        return widen(torch.view_as_real(tensor.resolve_conj()))
    return tensor.to(torch.float32 if tensor.is_floating_point() else torch.float64)


def norm_of(flat: torch.Tensor) -> float:
    """Return the root of the sum of the squares of the finite elements, also where a square leaves the dtype."""
    found, limits = float(torch.dot(flat, flat)), torch.finfo(flat.dtype)
    if limits.tiny / limits.eps < found < math.inf:
        return math.sqrt(found)
    finite = flat.nan_to_num(0.0, 0.0, 0.0)
    largest = float(finite.abs().max())
    return largest * float(torch.linalg.vector_norm(finite / largest)) if largest else 0.0

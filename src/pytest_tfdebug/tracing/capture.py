"""Keep a tensor as it is now, whatever is done to it later, without copying it.

``torch._lazy_clone`` makes both tensors share their storage until one of them is written to: capturing costs
microseconds, and a module that works in place pays for the copy itself. It is a private function of torch, called here
and nowhere else. Its limit: a write through memory that torch does not own (a numpy array that shares the storage) is
not seen; such storages refuse, and are copied.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.records import TensorRecord

if TYPE_CHECKING:
    from pytest_tfdebug.tracing.leaves import Leaf

_lazy_clone = getattr(torch, "_lazy_clone", None)
_is_cow = getattr(torch._C, "_is_cow_tensor", None)  # noqa: SLF001 - the other half of ``_lazy_clone``
_functorch = torch._C._functorch  # noqa: SLF001 - what a tensor is inside a transform has no public test
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def readable(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return a tensor with the same values that can be read element by element.

    Returns:
        The tensor itself when it is strided, its dense form when it is sparse; None where there are no values to read
        (meta tensors), only those of another tensor type (quantized and nested tensors), or none of its own (inside
        ``torch.vmap``).
    """
    if tensor.is_meta or tensor.is_quantized or tensor.is_nested or _functorch.is_batchedtensor(tensor):
        return None
    return tensor if tensor.layout == torch.strided else tensor.detach().to_dense()


def tensor_record(leaf: Leaf, kept: torch.Tensor | None) -> TensorRecord:
    """Return the record of a leaf.

    Args:
        leaf: Path and tensor.
        kept: The values to keep for it.
    """
    path, tensor = leaf
    shape = tuple(tensor.shape)
    if tensor.is_nested:
        shape = tuple(size if isinstance(size, int) else -1 for size in shape)  # a ragged axis has no size
    return TensorRecord(path, shape, dtype_name(tensor.dtype), kept)


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
    return _captured(tensor)[0]


def _captured(tensor: torch.Tensor) -> tuple[torch.Tensor | None, bool]:
    """As :func:`capture`, and whether the tensor shares its storage with what was captured."""
    values = readable(tensor)
    if values is not tensor:
        return values, False
    detached = tensor.detach()
    if _lazy_clone is not None and type(tensor) in _PLAIN:
        try:
            return _lazy_clone(detached), True
        except RuntimeError:  # a storage that torch did not allocate: memory-mapped, shared, numpy's
            pass
    return detached.clone(), False


def version(tensor: torch.Tensor) -> int:
    """Return torch's own count of the writes to a tensor; -1 for one that keeps none."""
    return -1 if tensor.is_inference() else tensor._version  # noqa: SLF001 - there is no public name


class Captures:
    """The tensors captured during one forward; one that is seen again unchanged is not captured again.

    A module's input is most often its neighbour's output, so this halves what is kept.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[torch.Tensor, int, torch.Tensor | None, bool]] = {}

    def take(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Capture a tensor, or return the earlier capture of the same tensor if nothing wrote to it since."""
        if tensor.is_inference():  # keeps no count of its writes
            return capture(tensor)
        seen = self._seen.get(id(tensor))
        written = version(tensor)
        if seen is not None and seen[1] == written and (not seen[3] or _still_shares(tensor)):
            return seen[2]
        kept, shares = _captured(tensor)
        self._seen[id(tensor)] = (tensor, written, kept, shares and _still_shares(tensor))
        return kept


def _still_shares(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor still shares its storage with a capture: a write, also one through ``.data``, ends that."""
    return _is_cow is not None and not _functorch.is_gradtrackingtensor(tensor) and bool(_is_cow(tensor))

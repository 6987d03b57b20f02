"""Keep a tensor as it is now, whatever is done to it later, without copying it.

``torch._lazy_clone`` makes both tensors share their storage until one of them is written to: capturing costs
microseconds, and a module that works in place pays for the copy itself. It is a private function of torch, called here
and nowhere else. Its limit: a write through memory that torch does not own (a numpy array that shares the storage) is
not seen; such storages refuse, and are copied. What a model owns is copied too: its memory stays where it is.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import torch

from pytest_tfdebug.tensors import PLAIN, is_plain, readable, storage_id, version
from pytest_tfdebug.tracing.record.leaves import replaced

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


_T = TypeVar("_T")
_lazy_clone = getattr(torch, "_lazy_clone", None)
_is_cow = getattr(torch._C, "_is_cow_tensor", None)  # noqa: SLF001 - the other half of ``_lazy_clone``
_functorch = torch._C._functorch  # noqa: SLF001 - what a tensor is inside a transform has no public test


def capture(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the values of a tensor as they are now, detached from autograd."""
    return captured(tensor)[0]


def captured(tensor: torch.Tensor, owned: Collection[int] = ()) -> tuple[torch.Tensor | None, bool]:
    """As :func:`capture`, and whether the tensor shares its storage with what was captured; never an owned storage."""
    values = readable(tensor)
    if values is not None and values.dtype == torch.uint8 != tensor.dtype:  # bytes are read where they lie
        return values.clone(), False
    if values is not tensor:
        return values, False
    detached = tensor.detach()
    if _lazy_clone is not None and type(tensor) in PLAIN:
        try:
            if not owned or storage_id(tensor) not in owned:
                return _lazy_clone(detached), True
        except RuntimeError:  # a storage that torch did not allocate: memory-mapped, shared, numpy's
            pass
    return detached.clone(), False


def storages_of(tensors: Iterable[torch.Tensor]) -> set[int]:
    """Return the identities of the storages of tensors, for ``owned`` of :func:`captured`."""
    return {storage_id(tensor) for tensor in tensors if type(tensor) in PLAIN and is_plain(tensor)}


class SeenTensors(Generic[_T]):
    """What was made of the tensors of a forward, of each as long as it lives and nobody writes to it.

    A module's input is most often its neighbour's output, so this halves what is done.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[weakref.ref[torch.Tensor], int, bool, _T]] = {}

    def of(self, tensor: torch.Tensor) -> _T | None:
        """Return what was made of a tensor; None for a new one, one that was written to, and one that cannot tell."""
        seen = self._seen.get(id(tensor))
        if seen is None or seen[0]() is not tensor or not seen[1] == version(tensor) >= 0:
            return None
        return None if seen[2] and not still_shares(tensor) else seen[3]

    def note(self, tensor: torch.Tensor, made: _T, *, shares: bool = False) -> _T:
        """Keep what was made of a tensor, and return it."""
        self._seen[id(tensor)] = weakref.ref(tensor), version(tensor), shares and still_shares(tensor), made
        return made


class Captures:
    """The tensors captured during one forward; one that is seen again unchanged is not captured again."""

    def __init__(self, owned: Iterable[torch.Tensor] = ()) -> None:
        self._owned = storages_of(owned)
        self._seen: SeenTensors[torch.Tensor | None] = SeenTensors()

    def take(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Capture a tensor, or return the earlier capture of the same tensor if nothing wrote to it since."""
        seen = self._seen.of(tensor)
        if seen is not None:
            return seen
        kept, shares = captured(tensor, self._owned)
        return self._seen.note(tensor, kept, shares=shares)


def still_shares(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor still shares its storage with a capture: a write, also one through ``.data``, ends that."""
    return _is_cow is not None and not _functorch.is_gradtrackingtensor(tensor) and bool(_is_cow(tensor))


def kept(value: Any) -> Any:  # noqa: ANN401 - any input
    """Return a copy of a nested input, caches included, whose tensors share their storage until they are written to."""
    return replaced(value, _captured)


def _captured(tensor: torch.Tensor) -> torch.Tensor:
    values = capture(tensor) if tensor.layout == torch.strided else None
    return tensor if values is None else values

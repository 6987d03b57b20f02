"""Keep a tensor as it is now, whatever is done to it later, without copying it.

``torch._lazy_clone`` makes both tensors share their storage until one of them is written to: capturing costs
microseconds, and a module that works in place pays for the copy itself. It is a private function of torch, called here
and nowhere else. Its limit: a write through memory that torch does not own (a numpy array that shares the storage) is
not seen; such storages refuse, and are copied.
"""

from __future__ import annotations

import torch

_lazy_clone = getattr(torch, "_lazy_clone", None)
_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def capture(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the values of a tensor as they are now, detached from autograd.

    Args:
        tensor: Any tensor: any dtype, strided or not, empty, a view.

    Returns:
        A tensor that later writes to ``tensor`` do not change; None for meta tensors, which have no values.
    """
    if tensor.is_meta:
        return None
    detached = tensor.detach()
    if _lazy_clone is not None and type(tensor) in _PLAIN and tensor.layout == torch.strided:
        try:
            kept: torch.Tensor = _lazy_clone(detached)
        except RuntimeError:  # a storage that torch did not allocate: memory-mapped, shared, numpy's
            return detached.clone()
        return kept
    return detached.clone()


class Captures:
    """The tensors captured during one forward; one that is seen again unchanged is not captured again.

    A module's input is most often its neighbour's output, so this halves what is kept.
    """

    def __init__(self) -> None:
        self._seen: dict[int, tuple[torch.Tensor, int, torch.Tensor | None]] = {}

    def take(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Capture a tensor, or return the earlier capture of the same tensor if nothing wrote to it since."""
        if tensor.is_inference():  # keeps no count of its writes
            return capture(tensor)
        seen = self._seen.get(id(tensor))
        version = tensor._version  # noqa: SLF001 - torch's own count of in-place writes
        if seen is not None and seen[1] == version:
            return seen[2]
        kept = capture(tensor)
        self._seen[id(tensor)] = (tensor, version, kept)
        return kept

"""The scores that an attention mask hides: they are -inf, or as low as the dtype goes, by design."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

#: An additive mask hides what it lowers by this much or more: -10000 is the classic value for float16, others lower.
_HIDES = -1e4
#: A score of any real size under such a mask stays below this.
_HIDDEN = -5e3


def without_hidden(tensor: torch.Tensor, masks: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield a tensor with 0 where a mask hides it: once for each mask, and each way to read it, that fits its shape.

    Only elements that are low enough to have been hidden become 0: nan and +inf stay.
    """
    for mask in masks:
        aligned = _aligned(mask, tensor)
        if aligned is None:
            continue
        for hides in _readings(aligned):
            yield tensor.masked_fill(hides & (tensor < _HIDDEN), 0)


def has_masked_row(mask: torch.Tensor) -> bool:
    """Tell whether some query sees no key at all: the softmax over such a row is nan."""
    if mask.dim() < 2 or not mask.numel():  # noqa: PLR2004 - a row needs a batch or query axis
        return False
    hides = mask <= _HIDES if mask.is_floating_point() else mask == 0
    return bool(hides.all(-1).any())


def _readings(mask: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield where a mask hides: additive masks say it; of boolean and 0/1 masks both polarities are in use.

    A mask of ones hides nothing: a reading by which it would hide everything is not taken.
    """
    if mask.is_floating_point():
        yield mask <= _HIDES
    else:
        for hides in (mask == 0, mask != 0):
            yield hides & ~hides.all()


def _aligned(mask: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor | None:
    if mask.dim() == 2 and tensor.dim() > 2 and mask.shape == (tensor.shape[0], tensor.shape[-1]):  # noqa: PLR2004
        mask = mask.view(mask.shape[0], *[1] * (tensor.dim() - 2), mask.shape[1])
    if mask.device != tensor.device or mask.dim() > tensor.dim():
        return None
    sizes = zip(reversed(mask.shape), reversed(tensor.shape), strict=False)
    return mask if all(size in (1, wanted) for size, wanted in sizes) else None

"""``positions=``: which elements of an output count, by a mask of its leading axes or by an index."""

from __future__ import annotations

from typing import Any

import torch

from pytest_tfdebug.errors import TFDebugError, a_or_an


def check_positions(given: object) -> None:
    """Refuse what is neither a mask of 0s and 1s nor an index, and what may be either."""
    if given is None:
        return
    if not _is_index(given):
        raise TFDebugError(
            f"positions= is a mask or an index; it is {a_or_an(type(given).__name__)}.\n"
            "A mask is a tensor: positions=attention_mask. An index is (slice(None), -1), for the last position."
        )
    mask = mask_of(given)
    if mask is None:
        return
    if not mask.any():
        raise TFDebugError(
            f"positions= is a mask of shape {tuple(mask.shape)} in which no position counts.\n"
            "A mask holds 1 (or True) where a position counts."
        )
    if mask.dtype == torch.bool:
        return
    if mask.dim() == 1 and not mask.is_floating_point():
        raise TFDebugError(
            f"positions= is a tensor of {mask.numel()} integers, which may be a mask or an index.\n"
            "Write which: positions=mask.bool() for a mask, positions=index.tolist() for an index."
        )
    others = mask[(mask != 0) & (mask != 1)]
    if others.numel():
        raise TFDebugError(
            f"positions= holds {others[0].item():g}, and a mask holds 1 where a position counts and 0 where not.\n"
            "Of a mask that is added to scores, positions=mask == 0 are those that count."
        )


def mask_of(given: object) -> torch.Tensor | None:
    """Return positions that are a mask; None for an index."""
    return given if isinstance(given, torch.Tensor) and given.dim() else None


def counting(given: Any, shape: tuple[int, ...]) -> torch.Tensor | None:  # noqa: ANN401 - a mask or an index
    """Tell of each element of an output whether it counts.

    Returns:
        Booleans of the output's shape; None where the output does not have these positions, so that all count.
    """
    mask = mask_of(given)
    if mask is not None:
        if tuple(mask.shape) != shape[: mask.dim()]:
            return None
        return mask.bool().cpu().reshape(mask.shape + (1,) * (len(shape) - mask.dim())).expand(shape)
    counts = torch.zeros(shape, dtype=torch.bool)
    try:
        counts[given] = given is not None
    except (IndexError, TypeError):
        return None
    return counts if counts.any() else None


def _is_index(value: object) -> bool:
    """Tell whether a tensor can be indexed with a value, and the value is nothing that only looks like a mask."""
    if isinstance(value, tuple):
        return all(map(_is_index, value))
    if isinstance(value, list):
        return all(isinstance(item, int) and not isinstance(item, bool) for item in value)
    is_place = value is None or isinstance(value, (int, slice, torch.Tensor, type(...)))
    return is_place and not isinstance(value, bool)

"""Two tensors of one shape, piece by piece: the memory that a measurement takes does not grow with the tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from pytest_tfdebug.tensors import widen

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Elements of a piece: 1 MiB of float32, which stays in the cache of a processor between two passes.
PIECE = 2**18
#: Elements of a piece on a device, or on its way from one: 16 MiB of float32, since each piece is waited for.
DEVICE_PIECE = 2**22


def pieces(expected: torch.Tensor, actual: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield two tensors of one shape in pieces, on the device of the expected one.

    The pieces come in the order of the elements and the first is as large as any; a small tensor is one piece.
    """
    if expected.numel() <= PIECE and expected.device == actual.device:
        yield expected, actual
        return
    size = PIECE if expected.is_cpu else DEVICE_PIECE
    if expected.device == actual.device:
        yield from _split(expected, actual, size)
    else:
        for e, a in _split(expected, actual, DEVICE_PIECE):
            yield from _split(e, a.to(e.device), size)


def filled(expected: torch.Tensor, actual: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield the widened pieces of two tensors, with 0 in both where one of them is inf or nan."""
    for pair in pieces(expected, actual):
        e, a = map(widen, pair)
        holes = torch.isfinite(e).logical_and_(torch.isfinite(a)).logical_not_()
        yield e.masked_fill(holes, 0.0), a.masked_fill(holes, 0.0)


def index_of(position: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the index of an element by its position in the order of the elements."""
    return tuple(int(place) for place in np.unravel_index(position, shape))


def _split(expected: torch.Tensor, actual: torch.Tensor, size: int) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    if expected.numel() <= size:
        yield expected, actual
    elif expected.is_contiguous() and actual.is_contiguous():
        yield from zip(torch.split(expected.view(-1), size), torch.split(actual.view(-1), size), strict=True)
    else:
        rows = max(1, size * len(expected) // expected.numel())
        for e, a in zip(torch.split(expected, rows), torch.split(actual, rows), strict=True):
            yield from _split(e, a, size) if rows > 1 else _split(e[0], a[0], size)

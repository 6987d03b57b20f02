"""The elements of one tensor on both sides, as a grid that a page can draw."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.check_record import ElementGrid, Histogram

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.parity.tensors.tolerance import Tolerance

#: Cells of the grid along each side; a larger tensor is shown by the worst element of each block.
_CELLS = 96
_BINS = 40
_ROW_AND_COLUMN = 2


def element_grid(
    tensor: str,
    expected: torch.Tensor,
    actual: torch.Tensor,
    tolerance: Tolerance,
    axes: Sequence[str] = (),
) -> ElementGrid | None:
    """Return the elements of two tensors of one shape; None where they have none to show."""
    if expected.shape != actual.shape or not expected.numel() or expected.is_complex():
        return None
    flat_e, flat_a = (_as_rows(each) for each in (expected, actual))
    rows, columns = flat_e.shape
    block = -(-rows // _CELLS), -(-columns // _CELLS)
    e, a = _worst_of_blocks(flat_e, flat_a, block)
    sizes = (flat_a - flat_e).abs().flatten().log10()  # -inf for what is equal
    atol = tolerance.absolute(float(flat_e.square().mean().sqrt()))
    return ElementGrid(
        tensor,
        tuple(expected.shape),
        tuple(axes) or axis_names(expected.shape, ()),
        e.shape[0],
        e.shape[1],
        block,
        _numbers(e),
        _numbers(a),
        _numbers(atol + tolerance.rtol * e.abs()),
        _histogram(*(each[torch.isfinite(each)] for each in (flat_e, flat_a))),
        _histogram(sizes[torch.isfinite(sizes)], sizes[:0]),
    )


def axis_names(shape: Sequence[int], ids: Sequence[int]) -> tuple[str, ...]:
    """Return what the axes of a tensor are, as far as the shape ``(batch, tokens)`` of a model's ids tells."""
    names = [f"axis {place}" for place in range(len(shape))]
    if len(ids) != _ROW_AND_COLUMN or not shape or shape[0] != ids[0]:
        return tuple(names)
    names[0] = "batch"
    tokens = [place for place in range(1, len(shape)) if shape[place] == ids[1]]
    for place, name in zip(tokens, ("token", "key token"), strict=False):
        names[place] = name
    if names[-1].startswith("axis"):
        names[-1] = "feature"
    return tuple(names)


def _as_rows(tensor: torch.Tensor) -> torch.Tensor:
    wide = tensor.detach().to("cpu", torch.float64)
    return wide.reshape(-1, wide.shape[-1]) if wide.dim() > 1 else wide.reshape(1, -1)


def _worst_of_blocks(
    expected: torch.Tensor, actual: torch.Tensor, block: tuple[int, int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the element of each block that differs most."""
    if block == (1, 1):
        return expected, actual
    difference = (actual - expected).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    chosen = torch.nn.functional.max_pool2d(difference[None], block, ceil_mode=True, return_indices=True)[1][0]
    return expected.flatten()[chosen], actual.flatten()[chosen]


def _numbers(tensor: torch.Tensor) -> tuple[float, ...]:
    return tuple(float(f"{number:.6g}") for number in tensor.flatten().tolist())


def _histogram(expected: torch.Tensor, actual: torch.Tensor) -> Histogram | None:
    both = torch.cat((expected, actual))
    if not both.numel():
        return None
    low, high = float(both.min()), float(both.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    edges = torch.linspace(low, high, _BINS + 1, dtype=torch.float64)
    counts = [torch.histc(each, _BINS, low, high).long().tolist() for each in (expected, actual)]
    return Histogram(_numbers(edges), tuple(counts[0]), tuple(counts[1]))

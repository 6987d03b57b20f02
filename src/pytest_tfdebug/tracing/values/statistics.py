"""Summaries of tensors: computed on the tensor's device, read back once for all of them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.records import Statistics
from pytest_tfdebug.tensors import widen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pytest_tfdebug.records import TensorRecord

_NAN = float("nan")
_EMPTY = Statistics(_NAN, _NAN, _NAN, _NAN, 0)
#: Below this sum the squares of float32 numbers have lost digits, or vanished.
_TINY = 1e-30
#: Elements that are widened at once.
_PIECE = 2**20


def summarize(records: Iterable[TensorRecord]) -> None:
    """Fill in the statistics of the records that have none; a tensor that several records share is read once."""
    waiting: dict[int, list[TensorRecord]] = {}
    for record in records:
        if record.statistics is None and record.tensor is not None:
            waiting.setdefault(id(record.tensor), []).append(record)
    tensors = [group[0].tensor for group in waiting.values()]
    for group, result in zip(waiting.values(), statistics([t for t in tensors if t is not None]), strict=True):
        for record in group:
            record.statistics = result


@torch.no_grad()
def statistics(tensors: list[torch.Tensor]) -> list[Statistics]:
    """Return the summary of each tensor.

    Minimum, maximum, mean and the sum of squared deviations are four passes at the speed of memory; inf and nan are
    counted only where the extremes are not finite.
    """
    reduced: dict[torch.device, tuple[list[int], list[torch.Tensor]]] = {}
    results = [_EMPTY] * len(tensors)
    for position, tensor in enumerate(tensors):
        if tensor.numel():
            places, values = reduced.setdefault(tensor.device, ([], []))
            places.append(position)
            values.append(_reduce(tensor))
    for places, values in reduced.values():
        for position, row in zip(places, torch.stack(values).tolist(), strict=True):
            results[position] = _finish(tensors[position], row)
    return results


def _reduce(tensor: torch.Tensor, wide: Callable[[torch.Tensor], torch.Tensor] = widen) -> torch.Tensor:
    """Return the extremes, the mean and the sum of squared deviations; a large tensor is widened a piece at a time.

    Source:
        Chan, Golub, LeVeque 1979, "Updating formulae and a pairwise algorithm for computing sample variances".
    """
    pieces = _pieces(tensor)
    found = torch.empty(len(pieces), 4, dtype=torch.float64, device=tensor.device)
    for row, piece in zip(found, pieces, strict=True):
        row.copy_(_of_piece(wide(piece)))
    if len(pieces) == 1:
        return found[0]
    sizes = found.new_tensor([piece.numel() for piece in pieces]) * (2 if tensor.is_complex() else 1)
    low, high, means, squares = found.unbind(1)
    mean = (sizes @ means) / sizes.sum()
    return torch.stack([low.min(), high.max(), mean, squares.sum() + sizes @ (means - mean).square()])


def _of_piece(wide: torch.Tensor) -> torch.Tensor:
    lowest, highest = torch.aminmax(wide)
    mean = wide.mean()
    deviation = wide.sub(mean).flatten()
    return torch.stack([lowest, highest, mean, torch.dot(deviation, deviation)])


def _pieces(tensor: torch.Tensor) -> Sequence[torch.Tensor]:
    return (tensor,) if tensor.numel() <= _PIECE else torch.split(tensor.reshape(-1), _PIECE)


def _finish(tensor: torch.Tensor, row: list[float]) -> Statistics:
    lowest, highest, mean, squares = row
    is_finite = math.isfinite(lowest) and math.isfinite(highest)
    vanished = lowest < highest and squares < _TINY
    if is_finite and (vanished or not math.isfinite(squares)):  # the squares left the range of float32
        _, _, mean, squares = _reduce(tensor, lambda piece: widen(piece).double()).tolist()
    count = tensor.numel() * (2 if tensor.is_complex() else 1)
    std = math.sqrt(squares / (count - 1)) if count > 1 and math.isfinite(squares) else _NAN
    if is_finite:
        return Statistics(lowest, highest, mean, std, 0)
    finite = sum(int(torch.isfinite(piece).sum()) for piece in map(widen, _pieces(tensor)))
    return Statistics(lowest, highest, mean, std, count - finite)

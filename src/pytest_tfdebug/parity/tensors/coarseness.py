"""Would a wrong answer have passed: how much a tolerance allows, beside how far the values are spread.

One tolerance holds for a whole output. Where a few numbers are huge (a masked vocabulary, a massive token), or all are
tiny, or a probability is nearly 1, it allows more than the other values differ by, and any port passes there.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.parity.tensors.metrics import compare_leaf, out_of_scale
from pytest_tfdebug.parity.tensors.tolerance import NOISE_REACH
from pytest_tfdebug.records import TensorRecord
from pytest_tfdebug.tensors import dtype_name, norm_of, widen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.parity.tensors.tolerance import Tolerance

#: Share of the spread of a row or column above which what is allowed there is coarse. In 846 outputs of 165 forwards of
#: transformers the coarsest is 3e-3 in float32 (0.035 in float16, 0.28 in bfloat16), but for caches of about 1e-7;
#: ramps, as tests of small modules take, have up to 0.016; the mildest of nine outputs that hid a fault is 0.14.
_LIMITS = {"float64": 3e-2, "float32": 3e-2, "float16": 0.1, "bfloat16": 1.0}
#: The same for a tolerance that somebody gave: what it allows was meant, unless it allows everything.
_GIVEN = 1.0
#: Share of the rows, or of the columns, that must be coarse.
_SHARE = 0.05
#: Rows with no more numbers above the tolerance than these are one-hot; half of the rows must be.
_ONE_HOT, _HALF = 3, 0.5
#: Numbers that a row needs for a spread, and for being one-hot or mostly zeros.
_FEWEST, _MANY = 4, 12
#: Rows and columns that are looked at, evenly spread: it takes as long for a vocabulary of 150,000.
_ROWS, _COLUMNS = 256, 1024
#: How many times greater than the rest numbers are that set the scale.
_HUGE = 100.0
_MATRIX = 2


class Coarse(NamedTuple):
    """A part of an output where nearly everything would pass."""

    part: tuple[slice, ...]  # which part: of the rows, or of all rows and of the last axis
    allowed: float  # what is allowed there
    spread: float  # between the tenth and the ninetieth percentile of the values there
    why: str  # what makes it so, in a sentence, with what to do


def told_coarse(name: str, output: torch.Tensor, tolerance: Tolerance) -> str:
    """Say what would pass in place of an output; empty where its tolerance tells its values apart.

    Args:
        name: What the output is called: ``logits``.
        output: The output, of any shape; its last axis is that of features.
        tolerance: What the comparison allows.

    Returns:
        A sentence with what a wrong port may return, and one with what to do.
    """
    if tolerance.scaled and (huge := out_of_scale(output)) is not None:  # the comparison looks at the rest apart
        output = output.masked_fill(huge, 0)
    found = _coarse_part(output, tolerance)
    if found is None:
        return ""
    place = f"{name}{_shown(found.part, output.ndim)}"
    would = next((told for told, other in _alternatives(output, found) if _passes(output, other, tolerance)), "")
    wrong = f"A port that returns {would} for {place} would pass too" if would else f"{place} is hardly compared"
    figures = f"up to {found.allowed:.1g} is allowed there, and its values are spread over {found.spread:.1g}"
    return f"{wrong}: {figures}. {found.why}"


def _coarse_part(output: torch.Tensor, tolerance: Tolerance) -> Coarse | None:
    limit = _LIMITS.get(dtype_name(output.dtype))
    if limit is None or output.numel() < 2 * _FEWEST or output.ndim == 0:
        return None
    table = output.detach().reshape(-1, output.shape[-1]) if output.ndim > 1 else output.detach()[None]
    flat = widen(table).nan_to_num(0.0, 0.0, 0.0).flatten()
    allowed = _Allowed(tolerance, norm_of(flat), flat.numel(), limit if tolerance.scaled else _GIVEN)
    rows, columns = _evenly(len(table), _ROWS), _evenly(table.shape[1], _COLUMNS)
    grid = widen(table[rows]).nan_to_num(0.0, 0.0, 0.0).double()
    both = [(columns, grid[:, columns].t()), (rows, grid)]
    judged = [(float((coarse := allowed.is_coarse(groups)).double().mean()), coarse) for _, groups in both]
    # of a part that is coarse beside one that is not, rather than of all
    worst = max(range(len(both)), key=lambda axis: (_SHARE <= judged[axis][0] < 1, judged[axis][0]))
    (places, groups), (share, coarse) = both[worst], judged[worst]
    saturated = _saturated(grid, allowed.atol)
    if saturated is not None or share < _SHARE:
        return saturated
    first, last = _longest_run(coarse)
    part = slice(int(places[first]) or None, None if last == len(places) - 1 else int(places[last]) + 1)
    some = groups[first : last + 1]
    why = _why(float(flat.abs().max()), some, allowed.atol)
    return Coarse((part,) if places is rows else (slice(None), part), *allowed.figures(some), why)


class _Allowed:
    """What a tolerance allows of an output.

    Args:
        tolerance: The tolerance.
        norm: Norm of the output.
        count: Number of its elements.
        limit: Share of its spread above which what is allowed of a row is coarse.
    """

    def __init__(self, tolerance: Tolerance, norm: float, count: int, limit: float) -> None:
        self._tolerance, self._norm, self._limit = tolerance, norm, limit
        self.atol = tolerance.absolute(norm / math.sqrt(count))

    def _measured(self, groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what is allowed in each group of numbers, and how far its middle eighty percent are spread."""
        counts = groups != 0
        allowed = self.atol + self._tolerance.rtol * groups.abs()
        if self._tolerance.noise:  # a group may be off by all that is noise of the whole
            noise = torch.full_like(allowed, self._tolerance.noise * self._norm / math.sqrt(groups.shape[1]))
            allowed = allowed.maximum((NOISE_REACH * allowed).minimum(noise))
        tenths = groups.new_tensor([0.1, 0.9])
        low, high = torch.nanquantile(groups.masked_fill(~counts, math.nan), tenths, dim=1).nan_to_num(0.0)
        return allowed.masked_fill(~counts, math.nan).nanmedian(1).values.nan_to_num(0.0), high - low

    def is_coarse(self, groups: torch.Tensor) -> torch.Tensor:
        """Tell which groups of numbers are allowed more than a share of their spread; none of one number throughout."""
        if groups.shape[1] < _FEWEST:
            return torch.zeros(len(groups), dtype=torch.bool)
        allowed, spread = self._measured(groups)
        is_few = ((groups != 0).sum(1) < _FEWEST) & ((groups.shape[1] > _MANY) | (spread == 0))
        return (allowed > self._limit * spread) & ~(groups == groups[:, :1]).all(1) & ~is_few

    def figures(self, groups: torch.Tensor) -> tuple[float, float]:
        """Return what is allowed in some groups, and how far they are spread."""
        allowed, spread = self._measured(groups)
        return float(allowed.median()), float(spread.median())


def _why(largest: float, groups: torch.Tensor, atol: float) -> str:
    """Say what makes a part of an output coarse, and what to do."""
    if largest > _HUGE * float(groups.abs().median()) and largest > atol:
        return (
            f"Numbers of up to {largest:.1g} set the scale for all. Compare them apart: outputs= with the parts, "
            "positions=, or return what is computed before they are filled in."
        )
    return (
        "Its values are as small as the absolute tolerance. Return what they are computed from as well, take weights "
        "that give more (pytest_tfdebug.fill(model)), or give tolerance=(rtol, atol)."
    )


def _saturated(grid: torch.Tensor, atol: float) -> Coarse | None:
    """Return the whole, if it is of probabilities of which only a few in each row are above the tolerance."""
    if float(grid.min()) < 0 or float(grid.max()) > 1 + atol:
        return None
    above = (grid.abs() > atol).sum(1)
    is_hot = (above <= _ONE_HOT) & (above > 0)
    if grid.shape[1] <= _MANY or float(is_hot.double().mean()) < _HALF or _is_exact(grid):
        return None
    rest = grid.abs().kthvalue(grid.shape[1] // 2 + 1, 1).values
    why = "But for a few numbers of each row, all are below the tolerance. Return the logits as well."
    return Coarse((slice(None),), atol, float(rest.median()), why)


def _shown(index: tuple[slice, ...], axes: int) -> str:
    """Return a part as it is typed: ``[..., 5000:]``; empty for the whole."""
    part = index[-1]
    if part == slice(None):
        return ""
    written = f"{'' if part.start is None else part.start}:{'' if part.stop is None else part.stop}"
    if len(index) > 1:
        return f"[..., {written}]"
    return f"[{written}]" if axes <= _MATRIX else f".flatten(0, -2)[{written}]"


def _is_exact(grid: torch.Tensor) -> bool:
    """Tell whether a tensor is 0 but for a few numbers: a one-hot vector as it is meant."""
    return bool(((grid != 0).sum(1) <= _ONE_HOT).all())


def _evenly(size: int, most: int) -> torch.Tensor:
    return torch.arange(size) if size <= most else torch.linspace(0, size - 1, most).long()


def _longest_run(flags: torch.Tensor) -> tuple[int, int]:
    """Return first and last position of the longest run of what is true."""
    best, start = (0, -1), None
    for position, flag in enumerate([*flags.tolist(), False]):
        if flag and start is None:
            start = position
        elif not flag and start is not None:
            best = max(best, (start, position - 1), key=lambda run: run[1] - run[0])
            start = None
    return best


def _alternatives(output: torch.Tensor, part: Coarse) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield wrong outputs, the gravest first, that differ from an output in a part of it; and say what they are."""
    changes: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
        "zeros": torch.zeros_like,
        "the values of other rows": lambda held: held.roll(1, 0),
        "its values in another order": lambda held: held.roll(1, -1),
        "1 % more": lambda held: held * 1.01,
    }
    rows = output.reshape(-1, output.shape[-1]) if output.ndim > 1 else output[None]
    for told, change in changes.items():
        other = rows.clone()
        other[part.part] = change(rows[part.part])
        if not torch.equal(other, rows):
            yield told, other.reshape(output.shape)


def _passes(output: torch.Tensor, other: torch.Tensor, tolerance: Tolerance) -> bool:
    """Tell whether a comparison would take another output for this one."""
    mine, theirs = (
        TensorRecord("", tuple(each.shape), dtype_name(each.dtype), each.detach()) for each in (other, output)
    )
    return not compare_leaf("output", mine, theirs, tolerance).problem

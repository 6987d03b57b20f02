"""What is kept of a gradient: a few sums over its elements, weighed by functions of the value that it belongs to.

The sums do not see the layout, and are linear in the gradient: those of a value that is used twice, computed twice or
cut into pieces add up. So two implementations can be held to each other value by value, whatever their structure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from pytest_tfdebug.tensors import widen

if TYPE_CHECKING:
    import numpy.typing as npt

    from pytest_tfdebug.values import Fingerprint

    Floats = npt.NDArray[np.float64]

#: Functions of a value by which its gradient is weighed.
WEIGHINGS = 5
#: Elements that are weighed at a time: they stay in a CPU's cache.
_PIECE = 1 << 16
#: Larger magnitudes, over the value's size, stand for infinity: what a mask hides has no gradient.
_HUGE = 1e15
#: Share of its size up to which a gradient is another one's multiple: right ones of float32 are within 1e-6, and the
#: smallest error that a wrong line was seen to make is 5e-3.
SAME = 1e-4
#: Share of the greatest sum of value times gradient of a step below which a difference is nothing but rounding.
NOISE = 1e-7


class GradientSums(NamedTuple):
    """What is kept of one gradient: ``(WEIGHINGS,)`` each, in float64."""

    sums: Floats  # sums over the elements of weighing times gradient
    sizes: Floats  # sums of the absolute values of the same, which say how exact a sum can be

    def __add__(self, other: object) -> GradientSums:
        if not isinstance(other, GradientSums):
            return NotImplemented
        return GradientSums(self.sums + other.sums, self.sizes + other.sizes)

    def times(self, k: float) -> GradientSums:
        """Return the sums of k times the gradient."""
        return GradientSums(self.sums * k, self.sizes * abs(k))

    @property
    def size(self) -> float:
        """Sum of the absolute values of the gradient."""
        return float(self.sizes[0])


NOTHING = GradientSums(np.zeros(WEIGHINGS), np.zeros(WEIGHINGS))


def weighed(value: torch.Tensor, gradient: torch.Tensor, known: Fingerprint) -> torch.Tensor:
    """Return the sums of a gradient, ``(2, WEIGHINGS)`` in float64, on the device where it is.

    Args:
        value: The value, of any shape.
        gradient: Its gradient, of the same shape.
        known: The value's fingerprint.
    """
    flat, slopes = _flat(value), _flat(gradient)
    found = torch.zeros(2, WEIGHINGS, dtype=torch.float64, device=slopes.device)
    functions = flat.new_empty(WEIGHINGS, min(len(flat), _PIECE))
    for piece, slope in zip(torch.split(flat, _PIECE), torch.split(slopes, _PIECE), strict=True):
        own = functions[:, : len(piece)]
        _weigh(own, piece, known.rms or 1.0, has_huge=known.finite < known.elements)
        found[0] += own @ slope
        found[1] += own.abs_() @ slope.abs()
    return found


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Return the numbers of a tensor in a row, in float32 at least: sums of that are exact enough for a gradient."""
    return widen(tensor.detach()).reshape(-1)


def _weigh(functions: torch.Tensor, piece: torch.Tensor, scale: float, *, has_huge: bool) -> None:
    """Write 1, x, x^2 - 1, x / (1 + x^2) and (1 - x^2) / (1 + x^2) of each element over its scale."""
    ones, own, square, odd, even = functions
    ones.fill_(1.0)
    torch.div(piece, scale, out=own)
    if has_huge:
        own.masked_fill_(~(own.abs() < _HUGE), 0.0)
    torch.mul(own, own, out=square)
    torch.add(square, 1.0, out=even).reciprocal_()
    torch.mul(own, even, out=odd)
    even.mul_(2.0).sub_(1.0)
    square.sub_(1.0)


class Difference(NamedTuple):
    """How a gradient differs from the one that it is held to."""

    error: float  # greatest difference of a sum, as a share of the greatest size
    own: GradientSums
    expected: GradientSums


def difference(own: list[GradientSums], expected: list[GradientSums], floor: float) -> Difference:
    """Return the least difference between ways to take a gradient on both sides.

    Args:
        own: The port's.
        expected: The reference's.
        floor: What rounding leaves of a sum of value times gradient, where what it is made of cancels.
    """
    best: Difference | None = None
    for mine in own:
        for theirs in expected:
            size = float(np.maximum(mine.sizes, theirs.sizes).max())
            error = float(np.abs(mine.sums - theirs.sums).max()) / max(size, 1e-300)
            if error * max(mine.sizes[1], theirs.sizes[1]) <= floor:
                error = 0.0
            if best is None or error < best.error:
                best = Difference(error, mine, theirs)
    return best or Difference(0.0, NOTHING, NOTHING)


class Effect(NamedTuple):
    """What is wrong with a gradient."""

    kind: str  # ``none``: there is none; ``extra``: there should be none; ``factor``; ``other``
    factor: float = 0.0  # the gradient over the expected one, where the one is a multiple of the other

    def __str__(self) -> str:
        if self.kind == "none":
            return "gets no gradient"
        if self.kind == "extra":
            return "gets a gradient, and should get none"
        if self.kind == "factor":
            if abs(self.factor + 1) < SAME:
                return "gets its gradient with the other sign"
            return f"gets {self.factor:.4g} times its gradient"
        return "gets another gradient"


def effect(own: Floats, expected: Floats, own_size: float, expected_size: float) -> Effect:
    """Return what is wrong with a gradient, from sums that are linear in it and their sizes."""
    if own_size <= NOISE * expected_size:
        return Effect("none")
    if expected_size <= NOISE * own_size:
        return Effect("extra")
    square = float(expected @ expected)
    factor = float(own @ expected) / square if square else 0.0
    is_multiple = float(np.abs(own - factor * expected).max()) <= SAME * own_size and abs(factor - 1) > SAME
    return Effect("factor", factor) if is_multiple else Effect("other")

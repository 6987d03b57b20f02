"""Are these the same numbers: bit by bit, in another layout, or changed in a way that can be told."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Literal

import torch

from pytest_tfdebug.tensors import dtype_name, widen

if TYPE_CHECKING:
    from collections.abc import Iterable

#: How a tensor may hold all numbers of another.
Layout = Literal["renamed", "transposed", "permuted"]
_WORD = 8
_FIRST = 16
_MOST_AXES = 5
#: Elements of which a correlation is computed.
_SAMPLE = 1 << 20
#: Correlation above which two tensors hold the same weights, changed: independent ones of 8 numbers rarely reach it.
_CORRELATED = 0.6
_FEWEST = 8
#: Share of the rows that may differ in a tensor that is otherwise as in the checkpoint.
_FEW_ROWS = 0.25
#: Dtypes that a tensor may have gone through.
_NARROW = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Tell whether two tensors of one dtype are equal, bit by bit where that is faster."""
    if one.shape != other.shape:
        return False
    if one.dtype == other.dtype and one.is_contiguous() and other.is_contiguous() and one.device == other.device:
        flat, others = one.reshape(-1), other.reshape(-1)
        is_even = not (one.nbytes % _WORD or flat.data_ptr() % _WORD or others.data_ptr() % _WORD)
        word = torch.int64 if is_even else torch.uint8
        return torch.equal(flat.view(word), others.view(word))
    return torch.equal(one, other)


def is_constant(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor is one number throughout, so that its numbers do not tell which it is."""
    flat = tensor.reshape(-1)
    first = flat[:_FIRST]  # most that vary do so at once
    return not flat.numel() or bool((first == flat[0]).all() and (flat == flat[0]).all())


def extremes(tensor: torch.Tensor) -> tuple[int, float, float]:
    """Return number of elements, least and greatest: the same in every layout, and exact."""
    flat = tensor.reshape(-1)
    flat = widen(flat) if flat.element_size() == 1 or flat.is_complex() else flat
    low, high = torch.aminmax(flat) if flat.numel() else (torch.zeros(()), torch.zeros(()))
    return tensor.numel(), float(low), float(high)


def layout_of(held: torch.Tensor, stored: torch.Tensor) -> Layout | None:
    """Return how a tensor holds the numbers of another; None if it does not."""
    if same_bits(held, stored):
        return "renamed"
    if held.numel() != stored.numel():
        return None
    if held.ndim == stored.ndim <= _MOST_AXES:
        for order in permutations(range(stored.ndim)):
            moved = stored.permute(order)
            if moved.shape == held.shape and torch.equal(moved, held):
                return "transposed" if stored.ndim == 2 else "permuted"  # noqa: PLR2004 - a matrix
    flat = held.reshape(-1)
    if torch.equal(flat, stored.reshape(-1)) or torch.equal(flat.sort()[0], stored.reshape(-1).sort()[0]):
        return "permuted"
    return None


def correlated(held: torch.Tensor, stored: torch.Tensor) -> torch.Tensor | None:
    """Return another tensor in the shape of this one, if their numbers go together; None if not."""
    if held.numel() != stored.numel() or held.numel() < _FEWEST:
        return None
    forms = [stored.reshape(held.shape)]
    if stored.ndim == 2 and stored.shape[::-1] == held.shape:  # noqa: PLR2004 - a matrix
        forms.append(stored.t())
    step = max(held.numel() // _SAMPLE, 1)
    mine = _centred(held, step)
    for form in forms:
        theirs = _centred(form, step)
        size = float(mine.norm() * theirs.norm())
        if size and abs(float(mine @ theirs)) / size > _CORRELATED:
            return form
    return None


def _centred(tensor: torch.Tensor, step: int) -> torch.Tensor:
    flat = widen(tensor.reshape(-1)[::step]).double()
    return flat - flat.mean()


def rows_that_differ(held: torch.Tensor, stored: torch.Tensor) -> str:
    """Say which rows of a tensor are not those of another, where these are few; empty where they are not."""
    if held.shape != stored.shape or held.ndim < 2:  # noqa: PLR2004 - rows
        return ""
    differ = (held != stored).flatten(1).any(1)
    rows = differ.nonzero().flatten().tolist()
    if not rows or len(rows) > max(_FEW_ROWS * len(held), 1):
        return ""
    is_zero = not bool(held[differ].any())
    return (
        f"{spans(rows, 'row')} {'are' if len(rows) > 1 else 'is'} {'zero' if is_zero else 'not that of the checkpoint'}"
    )


def spans(numbers: Iterable[int], noun: str) -> str:
    """Return numbers as text, neighbours as a range: ``rows 3, 7 to 9``."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    shown = [str(first) if first == last else f"{first} to {last}" for first, last in found[:4]]
    more = f" and {len(found) - 4} more" if len(found) > 4 else ""  # noqa: PLR2004 - as many are shown
    is_one = len(found) == 1 and found[0][0] == found[0][1]
    return f"{noun}{'' if is_one else 's'} {', '.join(shown)}{more}"


def how_changed(held: torch.Tensor, stored: torch.Tensor) -> str:
    """Say how a tensor differs from another one with which it goes together; both of one shape."""
    transposed = "" if held.shape == stored.shape and stored.is_contiguous() else ", transposed"
    mine, theirs = widen(held).double(), widen(stored).double()
    for dtype in _NARROW:
        if torch.equal(theirs.to(dtype).double(), mine):
            return f"rounded to {dtype_name(dtype)} on its way{transposed}"
    difference = mine - theirs
    if float(difference.std()) < 1e-5 * float(mine.std()):
        return f"{float(difference.mean()):+.3g} everywhere{transposed}"
    ratios = (mine / theirs)[theirs.abs() > 1e-6]  # noqa: PLR2004 - a quotient of less says nothing
    middle = float(ratios.median()) if ratios.numel() else 0.0
    if middle and float((ratios - middle).abs().max()) < 1e-3 * abs(middle):
        return f"times {middle:.4g}{transposed}"
    return f"off by {float(difference.norm() / theirs.norm()):.2g} of its size{transposed}"

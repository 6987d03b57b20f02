"""Compare the outputs of a repeated call with the expected ones, at real tokens."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.parity.tensors.metrics import compare_leaf
from pytest_tfdebug.records import LeafComparison
from pytest_tfdebug.tensors import Leaf, dtype_name, tensor_record, varies

if TYPE_CHECKING:
    from collections.abc import Collection

    from pytest_tfdebug.invariance.calls.alignment import Aligned, Alignment
    from pytest_tfdebug.invariance.calls.observed_call import Leaves
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.records import Culprit


#: Leaves of key-value and state caches.
_IN_CACHE = re.compile(r"past_key_values|cache_params|_cache\b|\.layers\[\d+\]\.(?:keys|values)|_states\[")

#: An item of a list of leaves.
_ITEM = re.compile(r"(.*)\[(\d+)\]")
#: Leaves that are means over a batch, also where they have a value for each row (the codec DAC).
_LOSS = re.compile(r"loss\W*$")


@dataclass(frozen=True)
class Mismatch:
    """An output that changed."""

    leaf: LeafComparison | None  # the comparison; its problem is `values`
    is_at_pads: bool = False  # NaN at pad positions only, where the model promises finite numbers
    error: str = ""  # the exception that left the repeated call, as text; then there is no comparison
    place: Culprit | None = None  # where it was raised; None where that is not known

    @property
    def path(self) -> str:
        """Leaf path of the output; empty where none was compared."""
        return "" if self.leaf is None else self.leaf.leaf

    @property
    def is_in_cache(self) -> bool:
        """Whether everything but caches agrees: they are compared last."""
        return is_in_cache(self.path)


class NothingToCompareError(TFDebugError):
    """No output of the repeated call could be laid beside the expected one."""


@torch.no_grad()
def first_mismatch(
    expected: Leaves,
    actual: Leaves,
    alignment: Alignment,
    tolerances: Tolerances,
    *,
    promises_finite: bool = False,
    with_caches: bool = True,
    allows_nan: bool = False,
) -> Mismatch | None:
    """Return the first output that differs at real tokens, or None when all agree."""
    compared = set()
    for path in sorted((path for path in expected if with_caches or not is_in_cache(path)), key=is_in_cache):
        tensor, other = expected[path], _of_same_rows(path, expected, actual, alignment)
        if other is None or not _can_compare(path, tensor, other, alignment):
            continue
        laid = lay(path, tensor, other, alignment, tolerances, allows_nan=allows_nan)
        if laid is None:
            continue
        compared.add(path)
        if laid[1].problem:
            return Mismatch(laid[1])
    if promises_finite:
        for path, tensor in actual.items():
            if path not in expected or not tensor.is_floating_point():
                continue
            parts = alignment.unseen(tensor, expected[path].shape) if path in compared else (tensor,)
            if any(map(has_nan, parts)):
                shape, dtype = tuple(tensor.shape), dtype_name(tensor.dtype)
                return Mismatch(LeafComparison("output", path, "values", shape, dtype, None), is_at_pads=True)
    _refuse_nothing(expected, compared)
    return None


def _refuse_nothing(expected: Leaves, compared: Collection[str]) -> None:
    """Refuse outputs of which none was compared, or that are one number throughout."""
    shapes = ", ".join(f"{path or 'output'} {tuple(tensor.shape)}" for path, tensor in expected.items())
    if not compared:
        raise NothingToCompareError(f"no output matches one of the original's ({shapes or 'it has no tensors'})")
    if not any(expected[path].numel() == 1 or varies(expected[path]) for path in compared):
        raise NothingToCompareError(f"what was compared is one number throughout ({shapes})")


def _of_same_rows(path: str, expected: Leaves, actual: Leaves, alignment: Alignment) -> torch.Tensor | None:
    """Return what lies at a leaf path; in a list with an item for each row, the item of the same row."""
    item, rows = _ITEM.fullmatch(path), alignment.rows
    if rows is None or item is None:
        return actual.get(path)
    counts = [sum(bool(other.startswith(f"{item[1]}[")) for other in leaves) for leaves in (expected, actual)]
    other = actual.get(f"{item[1]}[{rows[int(item[2])]}]") if counts == [len(rows), alignment.batch] else None
    if counts[0] != counts[1]:
        return other
    is_same = other is not None and other.shape == expected[path].shape and torch.allclose(other, expected[path], 1e-3)
    return other if is_same else actual.get(path)


@lru_cache(maxsize=1024)
def is_in_cache(path: str) -> bool:
    """Tell whether a leaf is part of a key-value or state cache."""
    return bool(_IN_CACHE.search(path))


def lay(
    path: str,
    expected: torch.Tensor,
    actual: torch.Tensor,
    alignment: Alignment,
    tolerances: Tolerances,
    *,
    allows_nan: bool = True,
) -> tuple[Aligned, LeafComparison] | None:
    """Lay a tensor beside the expected one: in the first way in which they agree, else in the likeliest."""
    tolerance = tolerances.of("", dtype_name(expected.dtype))
    likeliest = None
    for aligned in alignment.candidates(actual, expected):
        e, a = alignment.blank(expected, aligned.axes), alignment.blank(aligned.tensor, aligned.axes)
        one, other = (tensor_record(Leaf(path, tensor), tensor) for tensor in (a, e))
        comparison = compare_leaf("output", one, other, tolerance)
        metrics = comparison.metrics
        if not comparison.problem and metrics is not None and metrics.non_finite_actual and not allows_nan:
            comparison = replace(comparison, problem="values") if has_nan(aligned.tensor) else comparison
        if not comparison.problem:
            return aligned, comparison
        likeliest = likeliest or (aligned, comparison)
    # rows cannot be told apart in a tensor of tokens that were picked from them
    is_gathered = alignment.rows is not None and actual.dim() > 0 and actual.shape[0] % alignment.batch != 0
    return None if is_gathered else likeliest


def _can_compare(path: str, expected: torch.Tensor, actual: torch.Tensor, alignment: Alignment) -> bool:
    """Tell whether an output is of its rows alone, and a cache holds the real tokens.

    A loss is of a whole batch; a cache of fixed size that ends in pads does not hold all real tokens.
    """
    is_of_batch = not expected.dim() or _LOSS.search(path)
    if expected.is_meta or (alignment.rows is not None and is_of_batch):
        return False
    if not is_in_cache(path):
        return True
    if not alignment.pads:
        return not alignment.has_gaps or alignment.real in expected.shape
    has_grown = any(a == e + alignment.pads for a, e in zip(actual.shape, expected.shape, strict=False))
    ends_in_pads = alignment.has_gaps or alignment.start + alignment.real < alignment.total
    return has_grown if ends_in_pads else (has_grown or actual.shape[-2:] == expected.shape[-2:])


def has_nan(tensor: torch.Tensor) -> bool:
    """Tell whether a tensor has a nan; its sum is then nan too, and takes a quarter of the time."""
    return math.isnan(float(tensor.sum())) and bool(torch.isnan(tensor).any())

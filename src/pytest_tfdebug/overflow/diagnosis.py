"""A closer look at the culprit: how much of it is not finite, where, and what may be behind it."""

from __future__ import annotations

from math import isfinite, isnan
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.overflow.extremes import has_masked_row
from pytest_tfdebug.overflow.records import Details
from pytest_tfdebug.overflow.settings import largest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.overflow.records import Fault, Frame

#: Narrow dtypes, and where to go from there.
_NARROW = {"float16": "bfloat16 or float32"}
#: Inputs of this size overflow a narrow dtype when they are multiplied or summed up.
_LARGE = 1e2


@torch.no_grad()
def details(tensor: torch.Tensor) -> Details:
    """Count what is not finite in a tensor, also a float8 or sparse one, and find the first such element."""
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.dtype.itemsize == 1:
        tensor = tensor.float()
    nans, finite = tensor.isnan(), tensor.isfinite()
    bad = finite.numel() - int(finite.sum())
    first = tuple(torch.nonzero(~finite)[0].tolist()) if bad else ()
    magnitudes = tensor[finite].abs()
    low, high = torch.aminmax(magnitudes) if magnitudes.numel() else (torch.tensor(torch.nan),) * 2
    return Details(int(nans.sum()), bad - int(nans.sum()), finite.numel(), first, float(low), float(high))


def weight_facts(module: torch.nn.Module) -> Iterator[str]:
    """Yield a sentence for each parameter and buffer of a module itself that is not finite."""
    own = (("parameter", module.named_parameters(recurse=False)), ("buffer", module.named_buffers(recurse=False)))
    for kind, name, tensor in ((kind, *pair) for kind, pairs in own for pair in pairs):
        if tensor.is_meta or not (tensor.is_floating_point() or tensor.is_complex()):
            continue
        try:
            found = details(tensor)
        except RuntimeError:  # dtypes without these operations, such as float4
            continue
        if found.nans or found.infs:
            bad = found.nans + found.infs
            yield f"The {kind} {name!r} of this module is not finite itself: {bad} / {found.total} elements."


def hints(fault: Fault, masks: list[torch.Tensor]) -> Iterator[str]:
    """Yield what the numbers say of what may be behind a fault."""
    found, dtype = fault.details, fault.frame.extremes.dtype
    has_nan = found.nans > 0 if found else isnan(fault.frame.extremes.low)
    is_masked_row = has_nan and any(has_masked_row(mask) for mask in masks)
    before = _largest_input(fault)
    is_narrow = dtype in _NARROW and before >= _LARGE
    if is_masked_row:
        yield "A row of the mask hides every position: the softmax over it is nan."
    if is_narrow:
        yield (
            f"{dtype} ends at {largest(dtype):.2e}, and the inputs reach {before:.2e}: compute this part in "
            f"{_NARROW[dtype]}, or scale the values down before it."
        )


def gradient_hints(fault: Fault) -> Iterator[str]:
    """Yield what may be behind a gradient that is not finite."""
    dtype = fault.frame.extremes.dtype
    if dtype in _NARROW:
        yield f"{dtype} ends at {largest(dtype):.2e}: scale the loss down, or use {_NARROW[dtype]}."


def _largest_input(fault: Fault) -> float:
    """Return the largest finite value among the culprit's other frames, or the frames before it."""
    own = [item for item in fault.frames if item.path == fault.frame.path and item is not fault.frame]
    near: list[Frame] = own or list(fault.frames[-4:])
    return max((item.extremes.abs_max for item in near if isfinite(item.extremes.abs_max)), default=0.0)

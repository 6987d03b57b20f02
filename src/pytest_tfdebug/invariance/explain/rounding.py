"""Whether two answers differ by the rounding of float32 alone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.compare.outputs import first_mismatch
from pytest_tfdebug.tracing.leaves import duplicate, replaced

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.repeat.repetition import Repetition
    from pytest_tfdebug.parity.tolerance import Tolerances

    #: Prepares a model for one of two calls.
    Way = Callable[[torch.nn.Module], AbstractContextManager[object]]


def is_rounding(call: ObservedCall, made: Repetition, ways: tuple[Way, Way], tolerances: Tolerances) -> bool:
    """Tell whether both calls of a repetition agree in float64; False for a model that does not run in it.

    Args:
        call: The observed call, inside ``call.restored()``.
        made: The repetition that differs in float32.
        ways: Prepare the model for the expected call and for the actual one.
        tolerances: The tolerance of every tensor.
    """
    try:
        model = duplicate(model_traits.unwrapped(call.model)).double()
        sides = []
        for way, inputs in zip(ways, (made.expected_inputs, made.inputs), strict=True):
            with way(model):
                sides.append(call.leaves(replaced(inputs, partial(in_dtype, dtype=torch.float64)), model))
        return first_mismatch(sides[0], sides[1], made.alignment, tolerances) is None
    except Exception:  # noqa: BLE001 - whatever it raises, float64 says nothing
        return False


def in_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of floating-point numbers in another dtype, and any other as it is."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor

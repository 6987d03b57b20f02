"""Whether two answers differ by the rounding of float32 alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.compare.outputs import first_mismatch
from pytest_tfdebug.tracing.float64 import in_float64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    import torch

    from pytest_tfdebug.invariance.calls.observed_call import Leaves
    from pytest_tfdebug.invariance.repeat.repetition import Repetition
    from pytest_tfdebug.parity.tolerance import Tolerances

    #: What gives one of two answers: named inputs and a model -> its output.
    Answer = Callable[[Mapping[str, Any], torch.nn.Module], Leaves]


def is_rounding(
    model: torch.nn.Module, made: Repetition, answers: tuple[Answer, Answer], tolerances: Tolerances
) -> bool:
    """Tell whether both answers of a repetition agree in float64; False for a model that does not run in it.

    Args:
        model: The model of the observed call, inside ``call.restored()``.
        made: The repetition that differs in float32.
        answers: What gives the expected answer, and what the actual one.
        tolerances: The tolerance of every tensor.
    """
    inputs = made.expected_inputs, made.inputs
    try:
        with in_float64(model_traits.unwrapped(model), (inputs, {})) as (wide, (widened, _)):
            expected, actual = (answer(each, wide) for answer, each in zip(answers, widened, strict=True))
        return first_mismatch(expected, actual, made.alignment, tolerances) is None
    except Exception:  # noqa: BLE001 - whatever it raises, float64 says nothing
        return False


def in_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of floating-point numbers in another dtype, and any other as it is."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor

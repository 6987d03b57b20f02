"""Two answers as they are in float64, so that no verdict hangs on how the kernels of a machine round."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.invariance.compare.outputs import first_mismatch
from pytest_tfdebug.tracing.values.float64 import in_float64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    import torch

    from pytest_tfdebug.invariance.calls.observed_call import Leaves
    from pytest_tfdebug.invariance.compare.outputs import Mismatch
    from pytest_tfdebug.invariance.repeat.repetition import Repetition
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances

    #: What gives one of two answers: named inputs and a model -> its output.
    Answer = Callable[[Mapping[str, Any], torch.nn.Module], Leaves]


def mismatches_in_float64(
    model: torch.nn.Module,
    made: Repetition,
    answers: tuple[Answer, Answer],
    allowed: Sequence[Tolerances],
    **how: bool,
) -> list[Mismatch | None] | None:
    """Compare both answers of a repetition in float64; None for a model that does not run in it."""
    inputs = made.expected_inputs, made.inputs
    try:
        with in_float64(model_traits.unwrapped(model), (inputs, {})) as (wide, (widened, _)):
            expected, actual = (answer(each, wide) for answer, each in zip(answers, widened, strict=True))
        return [first_mismatch(expected, actual, made.alignment, each, **how) for each in allowed]
    except Exception:  # noqa: BLE001 - whatever it raises, float64 says nothing
        return None


def in_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of floating-point numbers in another dtype, and any other as it is."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor

"""How far two answers are apart, and whether rounding explains it: in float64, in a lower dtype, call by call."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan
from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

from pytest_tfdebug.invariance.compare.outputs import first_mismatch
from pytest_tfdebug.tracing.values.float64 import in_float64

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from pytest_tfdebug.invariance.calls.observed_call import Leaves
    from pytest_tfdebug.invariance.compare.outputs import Mismatch
    from pytest_tfdebug.invariance.repeat.repetition import Repetition
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.records import CallComparison, LeafComparison, TensorRecord
    from pytest_tfdebug.tracing.trace import Trace

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
        with in_float64(model, (inputs, {})) as (wide, (widened, _)):
            expected, actual = (answer(each, wide) for answer, each in zip(answers, widened, strict=True))
        return [first_mismatch(expected, actual, made.alignment, each, **how) for each in allowed]
    except Exception:  # noqa: BLE001 - whatever it raises, float64 says nothing
        return None


def in_dtype(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of floating-point numbers in another dtype, and any other as it is."""
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def relative_error(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return ``norm(actual - expected) / norm(expected)``; inf where only the actual tensor is not finite.

    Elements that are the least number of both dtypes agree: models mark tokens with it that are never to be chosen.
    """
    e, a = expected.double(), actual.double()
    finite = torch.isfinite(e) & ~(_is_least(expected) & _is_least(actual))
    if not bool(torch.isfinite(a[finite]).all()):
        return inf
    e, a = e[finite], a[finite]
    norm = float(torch.linalg.vector_norm(e))
    return float(torch.linalg.vector_norm(a - e)) / norm if norm else float(torch.linalg.vector_norm(a - e))


def _is_least(tensor: torch.Tensor) -> torch.Tensor:
    return tensor == torch.finfo(tensor.dtype).min


def rounded(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Round a tensor to the digits of a dtype and keep its own range: nothing overflows or underflows."""
    if not tensor.is_floating_point():
        return tensor
    digits, exponent = torch.frexp(tensor)
    step = torch.finfo(dtype).eps / 2
    return torch.ldexp((digits / step).round() * step, exponent)


def widened_trace(trace: Trace) -> Trace:
    """Make the half-precision tensors of a trace float32, so that their values can be compared; return the trace."""
    known: dict[int, torch.Tensor] = {}

    def widened(record: TensorRecord) -> TensorRecord:
        tensor = record.tensor
        if tensor is None or tensor.dtype not in (torch.float16, torch.bfloat16):
            return record
        return replace(record, tensor=known.setdefault(id(tensor), tensor.float()), dtype="float32")

    for call in trace:
        call.inputs = tuple(map(widened, call.inputs))
        call.outputs = None if call.outputs is None else tuple(map(widened, call.outputs))
    return trace


class OwnError(NamedTuple):
    """The error that one call adds."""

    error: float  # relative L2 error; inf where the first values arise that are not finite
    item: CallComparison  # the call
    gone: CallComparison  # the call whose tensors show those values: this one, or the one that it calls with them
    direction: Literal["inputs", "outputs"] = "outputs"  # whether they are in that call's inputs or outputs


def error_of(leaves: Sequence[LeafComparison]) -> float:
    """Return the largest relative L2 error of some tensors; inf where a value is not finite that is so in float32."""
    if _is_gone(leaves):
        return inf
    errors = [leaf.metrics.relative_l2 for leaf in leaves if leaf.metrics is not None and leaf.dtype == "float32"]
    return max(errors, default=0.0)


def own_errors(calls: list[CallComparison]) -> list[OwnError]:
    """Return the error that each call adds to that of its inputs and of the calls inside it, the largest first."""
    inside: dict[int, list[CallComparison]] = {}
    for item in calls:
        if item.call.parent is not None:
            inside.setdefault(item.call.parent, []).append(item)
    ranked = []
    for item in calls:
        children = inside.get(item.call.index, [])
        error = error_of(item.outputs) - error_of([*item.inputs, *(leaf for one in children for leaf in one.outputs)])
        ranked.append(_between_children(item, children) or OwnError(0.0 if isnan(error) else error, item, item))
    return sorted(ranked, key=lambda own: -own.error)


def _between_children(item: CallComparison, children: list[CallComparison]) -> OwnError | None:
    """Return the error of a call that gives a child values that are not finite, and was given none."""
    given = list(item.inputs)
    for child in sorted(children, key=lambda child: child.call.index):
        if _is_gone(given):
            return None
        if _is_gone(child.inputs):
            return OwnError(inf, item, child, "inputs")
        given += child.outputs
    return None


def _is_gone(leaves: Sequence[LeafComparison]) -> bool:
    """Tell whether a tensor has inf or NaN that it does not have in float32."""
    metrics = [leaf.metrics for leaf in leaves if leaf.metrics is not None]
    return any(m.non_finite_actual > m.non_finite_expected for m in metrics)

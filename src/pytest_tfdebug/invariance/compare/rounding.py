"""How far two answers are apart, and what explains it: rounding, or another choice."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_tfdebug.tracing.record.leaves import walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.records import CallComparison, Direction, LeafComparison, TensorRecord
    from pytest_tfdebug.tracing.trace import Trace


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
    """Make the half-precision tensors of a trace float32, so that their values can be compared."""
    known: dict[int, torch.Tensor] = {}

    def widened(record: TensorRecord, _direction: str) -> TensorRecord:
        tensor = record.tensor
        if tensor is None or tensor.dtype not in (torch.float16, torch.bfloat16):
            return record
        return replace(record, tensor=known.setdefault(id(tensor), tensor.float()), dtype="float32")

    return replace(trace, calls=[call.with_records(widened) for call in trace.calls])


class OwnError(NamedTuple):
    """The error that one call adds."""

    error: float  # relative L2 error; inf where the first values arise that are not finite
    item: CallComparison  # the call
    gone: CallComparison  # the call whose tensors show those values: this one, or the one that it calls with them
    direction: Direction = "output"  # whether they are in that call's inputs or outputs


def error_of(leaves: Sequence[LeafComparison]) -> float:
    """Return the largest relative L2 error of some tensors; inf where a value is not finite that is so in float32."""
    if _is_gone(leaves):
        return inf
    errors = [leaf.metrics.relative_l2 for leaf in leaves if leaf.metrics is not None and leaf.dtype == "float32"]
    return max(errors, default=0.0)


def largest_own_error(calls: list[CallComparison]) -> OwnError:
    """Return the call that adds most error to that of its inputs and of the calls inside it."""

    def own(item: CallComparison) -> OwnError:
        children = [each for each in calls if each.call.parent == item.call.index]
        error = error_of(item.outputs) - error_of([*item.inputs, *(leaf for one in children for leaf in one.outputs)])
        return _between_children(item, children) or OwnError(0.0 if isnan(error) else error, item, item)

    return max(map(own, calls), key=lambda found: found.error)


def _between_children(item: CallComparison, children: list[CallComparison]) -> OwnError | None:
    """Return the error of a call that gives a child values that are not finite, and was given none."""
    given = list(item.inputs)
    for child in sorted(children, key=lambda child: child.call.index):
        if _is_gone(given):
            return None
        if _is_gone(child.inputs):
            return OwnError(inf, item, child, "input")
        given += child.outputs
    return None


def _is_gone(leaves: Sequence[LeafComparison]) -> bool:
    """Tell whether a tensor has inf or NaN that it does not have in float32."""
    metrics = [leaf.metrics for leaf in leaves if leaf.metrics is not None]
    return any(m.non_finite_actual > m.non_finite_expected for m in metrics)


_OPERATORS = frozenset(
    f"aten::{name}"
    for name in (
        *("argmax", "argmin", "max", "min", "topk", "sort", "argsort", "nonzero", "multinomial"),
        *("bucketize", "searchsorted", "round", "floor", "ceil", "eq", "gt", "ge", "lt", "le"),
    )
)


class Choice(NamedTuple):
    """One choice."""

    given: torch.Tensor  # the tensor that it was made from
    chosen: torch.Tensor  # indices, truth values or whole numbers


class Choices(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch
    """Collects the choices that are made of floating-point numbers inside it, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # of torch
        self.made: list[Choice] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Run an operator and keep what it chose."""
        result = func(*args, **(kwargs or {}))
        if func._schema.name in _OPERATORS and args[0].is_floating_point():  # noqa: SLF001 - torch's only name for it
            chosen = [leaf.tensor for leaf in walk(result)][-1]  # topk and max give values, and then indices
            if func._schema.name != "aten::max" or not chosen.is_floating_point():  # noqa: SLF001
                self.made.append(Choice(args[0].detach().clone(), chosen.detach().clone()))
        return result


def first_other(expected: Sequence[Choice], actual: Sequence[Choice]) -> tuple[Choice, Choice] | None:
    """Return the first choice that differs, as each side made it; None where all are the same."""
    for one, other in zip(expected, actual, strict=False):
        if one.chosen.shape != other.chosen.shape or not torch.equal(one.chosen.double(), other.chosen.double()):
            return one, other
    return None

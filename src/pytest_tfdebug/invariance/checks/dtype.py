"""``dtype_close``: the model in bfloat16 or float16 stays within a bound of its float32 answer."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf, isnan
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.invariance import family
from pytest_tfdebug.invariance.align_traces import TraceAligner
from pytest_tfdebug.invariance.holding import is_in_cache
from pytest_tfdebug.invariance.located import recorded
from pytest_tfdebug.invariance.observed import duplicate
from pytest_tfdebug.invariance.outcome import Outcome
from pytest_tfdebug.invariance.settings import Settings, one_of
from pytest_tfdebug.invariance.sister import unpadded
from pytest_tfdebug.parity.compare import start_comparison
from pytest_tfdebug.parity.tolerance import Tolerances
from pytest_tfdebug.tracing.capture import dtype_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.invariance.observed import Leaves, ObservedCall
    from pytest_tfdebug.records import CallComparison, LeafComparison
    from pytest_tfdebug.tracing.trace import Trace

#: Greatest relative L2 error of an output: about five times what eight random layers at a scale of 1 show (float16
#: 1e-3, bfloat16 1e-2), and far below that of a wrong cast.
BOUNDS = {"float16": 1e-2, "bfloat16": 5e-2}
_TOP = 5


@dataclass(frozen=True, kw_only=True)
class DtypeSettings(Settings):
    """What ``dtype_close`` takes.

    Args:
        dtypes: ``"bfloat16"``, ``"float16"`` or both.
        bound: Greatest relative L2 error of an output, ``norm(actual - expected) / norm(expected)``; by dtype when
            None: 0.01 for float16 and 0.05 for bfloat16.
    """

    dtypes: Iterable[str] | str = ("bfloat16", "float16")
    bound: float | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        names = (self.dtypes,) if isinstance(self.dtypes, (str, torch.dtype)) else self.dtypes
        if not isinstance(names, Iterable):
            raise TFDebugError(f"dtypes={self.dtypes!r} is not one of {', '.join(map(repr, BOUNDS))}.")
        plain = tuple(str(name).removeprefix("torch.") for name in names)
        for name in plain or ("",):
            one_of("dtypes", name, tuple(BOUNDS))
        object.__setattr__(self, "dtypes", plain)
        bound = self.bound
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, (int, float)) or not bound > 0):
            raise TFDebugError(f"bound={bound!r} is not a number > 0.")


def check_dtype(call: ObservedCall, settings: DtypeSettings) -> Outcome:
    """Repeat a call in lower precision and hold its outputs to those in float32."""
    outcome = Outcome()
    with call.restored():
        model = family.unwrapped(call.model)
        held = {parameter.dtype for parameter in model.parameters() if parameter.is_floating_point()}
        if held != {torch.float32}:
            names = ", ".join(sorted(map(dtype_name, held))) or "no weights"
            outcome.skipped.append(f"{call.name} is not a float32 model ({names})")
            return outcome
        expected = call.output if call.are_weights_unchanged() else call.leaves(call.inputs)
        for name in settings.dtypes:
            bound = settings.bound or BOUNDS[name]
            lower = duplicate(model).to(getattr(torch, name))
            inputs = _cast(call.inputs, getattr(torch, name))
            leaf, error, compared = _worst_output(expected, call.leaves(inputs, lower), call)
            outcome.repeats += bool(compared)
            if not compared:
                outcome.skipped.append(f"{call.name} in {name}: it returned no floating-point tensor to compare")
            elif not error <= bound:
                outcome.failure = "\n".join(_report(call, name, (leaf, error, bound), lower, inputs))
                return outcome
    return outcome


def relative_error(expected: torch.Tensor, actual: torch.Tensor) -> float:
    """Return ``norm(actual - expected) / norm(expected)``; inf where only the actual tensor is not finite."""
    e, a = expected.double(), actual.double()
    finite = torch.isfinite(e)
    if not bool(torch.isfinite(a[finite]).all()):
        return inf
    e, a = e[finite], a[finite]
    norm = float(torch.linalg.vector_norm(e))
    return float(torch.linalg.vector_norm(a - e)) / norm if norm else float(torch.linalg.vector_norm(a - e))


def _cast(inputs: dict[str, Any], dtype: torch.dtype) -> dict[str, Any]:
    return {
        name: value.to(dtype) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
        for name, value in inputs.items()
    }


def _worst_output(expected: Leaves, actual: Leaves, call: ObservedCall) -> tuple[str, float, int]:
    at, worst, compared = unpadded(call), ("", -1.0), 0
    for path, tensor in expected.items():
        other = actual.get(path)
        if other is None or not tensor.is_floating_point() or is_in_cache(path) or other.shape != tensor.shape:
            continue
        aligned = next(iter(at.candidates(other, tensor.shape)), None)
        axes = aligned.axes if aligned else ()
        error = relative_error(at.blank(tensor, axes), at.blank(other, axes))
        compared += 1
        if not error <= worst[1]:
            worst = path, error
    return (*worst, compared)


def _report(
    call: ObservedCall, name: str, worst: tuple[str, float, float], lower: torch.nn.Module, inputs: dict[str, Any]
) -> list[str]:
    leaf, error, bound = worst
    told = f"{leaf or 'the returned tensor'} has a relative L2 error of {error:.3g} (up to {bound:.3g} allowed)"
    lines = [f"{call.name} in {name} is not close to float32: {told}."]
    expected, actual = recorded(call, call.inputs), recorded(call, inputs, lower)
    aligner = TraceAligner(unpadded(call), Tolerances(0.0, 0.0))
    aligned = aligner.align(expected, _widened(actual))
    comparator = start_comparison(
        aligned.expected, None, Tolerances(0.0, 0.0), modules=expected.modules, aliases=expected.aliases
    )
    comparator.replay(aligned.actual.calls)
    for place, (_, item) in enumerate(_own_errors(comparator.finish().calls)[:_TOP]):
        call_name = f"{item.call.name!r} ({item.call.class_name})"
        numbers = f"relative L2 {_error(item.inputs):.2e} in, {_error(item.outputs):.2e} out"
        lines.append(f"  Worst module: {call_name}: {numbers}" if not place else f"  then {call_name}: {numbers}")
    lines.append(f"Keep that module in float32, or give the marker a bound= above {error:.3g} if this is expected.")
    return lines


def _widened(trace: Trace) -> Trace:
    """Return a trace whose half-precision tensors are float32, so that their values can be compared."""
    known: dict[int, torch.Tensor] = {}

    def widen(record: Any) -> Any:  # noqa: ANN401
        tensor = record.tensor
        if tensor is None or tensor.dtype not in (torch.float16, torch.bfloat16):
            return record
        wide = known.setdefault(id(tensor), tensor.float())
        return replace(record, tensor=wide, dtype="float32")

    calls = [
        replace(
            call,
            inputs=tuple(map(widen, call.inputs)),
            outputs=None if call.outputs is None else tuple(map(widen, call.outputs)),
            writes=(),
        )
        for call in trace
    ]
    return replace(trace, calls=calls)


def _error(leaves: Sequence[LeafComparison]) -> float:
    errors = [leaf.metrics.relative_l2 for leaf in leaves if leaf.metrics is not None and leaf.dtype == "float32"]
    return max(errors, default=0.0)


def _own_errors(calls: list[CallComparison]) -> list[tuple[float, CallComparison]]:
    """Return the error that each call adds to that of its inputs and of the calls inside it, the largest first."""
    inside: dict[int, list[CallComparison]] = {}
    for item in calls:
        if item.call.parent is not None:
            inside.setdefault(item.call.parent, []).append(item)
    ranked = []
    for item in calls:
        given = [*item.inputs, *(leaf for child in inside.get(item.call.index, []) for leaf in child.outputs)]
        own = inf if _is_gone(item.outputs) and not _is_gone(given) else _error(item.outputs) - _error(given)
        ranked.append((0.0 if isnan(own) else own, item))  # inf less inf: the error came in
    return sorted(ranked, key=lambda pair: -pair[0])


def _is_gone(leaves: Sequence[LeafComparison]) -> bool:
    """Tell whether a tensor has inf or NaN that it does not have in float32."""
    metrics = [leaf.metrics for leaf in leaves if leaf.metrics is not None]
    return any(m.non_finite_actual > m.non_finite_expected for m in metrics)

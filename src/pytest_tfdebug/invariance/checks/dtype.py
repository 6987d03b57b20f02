"""``dtype``: the model in bfloat16 or float16 stays within a bound of its float32 answer."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf, isfinite, isnan
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.invariance.checks.base import BOUNDS, Check
from pytest_tfdebug.invariance.compare.culprit import recorded
from pytest_tfdebug.invariance.compare.outputs import is_in_cache
from pytest_tfdebug.invariance.compare.traces import call_at, compare_traces
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.settle import settled
from pytest_tfdebug.parity.tensors.tolerance import Tolerances
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.record.leaves import duplicate, replaced, walk
from pytest_tfdebug.tracing.values.operator_mode import OperatorMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.invariance.calls.observed_call import Leaves
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
    least = [each == torch.finfo(each.dtype).min for each in (expected, actual)]
    finite = torch.isfinite(e) & ~(least[0] & least[1])
    if not bool(torch.isfinite(a[finite]).all()):
        return inf
    e, a = e[finite], a[finite]
    norm = float(torch.linalg.vector_norm(e))
    return float(torch.linalg.vector_norm(a - e)) / norm if norm else float(torch.linalg.vector_norm(a - e))


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


class Choices(OperatorMode):
    """Collects the choices that are made of floating-point numbers inside it, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Choice] = []

    def on(self, func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
        """Run an operator and keep what it chose."""
        result = func(*args, **kwargs)
        if func._schema.name in _OPERATORS and args[0].is_floating_point():  # noqa: SLF001 - torch's only name for it
            chosen = [leaf.tensor for leaf in walk(result)][-1]  # topk and max give values, and then indices
            if func._schema.name != "aten::max" or not chosen.is_floating_point():  # noqa: SLF001
                self.made.append(Choice(args[0].detach().clone(), chosen.detach().clone()))
        return result


def first_other(expected: Sequence[Choice], actual: Sequence[Choice]) -> tuple[Choice, Choice] | None:
    """Return the first choice that differs, as each side made it; None where all are the same."""
    pairs = zip(expected, actual, strict=False)
    return next((pair for pair in pairs if not torch.equal(*(choice.chosen.double() for choice in pair))), None)


#: An error counts as rounding if rounding the weights alone gives at least an eighth of it.
_SHARE = 8
#: Texts of torch's errors for an operator that a device lacks in a dtype, such as the Fourier transform on CPUs.
_LACKS = ("not implemented for", "Unsupported dtype")
#: A float32 value above this share of a dtype's largest number may be rounded beyond it.
_NEAR = 0.9


class DtypeCheck(Check):
    """The call is repeated in lower precision."""

    options = ("dtypes", "bound", "inputs")
    needs = "Call a float32 model"
    verdict = "is not close to float32"
    is_of_values = False

    def check(self) -> None:
        """Report the first dtype in which an output is too far from that in float32."""
        held = {parameter.dtype for parameter in self.model.parameters() if parameter.is_floating_point()}
        if held != {torch.float32}:
            names = ", ".join(sorted(map(dtype_name, held))) or "no weights"
            self.skip(f"{self.call.name} is not a float32 model ({names})")
            return
        for name in self.settings.dtypes:
            bound = self.settings.bound or BOUNDS[name]
            lower = duplicate(self.model).to(getattr(torch, name))
            inputs = replaced(self.call.inputs, partial(in_dtype, dtype=getattr(torch, name)))
            try:
                errors = self._errors(self.call.leaves(inputs, lower))
            except Exception as error:  # noqa: BLE001 - whatever the model raises is the finding
                if any(words in str(error) for words in _LACKS):
                    self.skip(f"{self.call.name} in {name}: torch has no such operator here ({error})")
                    continue
                self.report(name, self.raised(error, lower))
                return
            self.outcome.repeats += bool(errors)
            if not errors:
                self.skip(f"{self.call.name} in {name}: it returned no floating-point tensor to compare")
                continue
            leaf, worst = max(errors.items(), key=lambda item: inf if isnan(item[1]) else item[1])
            if not worst <= bound and not self._is_rounding(lower, inputs, name, worst):
                told = f"{leaf or 'the returned tensor'} has a relative L2 error of {worst:.3g}"
                first = f"{self.call.name} in {name} {self.verdict}: {told} (up to {bound:.3g} allowed)."
                last = f"Keep that module in float32, or give bound= above {worst:.3g} if this is expected."
                self.outcome.text = "\n".join([first, *self._worst_module(lower, inputs, name), last])
                return

    def _is_rounding(self, lower: torch.nn.Module, inputs: dict[str, Any], name: str, worst: float) -> bool:
        """Tell whether the model magnifies rounding, and note it if so; a bound that was asked for holds all the same.

        A model magnifies rounding if rounding its weights alone changes its float32 answer about as much (deep models),
        or if it makes another choice between close candidates (codes, experts, keypoints).
        """
        if self.settings.bound is not None or not isfinite(worst):
            return False
        if self._of_rounded_weights(name) < worst / _SHARE and not self._chooses_otherwise(lower, inputs, BOUNDS[name]):
            return False
        told = f"{self.call.name} magnifies the rounding of {name}: its relative L2 error is {worst:.3g}"
        self.outcome.notes.append(told)
        return True

    def _chooses_otherwise(self, lower: torch.nn.Module, inputs: dict[str, Any], bound: float) -> bool:
        with Choices() as expected:
            self.call.again(self.call.inputs)
        with Choices() as actual:
            self.call.again(inputs, lower)
        pair = first_other(expected.made, actual.made)
        given = [] if pair is None else [choice.given for choice in pair]
        return pair is not None and given[0].shape == given[1].shape and relative_error(*given) <= bound

    def _of_rounded_weights(self, name: str) -> float:
        """Return the error of the model in float32 with weights and inputs that were rounded to a dtype.

        It is inf where that alone changes the shapes of all that it returns, as where durations are rounded (VITS).
        """
        to_dtype = partial(rounded, dtype=getattr(torch, name))
        model = duplicate(self.model)
        for parameter in model.parameters():
            parameter.copy_(to_dtype(parameter))
        return max(self._errors(self.call.leaves(replaced(self.call.inputs, to_dtype), model)).values(), default=inf)

    def _errors(self, actual: Leaves) -> dict[str, float]:
        """Return the relative error of each output that both sides have, by leaf path."""
        errors = {}
        for path, tensor in self.expected.items():
            other = actual.get(path)
            if other is None or not tensor.is_floating_point() or is_in_cache(path) or other.shape != tensor.shape:
                continue
            axes = next((aligned.axes for aligned in self.unpadded.candidates(other, tensor)), ())
            errors[path] = relative_error(*(self.unpadded.blank(each, axes) for each in (tensor, other)))
        return errors

    def _worst_module(self, lower: torch.nn.Module, inputs: dict[str, Any], dtype: str) -> Iterator[str]:
        """Yield the module that adds most of the error, which is the culprit, and what the dtype cannot hold there."""
        expected, actual = recorded(self.call, self.call.inputs, self.call.model), recorded(self.call, inputs, lower)
        compared = compare_traces(expected, widened_trace(actual), self.unpadded, Tolerances(0.0, 0.0))
        own = largest_own_error(compared.comparator().finish().calls)
        call, source = own.item.call, own.item.call.source or own.item.call.called_at
        numbers = f"relative L2 {error_of(own.item.inputs):.2e} in, {error_of(own.item.outputs):.2e} out"
        told = f"It adds most of the error: {numbers}."
        claim = Claim(call.path, "module", Evidence.ROUNDS_MOST, call.class_name, told, source=source)
        self.outcome.culprit = settled(claim)
        yield f"  Worst module: {call.name!r} ({call.class_name}){f', {source}' if source else ''}: {numbers}"
        at, limit = own.gone.call, torch.finfo(getattr(torch, dtype)).max
        there = call_at(expected, at.path, at.call)
        leaves = () if there is None else there.leaves(own.direction)
        tensors = [leaf.tensor for leaf in leaves if leaf.tensor is not None and leaf.tensor.is_floating_point()]
        largest = max((float(each.abs().max()) for each in tensors if each.numel()), default=0.0)
        if own.error == inf and _NEAR * limit < largest < inf:
            told = f"values overflow at {at.name!r}: {largest:.3g} in float32, {dtype} ends at {limit:.3g}."
            self.outcome.diagnosis, self.outcome.is_beyond = told, True
            yield f"    {told[0].upper()}{told[1:]}"

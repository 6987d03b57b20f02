"""``dtype``: the model in bfloat16 or float16 stays within a bound of its float32 answer."""

from __future__ import annotations

from functools import partial
from math import inf, isfinite, isnan
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.invariance.checks.base import Check
from pytest_tfdebug.invariance.checks.settings import BOUNDS
from pytest_tfdebug.invariance.compare.culprit import recorded
from pytest_tfdebug.invariance.compare.outputs import compare_traces, is_in_cache
from pytest_tfdebug.invariance.compare.rounding import (
    Choices,
    RightKernels,
    error_of,
    first_other,
    in_dtype,
    own_errors,
    relative_error,
    rounded,
    widened_trace,
)
from pytest_tfdebug.parity.tensors.tolerance import Tolerances
from pytest_tfdebug.records import Culprit
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.record.leaves import duplicate, replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.invariance.calls.observed_call import Leaves
    from pytest_tfdebug.records import Call, Direction

#: An error counts as rounding if rounding the weights alone gives at least an eighth of it.
_SHARE = 8
#: Texts of torch's errors for an operator that a device lacks in a dtype, such as the Fourier transform on CPUs.
_LACKS = ("not implemented for", "Unsupported dtype")
_TOP = 5
#: A float32 value above this share of a dtype's largest number may be rounded beyond it.
_NEAR = 0.9


class DtypeCheck(Check):
    """The call is repeated in lower precision."""

    options = ("dtypes", "bound", "inputs")
    needs = "Call a float32 model"
    verdict = "is not close to float32"

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
                kernels = self._wrong_kernels(lower, inputs, bound)
                if kernels and self.settings.bound is None:
                    self.outcome.notes.append(f"{self.call.name} in {name}: {told}. {kernels}")
                    continue
                first = f"{self.call.name} in {name} {self.verdict}: {told} (up to {bound:.3g} allowed)."
                last = f"Keep that module in float32, or give bound= above {worst:.3g} if this is expected."
                why = [f"  {kernels}"] if kernels else self._worst_modules(lower, inputs, name)
                self.outcome.text = "\n".join([first, *why, last])
                return

    def _wrong_kernels(self, lower: torch.nn.Module, inputs: dict[str, Any], bound: float) -> str:
        """Return which kernels of torch are to blame, in sentences; empty where the model is wrong without them."""
        with RightKernels(relative_error, bound) as kernels:
            actual = self.call.leaves(inputs, lower)
        least = max(self._errors(actual).values(), default=inf)
        if not kernels.wrong or not least <= bound:
            return ""
        return (
            f"The fault is in torch's kernel, not in the model: {kernels}, relative to the same operator in float32 "
            f"from the same numbers. With the float32 result, the model's error is {least:.3g}."
        )

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

    def _worst_modules(self, lower: torch.nn.Module, inputs: dict[str, Any], dtype: str) -> Iterator[str]:
        """Yield the modules that add most of the error; the first is the culprit."""
        expected, actual = recorded(self.call, self.call.inputs), recorded(self.call, inputs, lower)
        _, comparator = compare_traces(expected, widened_trace(actual), self.unpadded, Tolerances(0.0, 0.0))
        calls = {(call.path, call.call): call for call in expected}
        for place, own in enumerate(own_errors(comparator.finish().calls)[:_TOP]):
            item = own.item
            name = f"{item.call.name!r} ({item.call.class_name})"
            numbers = f"relative L2 {error_of(item.inputs):.2e} in, {error_of(item.outputs):.2e} out"
            if place:
                yield f"  then {name}: {numbers}"
                continue
            source = item.call.source or item.call.called_at
            told = f"It adds most of the error: {numbers}."
            self.outcome.culprit = Culprit(item.call.path, "module", source, told, item.call.class_name)
            yield f"  Worst module: {name}{f', {source}' if source else ''}: {numbers}"
            limits = torch.finfo(getattr(torch, dtype))
            largest = _largest(calls.get((item.call.path, item.call.call)), "output")
            if 0 < largest < limits.tiny:
                yield f"    Its output underflows: {largest:.2e} at most, and {dtype} is exact to {limits.tiny:.2e}."
            at = own.gone.call
            largest = _largest(calls.get((at.path, at.call)), own.direction)
            if own.error == inf and _NEAR * limits.max < largest < inf:
                told = f"values overflow at {at.name!r}: {largest:.3g} in float32, {dtype} ends at {limits.max:.3g}."
                self.outcome.diagnosis, self.outcome.is_beyond = told, True
                yield f"    {told[0].upper()}{told[1:]}"


def _largest(call: Call | None, direction: Direction) -> float:
    """Return the largest absolute value among a call's inputs or outputs; 0 without any."""
    tensors = [record.tensor for record in (call.leaves(direction) if call else ()) if record.tensor is not None]
    return max((float(each.abs().max()) for each in tensors if each.is_floating_point() and each.numel()), default=0.0)

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
    error_of,
    first_other,
    in_dtype,
    largest_own_error,
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
        expected, actual = recorded(self.call, self.call.inputs), recorded(self.call, inputs, lower)
        _, comparator = compare_traces(expected, widened_trace(actual), self.unpadded, Tolerances(0.0, 0.0))
        own = largest_own_error(comparator.finish().calls)
        call, source = own.item.call, own.item.call.source or own.item.call.called_at
        numbers = f"relative L2 {error_of(own.item.inputs):.2e} in, {error_of(own.item.outputs):.2e} out"
        told = f"It adds most of the error: {numbers}."
        self.outcome.culprit = Culprit(call.path, "module", source, told, call.class_name)
        yield f"  Worst module: {call.name!r} ({call.class_name}){f', {source}' if source else ''}: {numbers}"
        at, limit = own.gone.call, torch.finfo(getattr(torch, dtype)).max
        leaves = next(
            (each.leaves(own.direction) for each in expected if (each.path, each.call) == (at.path, at.call)), ()
        )
        tensors = [leaf.tensor for leaf in leaves if leaf.tensor is not None and leaf.tensor.is_floating_point()]
        largest = max((float(each.abs().max()) for each in tensors if each.numel()), default=0.0)
        if own.error == inf and _NEAR * limit < largest < inf:
            told = f"values overflow at {at.name!r}: {largest:.3g} in float32, {dtype} ends at {limit:.3g}."
            self.outcome.diagnosis, self.outcome.is_beyond = told, True
            yield f"    {told[0].upper()}{told[1:]}"

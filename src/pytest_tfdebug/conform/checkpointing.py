"""The promise about gradient checkpointing: what is computed again is what was computed."""

from __future__ import annotations

import copy
import random
import warnings
from typing import TYPE_CHECKING, NamedTuple

import torch

from pytest_tfdebug.conform.subject import broken
from pytest_tfdebug.errors import in_a_line, listed
from pytest_tfdebug.invariance.checks.base import Outcome
from pytest_tfdebug.tracing.record.leaves import duplicate, walk
from pytest_tfdebug.tracing.record.state import random_state_kept

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from typing import Any

    from pytest_tfdebug.conform.subject import Subject

#: Relative L2 error of an output or gradient above which it is another one: the same operators ran.
_SAME = 1e-3
#: Share of the largest norm below which a difference is what rounding leaves: the gradients of keys' biases, which a
#: softmax cancels, are 2e-10 of BLIP's largest.
_ROUNDED_AWAY = 1e-8
#: What torch warns of in a reentrant checkpoint.
_NO_INPUT = "None of the inputs have requires_grad=True"
_REENTRANT = (
    "a reentrant checkpoint was given no tensor that needs a gradient (one in a list or a dict does not count): "
    "give it the tensor itself, or use_reentrant=False."
)
_OTHERWISE = (
    "a checkpointed block computes something else the second time, or keeps state between its calls: let it depend on "
    "its inputs alone."
)


class _Trained(NamedTuple):
    """What a forward and backward in training mode gave."""

    outputs: dict[str, torch.Tensor]
    gradients: dict[str, torch.Tensor]
    warned: str


def applies(subject: Subject) -> str:
    """Return why a model has no gradient checkpointing; empty if it has."""
    can = getattr(subject.model, "supports_gradient_checkpointing", False)
    has = can and hasattr(subject.model, "gradient_checkpointing_enable")
    return "" if has else "it has no gradient checkpointing (supports_gradient_checkpointing)"


def is_the_same(subject: Subject) -> Outcome:
    """Make a step with gradient checkpointing and one without, and compare outputs and gradients."""
    inputs = {**subject.call.inputs, **({"use_cache": False} if "use_cache" in subject.call.parameters else {})}
    try:
        plain = _step(subject.model, inputs, is_checkpointed=False)
    except (AssertionError, NotImplementedError) as error:  # some want another configuration for training
        return Outcome(skipped=[f"it cannot be trained that way ({in_a_line(error)})"])
    if not plain.gradients:
        return Outcome(skipped=["it returns no floating-point tensor, or has no parameter to train"])
    checkpointed = _step(subject.model, inputs, is_checkpointed=True)
    shared = plain.outputs.keys() & checkpointed.outputs.keys()
    if shared != plain.outputs.keys():  # caches: transformers makes none with checkpointing
        plain, checkpointed = (_step(subject.model, inputs, is_checkpointed=how, among=shared) for how in (False, True))
    lost = [name for name in plain.gradients if name not in checkpointed.gradients]
    other = [f"the gradient of {name}" for name in differing(plain.gradients, checkpointed.gradients)]
    outputs = [f"output {path}".rstrip() for path in differing(plain.outputs, checkpointed.outputs)]
    if not (lost or other or outputs):
        return Outcome(1)
    again = _step(subject.model, inputs, is_checkpointed=False, among=shared)
    if differing(plain.outputs, again.outputs) or differing(plain.gradients, again.gradients):
        return Outcome(skipped=["it draws random numbers of its own in training mode"])
    told = f"{subject.name} trains otherwise with gradient checkpointing"
    details = [f"without gradient then: {listed(lost)}"] if lost else []
    details += [f"of another value then: {listed([*outputs, *other])}"] if outputs or other else []
    total = len(plain.gradients)
    return broken(
        f"{told}: {len(lost)} of {total} gradients are lost, {len(other)} differ.",
        details,
        _REENTRANT if lost and _NO_INPUT in checkpointed.warned else _OTHERWISE,
    )


def _step(
    model: torch.nn.Module,
    inputs: Mapping[str, Any],
    *,
    is_checkpointed: bool,
    among: Collection[str] | None = None,
) -> _Trained:
    """Make a forward and a backward of a copy of a model in training mode, from one state of random numbers.

    ``among`` are the outputs that the backward begins at; None for all of them.
    """
    trained: Any = copy.deepcopy(model).train()
    if is_checkpointed:
        enable = getattr(trained, "activation_checkpointing_enable", None)  # its name in transformers 5
        (enable or trained.gradient_checkpointing_enable)()
    with random_state_kept(), torch.enable_grad(), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.manual_seed(0)
        random.seed(0)
        leaves = {leaf.path: leaf.tensor for leaf in walk(trained(**duplicate(dict(inputs))))}
        floats = {path: tensor for path, tensor in leaves.items() if tensor.is_floating_point()}
        outputs = {path: tensor for path, tensor in floats.items() if among is None or path in among}
        terms = [(each * torch.rand_like(each)).sum().float() for each in outputs.values() if each.requires_grad]
        if terms:
            torch.stack(terms).sum().backward()  # type: ignore[no-untyped-call]
    gradients = {name: p.grad for name, p in trained.named_parameters() if p.grad is not None}
    warned = "\n".join(str(each.message) for each in caught)
    return _Trained({path: tensor.detach() for path, tensor in outputs.items()}, gradients, warned)


def differing(expected: Mapping[str, torch.Tensor], actual: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the names of the tensors that both have and that differ by more than rounding."""
    least = _ROUNDED_AWAY * max((float(each.double().nan_to_num().norm()) for each in expected.values()), default=0.0)
    return [name for name, tensor in expected.items() if name in actual and _differs(tensor, actual[name], least)]


def _differs(expected: torch.Tensor, actual: torch.Tensor, least: float) -> bool:
    if expected.shape != actual.shape:
        return True
    one, other = expected.double().nan_to_num(), actual.double().nan_to_num()
    return bool((one - other).norm() > _SAME * one.norm() + least + 1e-12)

"""``gradients``: each parameter that changes the answer has a gradient."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.conform.judge import PromiseFinding
from pytest_tfdebug.errors import listed
from pytest_tfdebug.invariance.compare.outputs import is_in_cache
from pytest_tfdebug.invariance.explain.rounding import Choices, first_other
from pytest_tfdebug.records import Culprit
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.state import preserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pytest_tfdebug.conform.subject import Subject
    from pytest_tfdebug.invariance.calls.observed_call import Leaves, ObservedCall
    from pytest_tfdebug.invariance.explain.rounding import Choice

    Answer = tuple[Leaves, list[Choice]]

#: How much a parameter is changed: relative to its value, and absolute.
_STEP = 1e-3
_DIAGNOSIS = (
    "its value is taken out of the graph: .detach(), .data, .item(), torch.no_grad, a new tensor made of it, or an "
    "operator without gradient."
)


def each_has_one(subject: Subject) -> PromiseFinding:
    """Run forward and backward once, and look for parameters that change an output and have no gradient.

    A parameter without effect in this call (a pooler that nobody reads, a mask token) is only noted.
    """
    call, model = subject.call, subject.model
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    inputs = {**call.inputs, **({"use_cache": False} if "use_cache" in call.parameters else {})}
    with preserved(model), torch.enable_grad():
        torch.manual_seed(0)
        try:
            outputs = [tensor for _, tensor in walk(model(**inputs))]
            outputs = [tensor for tensor in outputs if tensor.requires_grad and tensor.is_floating_point()]
            if not outputs:
                return PromiseFinding(absent="it returns no floating-point tensor that depends on its parameters")
            loss = torch.stack([(tensor * torch.rand_like(tensor)).sum().float() for tensor in outputs]).sum()
            gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        except (AssertionError, NotImplementedError) as error:  # Reformer wants another configuration for training
            return PromiseFinding(absent=f"it cannot be asked that way ({redact(str(error)).partition(chr(10))[0]})")
    without = {name: named[name] for name, gradient in zip(named, gradients, strict=True) if gradient is None}
    if not without:
        return PromiseFinding()
    answer = partial(_answer, subject.call, inputs)
    before = answer()
    is_without_effect = _changes(answer, before, without.values()) is False  # all at once: most often so
    cut = [] if is_without_effect else [name for name, each in without.items() if _changes(answer, before, [each])]
    if not cut:
        return PromiseFinding(note=f"without effect in this call, and without gradient: {listed(list(without))}")
    told = f"{subject.name} gives no gradient to parameters that change its answer: {len(cut)} of {len(named)}."
    path = cut[0].rpartition(".")[0]
    culprit = Culprit(path, "module", None, _DIAGNOSIS, type(model.get_submodule(path)).__name__)
    return PromiseFinding.broken(told, [listed(cut)], _DIAGNOSIS, culprit)


def _changes(answer: Callable[[], Answer], before: Answer, parameters: Iterable[torch.nn.Parameter]) -> bool | None:
    """Tell whether other values of some parameters give another answer; the values are put back.

    None if the model makes another choice (a code, a keypoint, a number of frames): a parameter that acts only through
    choices cannot have a gradient.
    """
    kept = [(parameter, parameter.detach().clone()) for parameter in parameters]
    try:
        with torch.no_grad():
            for parameter, value in kept:
                parameter.copy_(value * (1 + _STEP) + _STEP)
        after, choices = answer()
    finally:
        with torch.no_grad():
            for parameter, value in kept:
                parameter.copy_(value)
    if first_other(before[1], choices) is not None:
        return None
    return any(
        path not in after
        or tensor.shape != after[path].shape
        or not bool(torch.isclose(tensor, after[path], equal_nan=True).all())
        for path, tensor in before[0].items()
    )


def _answer(call: ObservedCall, inputs: dict[str, Any]) -> Answer:
    """Return what a call gives beside its cache, whose keys and states show what no gradient can pass."""
    with call.restored(), Choices() as choices:
        given = {path: tensor for path, tensor in call.leaves(inputs).items() if not is_in_cache(path)}
    return given, choices.made

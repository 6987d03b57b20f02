"""Promises about the plain call: the same with a cache, inputs left as they are, gradients, what its golden holds."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.conform.subject import broken
from pytest_tfdebug.errors import GoldenError, ParityError, listed
from pytest_tfdebug.goldens.place import RECORDING, golden_mode, variants
from pytest_tfdebug.goldens.session import GoldenSession
from pytest_tfdebug.invariance.calls.repetition import Repetition
from pytest_tfdebug.invariance.checks.base import Check, Outcome
from pytest_tfdebug.invariance.checks.dtype import Choices, first_other
from pytest_tfdebug.invariance.compare.outputs import is_in_cache
from pytest_tfdebug.module_path import holder
from pytest_tfdebug.options import Options
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.settle import settled
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.running import RUNNING
from pytest_tfdebug.sweeping.fixture import golden
from pytest_tfdebug.tracing.record.leaves import duplicate, walk
from pytest_tfdebug.tracing.record.state import preserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

    from pytest_tfdebug.conform.subject import Subject
    from pytest_tfdebug.invariance.calls.observed_call import Leaves, ObservedCall
    from pytest_tfdebug.invariance.checks.dtype import Choice

    Answer = tuple[Leaves, list[Choice]]

_USE_CACHE = "use_cache"
_CACHE_FILLED = (
    "filling a cache changes what is computed: another path through attention, or keys that are altered in place."
)
_WRITTEN = (
    "it changes its inputs in place (clamp_, masked_fill_, an assignment to a slice or a key): let it work on a copy."
)


class UseCacheCheck(Check):
    """The call is made with and without a cache."""

    needs = "Call a model whose forward takes use_cache"
    verdict = "gives another answer when it fills a cache"

    def repetitions(self) -> Iterator[Repetition]:
        """Yield the call with a cache, against that without."""
        call = self.call
        if _USE_CACHE not in call.parameters:
            self.skip(f"{call.name}: its forward takes no {_USE_CACHE}")
            return
        off, on = ({**call.inputs, _USE_CACHE: value} for value in (False, True))
        label = "use_cache=True against use_cache=False"
        yield Repetition(label, on, self.unpadded, off, recorded="", diagnosis=_CACHE_FILLED)


@contextmanager
def _watched(
    model: torch.nn.Module, begin: Callable[[str], None], end: Callable[[str, object], None]
) -> Iterator[None]:
    """Tell of each call of a module: its path as it begins, path and output as it ends."""
    hooks = [
        hook
        for path, module in model.named_modules()
        for hook in (
            module.register_forward_pre_hook(lambda *_, path=path: begin(path)),
            module.register_forward_hook(lambda _, __, out, path=path: end(path, out), always_call=True),
        )
    ]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def leaves_inputs(subject: Subject) -> Outcome:
    """Make the plain call, and look whether it left what it was given as it was; a cache may be written.

    It may write into a tensor, or put another one, or one more, into a dict or a list.
    """
    model, given = subject.model, duplicate(subject.call.inputs)
    held = walk(given, into_caches=False)
    before = {leaf.path: (leaf.tensor._version, leaf.tensor.clone()) for leaf in held}  # noqa: SLF001 - torch's count
    running: list[str] = []
    writers: list[str] = []

    def note(path: str) -> None:
        if not writers and any(leaf.tensor._version != before[leaf.path][0] for leaf in held):  # noqa: SLF001 - as above
            writers.append(path)

    def begin(path: str) -> None:
        if running:  # what was written before this call is the caller's
            note(running[-1])
        running.append(path)

    with preserved(model), torch.no_grad(), _watched(model, begin, lambda *_: note(running.pop())):
        torch.manual_seed(0)
        model(**given)
    written = [leaf.path for leaf in held if not torch.equal(leaf.tensor, before[leaf.path][1])]
    had, has = ({leaf.path: id(leaf.tensor) for leaf in leaves} for leaves in (held, walk(given, into_caches=False)))
    changed = [*written, *sorted(path for path in had | has if had.get(path) != has.get(path) and path not in written)]
    if not changed:
        return Outcome(1)
    path = writers[0] if writers else ""
    kind = type(model.get_submodule(path)).__name__
    told = f"{subject.name} changes its inputs: {listed(changed)}, in {path or 'its own forward'} ({kind})."
    claim = Claim(path or kind, "glue", Evidence.WRITTEN, kind, _WRITTEN)
    return broken(told, [], _WRITTEN, settled(claim))


def has_golden(subject: Subject) -> str:
    """Return why there is no golden to hold a model to; empty if there is one, or one is to be recorded."""
    item = RUNNING.item
    if item is None:
        return "goldens belong to tests, and no test is running"
    mode = golden_mode(item.config)
    if mode == "off":
        return "--tf-golden=off"
    chosen = variants(subject.model, Options.of(item.config).golden_variant)
    place = GoldenSession.of(item.config).place(item, subject.name, chosen, is_new=False)
    return "" if mode in RECORDING or place.exists() else "it has no golden; --tf-golden=missing records one"


def agrees_with_golden(subject: Subject) -> Outcome:
    """Hold the plain call to the golden, or record it."""
    try:
        golden().check(subject.model, name=subject.name, **subject.call.inputs)
    except ParityError as error:
        return Outcome(text=str(error), culprit=error.report.culprit)
    except GoldenError as error:
        return Outcome(text=str(error))
    return Outcome(1)


#: How much a parameter is changed: relative to its value, and absolute.
_STEP = 1e-3
_NO_GRADIENT = (
    "its value is taken out of the graph: .detach(), .data, .item(), torch.no_grad, a new tensor made of it, or an "
    "operator without gradient."
)


def each_has_gradient(subject: Subject) -> Outcome:
    """Run forward and backward once, and look for parameters that change an output and have no gradient.

    A parameter without effect in this call (a pooler that nobody reads, a mask token) is only noted.
    """
    call, model = subject.call, subject.model
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    inputs = {**call.inputs, **({"use_cache": False} if "use_cache" in call.parameters else {})}
    with preserved(model), torch.enable_grad():
        torch.manual_seed(0)
        try:
            outputs = [tensor for _, tensor in walk(model(**inputs)) if tensor.is_floating_point()]
            if not outputs or not named:
                return Outcome(skipped=["it returns no floating-point tensor, or has no parameter to train"])
            # what is cut off from all of them has no gradient either
            loss = torch.zeros((), requires_grad=True) + sum(
                (each * torch.rand_like(each)).sum().float() for each in outputs
            )
            gradients = torch.autograd.grad(loss, list(named.values()), allow_unused=True)
        except (AssertionError, NotImplementedError) as error:  # Reformer wants another configuration for training
            return Outcome(skipped=[f"it cannot be run that way ({redact(str(error)).partition(chr(10))[0]})"])
    without = {name: named[name] for name, gradient in zip(named, gradients, strict=True) if gradient is None}
    if not without:
        return Outcome(1)
    answer = partial(_answer, subject.call, inputs)
    before = answer()
    is_without_effect = _changes(answer, before, without.values()) is False  # all at once: most often so
    cut = [] if is_without_effect else [name for name, each in without.items() if _changes(answer, before, [each])]
    if not cut:
        return Outcome(1, notes=[f"without effect in this call, and without gradient: {listed(list(without))}"])
    told = f"{subject.name} gives no gradient to parameters that change its answer: {len(cut)} of {len(named)}."
    path = next(_cutters(model, inputs), holder(cut[0]))
    kind = type(model.get_submodule(path)).__name__
    claim = Claim(path or kind, "module", Evidence.GRADIENT, kind, _NO_GRADIENT)
    return broken(told, [listed(cut)], _NO_GRADIENT, settled(claim))


def _cutters(model: torch.nn.Module, inputs: dict[str, Any]) -> Iterator[str]:
    """Yield the modules that have parameters and began with gradients on, but give none, as they end."""
    running: list[bool] = []
    found: list[str] = []

    def end(path: str, output: object) -> None:
        first = next((tensor for _, tensor in walk(output) if tensor.is_floating_point()), None)
        is_trained = any(parameter.requires_grad for parameter in model.get_submodule(path).parameters())
        if running.pop() and is_trained and first is not None and not first.requires_grad:
            found.append(path)

    with preserved(model), torch.enable_grad(), _watched(model, lambda _: running.append(torch.is_grad_enabled()), end):
        torch.manual_seed(0)
        model(**inputs)
    yield from found


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

"""A model call as the test made it, kept so that it can be made again."""

from __future__ import annotations

import copy
import inspect
import traceback
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode

from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.tracing.capture import capture, version
from pytest_tfdebug.tracing.leaves import is_cache, walk
from pytest_tfdebug.tracing.state import autocast_of, preserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_LIBRARIES = (
    torch.__file__.rpartition("__init__")[0],
    __file__.rpartition("invariance")[0],
)

#: Tensors by leaf path.
Leaves = dict[str, torch.Tensor]


@dataclass(eq=False)
class ObservedCall:
    """One outermost forward of a test: the module, its inputs by name, its output and the state it ran in.

    Args:
        model: The module that was called.
        inputs: Its inputs by the names of its forward's parameters, as they were.
        output: Leaves of its output, as they were.
        site: Where it was called, ``test_model.py:12``; empty where that is not known.
        rng: State of torch's random number generators before the call, by device.
        modes: Training flag of every submodule.
        autocast: Device type and dtype of the autocast that was on; None when it was off.
        has_grad: Whether gradients were on: modules with a fast path take it only without them.
        versions: Count of writes to every parameter, to see whether the weights have changed since.
        repeats: Number of forwards that were repeated.
    """

    model: torch.nn.Module
    inputs: dict[str, Any]
    output: Leaves = field(default_factory=dict)
    site: str = ""
    rng: dict[str, torch.Tensor] = field(default_factory=dict)
    modes: list[tuple[torch.nn.Module, bool]] = field(default_factory=list)
    autocast: tuple[str, torch.dtype] | None = None
    has_grad: bool = False
    versions: list[int] = field(default_factory=list)
    repeats: int = 0

    @property
    def name(self) -> str:
        """The model's class, and where it was called."""
        return f"{type(model_traits.unwrapped(self.model)).__name__}{f' ({self.site})' if self.site else ''}"

    def are_weights_unchanged(self) -> bool:
        """Tell whether no parameter was written to or replaced since the call."""
        return self.versions == _versions(self.model)

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Run a block in the call's mode, with its random numbers, without gradients; leave everything as it was."""
        with ExitStack() as stack:
            stack.enter_context(preserved(self.model))
            stack.enter_context(torch.no_grad())
            if self.autocast is not None:
                stack.enter_context(torch.autocast(*self.autocast))
            for module, training in self.modes:
                if module.training != training:
                    module.training = training
            yield

    def again(self, inputs: Mapping[str, Any], model: torch.nn.Module | None = None) -> Any:  # noqa: ANN401
        """Make the call again with other inputs, inside ``restored``, from the same random state, with its gradients.

        Args:
            inputs: Named inputs of the forward.
            model: Another model to call; the observed one by default.
        """
        _set_rng(self.rng)
        self.repeats += 1
        with torch.set_grad_enabled(self.has_grad):
            return (model or self.model)(**{name: fresh(value) for name, value in inputs.items()})

    def leaves(self, inputs: Mapping[str, Any], model: torch.nn.Module | None = None) -> Leaves:
        """Make the call again and return the leaves of its output."""
        return {path: tensor.detach() for path, tensor in walk(self.again(inputs, model))}


def observe(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[[], Any]
) -> tuple[ObservedCall | str, Any]:
    """Run a call and keep what is needed to make it again.

    Returns:
        The observed call, or why it cannot be made again, in a sentence; and the output.
    """
    __tracebackhide__ = True
    inputs = _named(model, args, kwargs)
    if isinstance(inputs, str):
        return inputs, proceed()
    call = ObservedCall(
        model,
        {name: _kept(value) for name, value in inputs.items()},
        site=call_site(),
        rng=_rng(model),
        modes=[(module, module.training) for module in model.modules()],
        autocast=autocast_of(model),
        has_grad=torch.is_grad_enabled(),
        versions=_versions(model),
    )
    output = proceed()
    call.output = {path: kept for path, tensor in walk(output) if (kept := capture(tensor)) is not None}
    return call, output


def fresh(value: Any) -> Any:  # noqa: ANN401
    """Return a value that a forward may write to: caches are copied, the rest is handed over."""
    return duplicate(value) if is_cache(value) else value


class _DetachedCopies(TorchFunctionMode):
    """Lets ``copy.deepcopy`` copy the values of a tensor that a forward made, which torch refuses."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        if func is torch.Tensor.__deepcopy__ and not args[0].is_leaf:
            return args[0].detach().clone()
        return func(*args, **(kwargs or {}))


def duplicate(value: Any) -> Any:  # noqa: ANN401 - a model or a cache, which may hold activations
    """Return a deep copy, with tensors that a forward made (a kept activation, keys and values) detached."""
    with _DetachedCopies():
        return copy.deepcopy(value)


def call_site() -> str:
    """Return the innermost line outside torch and this package, as ``test_model.py:12``."""
    place = call_place()
    return f"{place[0].replace(chr(92), '/').rpartition('/')[2]}:{place[1]}" if place else ""


def call_place() -> tuple[str, int] | None:
    """Return file and line of the innermost frame outside torch, transformers and this package."""
    for frame, line in traceback.walk_stack(inspect.currentframe()):
        file = frame.f_code.co_filename
        if not file.startswith((*_LIBRARIES, "<")) and "/transformers/" not in file and "contextlib" not in file:
            return file, line
    return None


def _named(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | str:
    names = model_traits.parameters(model)
    if len(args) > len(names):
        return f"{type(model).__name__} was given {len(args)} positional inputs and its forward names {len(names)}"
    inputs = {**dict(zip(names, args, strict=False)), **kwargs}
    for name, value in inputs.items():
        if is_cache(value) and cached_tokens(value):
            return f"{type(model).__name__} continues a cache of {cached_tokens(value)} tokens in {name}"
        if is_cache(value) and "Static" in type(value).__name__:
            return f"{type(model).__name__} was given a {type(value).__name__}, whose length is fixed, in {name}"
        if name == "past_key_values" and isinstance(value, (tuple, list)) and value:
            return f"{type(model).__name__} continues a cache in {name}"
    return inputs


def cached_tokens(cache: Any) -> int:  # noqa: ANN401 - transformers' caches and those written like them
    """Return how many tokens a cache holds; 1 for a state-space cache that holds any."""
    length = getattr(cache, "get_seq_length", None)
    try:
        return int(length()) if callable(length) else int(any(leaf.tensor.numel() for leaf in walk(cache)))
    except (TypeError, NotImplementedError, ValueError):  # state-space caches have no length
        return int(bool(getattr(cache, "has_previous_state", False)))


def _kept(value: Any) -> Any:  # noqa: ANN401
    if isinstance(value, torch.Tensor):
        kept = capture(value)
        return value if kept is None else kept
    return duplicate(value) if is_cache(value) else value


def _versions(model: torch.nn.Module) -> list[int]:
    return [
        hash((id(item), item.data_ptr(), version(item)))
        for module in model.modules()
        for item in module._parameters.values()  # noqa: SLF001 - parameters() is three times as slow
        if item is not None
    ]


def _rng(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return {"cpu": torch.get_rng_state()}
    devices = {str(item.device) for item in model.parameters() if item.device.type == "cuda"}
    return {"cpu": torch.get_rng_state(), **{device: torch.cuda.get_rng_state(device) for device in sorted(devices)}}


def _set_rng(states: Mapping[str, torch.Tensor]) -> None:
    for device, state in states.items():
        if device == "cpu":
            torch.set_rng_state(state)
        else:
            torch.cuda.set_rng_state(state, device)

"""A model call as the test made it, kept so that it can be made again."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from pytest_tfdebug.errors import second_forward
from pytest_tfdebug.invariance.calls import model_traits
from pytest_tfdebug.publish.reports import calling_line
from pytest_tfdebug.tracing.record.leaves import is_cache, walk
from pytest_tfdebug.tracing.record.modules import root_name
from pytest_tfdebug.tracing.record.signatures import named_parameters
from pytest_tfdebug.tracing.record.state import autocast_of, kept, preserved
from pytest_tfdebug.tracing.values.index_range import indices_checked
from pytest_tfdebug.tracing.values.operators import values_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_tfdebug.records import SourceRange
    from pytest_tfdebug.tracing.values.tape import Tape
    from pytest_tfdebug.values import Values

T = TypeVar("T")

#: Tensors by leaf path.
Leaves = dict[str, torch.Tensor]


@dataclass(eq=False)
class ObservedCall:
    """One outermost forward of a test: the module, its inputs by name, and the state it ran in."""

    model: torch.nn.Module  # the module that was called
    inputs: dict[str, Any]  # its inputs as they were, by the names of transformers
    autocast: tuple[str, torch.dtype] | None  # device type and dtype of the autocast that was on; None when it was off
    at: SourceRange | None = None  # the user's line that called it; None where that is not known
    # state of the CPU's random numbers before the call; None to go on from where they are
    rng: torch.Tensor | None = None
    modes: list[tuple[torch.nn.Module, bool]] = field(default_factory=list)  # training flag of every submodule
    has_grad: bool = False  # whether gradients were on: modules with a fast path take it only without them
    # what the forward calls an input, by the name that transformers gives it, where these differ
    own_names: dict[str, str] = field(default_factory=dict)
    refusal: str = ""  # why it cannot be made again; then nothing else of it is kept

    @property
    def parameters(self) -> tuple[str, ...]:
        """The names that the forward takes or hands on, by the names of transformers."""
        known = {own: name for name, own in self.own_names.items()}
        return tuple(known.get(name, name) for name in model_traits.accepted(self.model))

    def takes(self, name: str) -> bool:
        """Tell whether the forward takes an input by this name, or the test has given it one."""
        return name in self.parameters or self.inputs.get(name) is not None

    def under_names(self, names: Mapping[str, str]) -> ObservedCall:
        """Return the call with its inputs under the names of transformers."""
        inputs = {names.get(own, own): value for own, value in self.inputs.items()}
        return replace(self, inputs=inputs, own_names={name: own for own, name in names.items()})

    @property
    def class_name(self) -> str:
        """The model's class."""
        return root_name(self.model)

    @property
    def name(self) -> str:
        """The model's class, and where it was called."""
        return f"{self.class_name}{f' ({self.at})' if self.at else ''}"

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
        """Make the call again with other inputs, from the same random state; inside ``restored``."""
        with torch.set_grad_enabled(self.has_grad):
            return self._made(lambda own: (model or self.model)(**own), inputs, model)

    def taped(self, inputs: Mapping[str, Any], model: torch.nn.Module | None, tape: Tape) -> Values:
        """Make the call again, as :meth:`again` does, and return its operators; the tape gets their tensors."""
        run = partial(values_of, model or self.model, "forward", (), tape=tape)
        return self._made(run, inputs, model)

    def _made(self, run: Callable[[dict[str, Any]], T], inputs: Mapping[str, Any], model: torch.nn.Module | None) -> T:
        if self.rng is not None:
            torch.set_rng_state(self.rng)
        with indices_checked(model or self.model), second_forward():
            return run({self.own_names.get(name, name): kept(value) for name, value in inputs.items()})

    def leaves(self, inputs: Mapping[str, Any], model: torch.nn.Module | None = None) -> Leaves:
        """Make the call again and return the leaves of its output."""
        return {path: tensor.detach() for path, tensor in walk(self.again(inputs, model))}


def observe(
    model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], proceed: Callable[[], Any]
) -> tuple[ObservedCall, Any]:
    """Run a call and keep what is needed to make it again."""
    __tracebackhide__ = True
    inputs = _named(model, args, kwargs)
    if isinstance(inputs, str):
        return ObservedCall(model, {}, None, at=calling_line(), refusal=inputs), proceed()
    call = ObservedCall(
        model,
        {name: kept(value) for name, value in inputs.items()},
        autocast_of(model),
        at=calling_line(),
        rng=torch.get_rng_state(),
        modes=[(module, module.training) for module in model.modules()],
        has_grad=torch.is_grad_enabled(),
    )
    return call, proceed()


def _named(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any] | str:
    names = named_parameters(model_traits.kind_of(model))
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

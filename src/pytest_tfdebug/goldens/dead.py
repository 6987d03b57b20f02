"""What has no effect in a call: inputs, modules, parameters and buffers on which no output depends.

One backward says which of them an output can be reached from. That is not enough, for what only chooses (an expert, the
largest) has no gradient: all suspects are changed at once, and again by halves where that moves an output, until a
group changes no bit.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from pytest_tfdebug.tensors import is_plain
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.masks import is_mask
from pytest_tfdebug.tracing.record.signatures import method_of
from pytest_tfdebug.tracing.record.state import preserved

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import TypeAlias

    from pytest_tfdebug.tracing.values.rerun import Rerun

    #: What may have no effect: ``input``, ``module`` or ``weight``, and its name.
    Suspect: TypeAlias = tuple[str, str]

#: Parameters of the largest model whose weights and modules are looked at: it takes a backward and some six forwards.
_MOST = 50_000_000
_SEED = 1
#: How much suspects are changed, in what they differ by; where that moves nothing much more, the other way: an expert's
#: bias is then above any score, and what is below a limit above it.
_AMOUNTS = (1.0, -100.0)
#: What integers are multiplied with that change nothing otherwise: a position is then beyond any limit or table.
_FAR = 100_003


@dataclass(frozen=True)
class Dead:
    """What changes no output of a call."""

    inputs: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()  # outermost modules that compute something that goes nowhere, by path
    weights: tuple[str, ...] = ()  # parameters and buffers, those of dead modules left out


def find_dead(again: Rerun, weights: Mapping[str, torch.Tensor]) -> Dead:
    """Find what has no effect in a call; nothing where the call is not the same each time.

    Args:
        again: A model and its call, whose inputs are made anew for each forward.
        weights: The parameters and buffers to look at, by name.
    """
    call = _RepeatedCall(again, weights)
    base = call.outputs()
    if not base or not are_equal(base, call.outputs()):
        return Dead()
    suspects = call.unreached()
    kinds: dict[str, list[Suspect]] = {"weight": [], "module": []}
    for suspect in suspects:
        kinds[suspect[0]].append(suspect)
    dead = {each for group in kinds.values() for each in _without_effect(group, lambda some: call.moves(base, some))}
    modules = _outermost([name for kind, name in dead if kind == "module"])
    idle = sorted(name for kind, name in dead if kind == "weight")
    inputs = [name for name in call.inputs if not call.is_moved_by(base, name)]
    return Dead(tuple(inputs), tuple(modules), tuple(each for each in idle if not _is_in(each, modules)))


def without_gradient(again: Rerun, weights: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the weights that no gradient of a call's loss reaches; none where it returns no loss, or is too large."""
    return [name for kind, name in _RepeatedCall(again, weights).unreached(is_of_loss=True) if kind == "weight"]


class _RepeatedCall:
    """A call that is made again and again, with changes."""

    def __init__(self, again: Rerun, weights: Mapping[str, torch.Tensor]) -> None:
        self._model, self._again, self._weights = again.model, again, weights
        self._paths = {module: path for path, module in again.model.named_modules() if path}
        self.inputs = {name: value for name, value in again.named().items() if value.numel() and is_plain(value)}

    def outputs(self, **changed: torch.Tensor) -> list[torch.Tensor]:
        """Return what the call returns, in the order of its leaves, with other inputs."""
        with preserved(self._model), torch.no_grad():
            return [leaf.tensor.detach().clone() for leaf in walk(self._made(changed)) if is_plain(leaf.tensor)]

    def _made(self, changed: dict[str, torch.Tensor]) -> Any:  # noqa: ANN401 - what the model returns
        args, kwargs = self._again.given(changed).inputs()
        self._again.seed()
        return method_of(self._model, self._again.method)(*args, **kwargs)

    def unreached(self, *, is_of_loss: bool = False) -> list[Suspect]:
        """Return the weights and modules that no output has a gradient of; none where no backward is made.

        ``is_of_loss`` begins at outputs of one number alone.
        """
        if sum(each.numel() for each in self._model.parameters()) > _MOST:
            return []
        made: dict[str, list[torch.Tensor]] = {}

        def keep(module: torch.nn.Module, _: Any, output: Any) -> None:  # noqa: ANN401 - of a hook
            reached = (leaf.tensor for leaf in walk(output))
            made.setdefault(self._paths[module], []).extend(each for each in reached if each.requires_grad)

        floats = {name: each for name, each in self._weights.items() if each.is_floating_point() and each.numel()}
        with ExitStack() as stack:
            stack.enter_context(preserved(self._model))
            stack.enter_context(_requiring_grad(floats.values()))
            for module in self._paths:
                stack.callback(module.register_forward_hook(keep).remove)
            with torch.enable_grad():
                try:
                    found = [leaf.tensor for leaf in walk(self._made({}))]
                    ends = [each for each in found if each.requires_grad and each.is_floating_point()]
                    ends = [each for each in ends if not is_of_loss or each.numel() == 1]
                    loss = _weighted_sum(ends)
                    keys: list[Suspect] = [("weight", name) for name in floats]
                    keys += [("module", name) for name, tensors in made.items() for _ in tensors]
                    of = [*floats.values(), *chain.from_iterable(made.values())]
                    gradients = torch.autograd.grad(loss, of, allow_unused=True)
                except (RuntimeError, NotImplementedError):  # no operator's backward, or a tensor written to in place
                    return []
        live = {key for key, each in zip(keys, gradients, strict=True) if each is not None and bool((each != 0).any())}
        return [key for key in dict.fromkeys(keys) if key not in live]

    def moves(self, base: list[torch.Tensor], group: Sequence[Suspect]) -> bool:
        """Tell whether an output moves if all of a group are changed at once, a little or much."""
        return any(self._moves(base, group, amount) for amount in _AMOUNTS)

    def _moves(self, base: list[torch.Tensor], group: Sequence[Suspect], amount: float) -> bool:
        generator = torch.Generator().manual_seed(_SEED)

        def shaken(tensor: Any) -> Any:  # noqa: ANN401 - a leaf of any kind
            return _shaken(tensor, generator, amount) if isinstance(tensor, torch.Tensor) else tensor

        with ExitStack() as stack:
            for kind, name in group:
                if kind == "weight":
                    stack.enter_context(_holding(self._weights[name], shaken(self._weights[name].detach())))
                else:
                    module = self._model.get_submodule(name)
                    hook = module.register_forward_hook(lambda _m, _a, output: tree_map(shaken, output))
                    stack.callback(hook.remove)
            return self._differs(base, {})

    def is_moved_by(self, base: list[torch.Tensor], name: str) -> bool:
        """Tell whether an output moves with an input; also if that cannot be changed without an error."""
        value = self.inputs[name]
        others = [other for other in _others(name, value) if not torch.equal(other, value)]
        return not others or any(self._differs(base, {name: other}) for other in others)

    def _differs(self, base: list[torch.Tensor], changed: dict[str, torch.Tensor]) -> bool:
        try:
            return not are_equal(base, self.outputs(**changed))
        except Exception:  # noqa: BLE001 - whatever it minds, it reads
            return True


def _without_effect(group: Sequence[Suspect], moves: Callable[[Sequence[Suspect]], bool]) -> list[Suspect]:
    """Return those of a group that move nothing, by halves: one forward says so of all."""
    if not group or not moves(group):
        return list(group)
    middle = len(group) // 2
    halves = (group[:middle], group[middle:]) if middle else ()
    return [each for half in halves for each in _without_effect(half, moves)]


def are_equal(one: Sequence[torch.Tensor], other: Sequence[torch.Tensor]) -> bool:
    """Tell whether tensors are the same, bit for bit."""
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs
    )


def _weighted_sum(ends: Iterable[torch.Tensor]) -> torch.Tensor:
    """Return a sum of all elements with random weights, so that nothing cancels."""
    generator = torch.Generator().manual_seed(_SEED)
    parts = (each.double().cpu() * torch.rand(each.shape, generator=generator).double() for each in ends)
    return torch.stack([part.sum() for part in parts]).sum()


def _shaken(tensor: torch.Tensor, generator: torch.Generator, amount: float = 1.0) -> torch.Tensor:
    if not (tensor.is_floating_point() and tensor.numel()):
        return tensor
    noise = torch.randn(tensor.shape, generator=generator).to(tensor.device)
    return (tensor + amount * noise * (tensor.float().std(unbiased=False) + 0.1)).to(tensor.dtype)


def _others(name: str, value: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield other values of an input: neighbours that differ from one another otherwise than before."""
    if value.is_floating_point() and not is_mask(name):
        yield _shaken(value, torch.Generator().manual_seed(_SEED))
    elif value.is_floating_point() or value.is_complex():
        yield torch.zeros_like(value)
        yield torch.ones_like(value)
        yield value * -1.5
    else:
        flat = torch.arange(value.numel(), device=value.device).reshape(value.shape)
        yield (flat % 2).to(value.dtype)
        yield (flat % 3 == 0).to(value.dtype)
        yield value.roll(1, -1) if value.ndim else value + 1
        yield torch.zeros_like(value)
        yield torch.ones_like(value)
        if value.dtype == torch.int64 and value.is_cpu and not is_mask(name):  # an index ends the process of a GPU
            yield value * _FAR


@contextmanager
def _holding(tensor: torch.Tensor, values: torch.Tensor) -> Iterator[None]:
    """Let a weight hold other values in a block; its own memory is not written to."""
    kept = tensor.data
    tensor.data = values
    try:
        yield
    finally:
        tensor.data = kept


@contextmanager
def _requiring_grad(tensors: Iterable[torch.Tensor]) -> Iterator[None]:
    kept = [(tensor, tensor.requires_grad) for tensor in tensors if tensor.is_leaf]
    try:
        for tensor, _ in kept:
            tensor.requires_grad = True
        yield
    finally:
        for tensor, wanted in kept:
            tensor.requires_grad = wanted


def _is_in(name: str, modules: Iterable[str]) -> bool:
    return any(name.startswith(f"{module}.") for module in modules)


def _outermost(modules: Sequence[str]) -> list[str]:
    return sorted(each for each in modules if not _is_in(each, modules))

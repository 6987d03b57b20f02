"""The calls of a step under watch, of a whole batch and of its micro-batches, and the module that spoils a gradient."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.settle import settled
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.modules import modules_by_path
from pytest_tfdebug.tracing.record.sites import forward_source

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from types import TracebackType

    from typing_extensions import Self

    from pytest_tfdebug.records import Culprit

    Tensors = dict[str, torch.Tensor]

#: Relative L2 error above which a gradient or an output is another one: the same operators ran, in other batches.
SAME = 1e-3
#: Share of the greatest norm below which a gradient is rounding: of a bias before a norm nothing is left.
_ROUNDING = 1e-5


@dataclass
class _CallGradients:
    """One call of a module: the gradients that came to what it gave, and those that it gave to what it took."""

    order: int
    taken: Tensors = field(default_factory=dict)
    given: Tensors = field(default_factory=dict)


class WatchedCalls:
    """The calls of each module in a block, by path and number of the call.

    With ``splits`` each module takes a view of what it is given, so that the gradient of an input is what this call
    gives to it, and not what others that take the same tensor add.
    """

    def __init__(self, model: torch.nn.Module, *, splits: bool) -> None:
        self.calls: dict[tuple[str, int], _CallGradients] = {}
        self._model, self._splits = model, splits
        self._running: list[_CallGradients] = []
        self._handles: list[Any] = []

    def __enter__(self) -> Self:
        for path, module in modules_by_path(self._model).items() if self._splits else ():
            self._handles += [
                module.register_forward_pre_hook(
                    lambda _, args, kwargs, path=path: self._begin(path, args, kwargs), with_kwargs=True
                ),
                module.register_forward_hook(lambda _module, _args, output: self._end(output)),
            ]
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _tb: TracebackType | None
    ) -> None:
        for handle in self._handles:
            handle.remove()

    def _begin(self, path: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        number = sum(known == path for known, _ in self.calls)
        call = self.calls[path, number] = _CallGradients(len(self.calls))
        self._running.append(call)
        split = [self._split(call, str(place), value) for place, value in enumerate(args)]
        return tuple(split), {name: self._split(call, name, value) for name, value in kwargs.items()}

    def _split(self, call: _CallGradients, name: str, value: Any) -> Any:  # noqa: ANN401 - any input
        if not (isinstance(value, torch.Tensor) and value.requires_grad and value.is_floating_point()):
            return value
        view = value.view_as(value)
        view.register_hook(lambda gradient: call.taken.__setitem__(name, gradient.detach()))  # type: ignore[no-untyped-call]
        return view

    def _end(self, output: object) -> None:
        call = self._running.pop()
        for leaf in walk(output, into_caches=False):
            if leaf.tensor.requires_grad:
                leaf.tensor.register_hook(
                    lambda gradient, path=leaf.path: call.given.__setitem__(path, gradient.detach())
                )  # type: ignore[no-untyped-call]


def joined(whole: torch.Tensor, one: torch.Tensor, other: torch.Tensor) -> torch.Tensor | None:
    """Return two tensors of micro-batches as that of the whole; None where their shapes do not say how."""
    dims = [dim for dim, size in enumerate(whole.shape) if one.dim() == whole.dim() and size != one.shape[dim]]
    if len(dims) != 1 or one.shape != other.shape or whole.shape[dims[0]] != 2 * one.shape[dims[0]]:
        return None
    return torch.cat([one, other], dim=dims[0])


def others(expected: Mapping[str, torch.Tensor], actual: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the names of the floating-point tensors of one side that the other lacks, or has otherwise."""
    floats = {name: each.double().nan_to_num() for name, each in expected.items() if each.is_floating_point()}
    greatest = max((float(each.norm()) for each in floats.values()), default=0.0)
    return [
        name
        for name, each in floats.items()
        if name not in actual
        or actual[name].shape != each.shape
        or bool((each - actual[name].double().nan_to_num()).norm() > SAME * each.norm() + _ROUNDING * greatest)
    ]


def culprit_of(
    model: torch.nn.Module,
    whole: Sequence[WatchedCalls],
    micro: Sequence[WatchedCalls],
    *,
    wrong: Collection[str],
    share: float,
    why: str,
) -> Culprit | None:
    """Return the innermost module that gets the right gradient and gives a wrong one, to an input or a parameter."""
    modules = modules_by_path(model)
    held = [id(each) for module in modules.values() for each in module.parameters(recurse=False)]
    parts = {key: [each.calls[key] for each in micro if key in each.calls] for key in whole[0].calls}
    right = {
        key
        for key, call in whole[0].calls.items()
        if len(parts[key]) == len(micro) and _differ(call.given, [each.given for each in parts[key]], share) is False
    }
    found: list[tuple[int, int, str]] = []
    for (path, number), call in whole[0].calls.items():
        if (path, number) not in right:
            continue
        # a parameter gets its gradient from all calls
        is_right = all(key in right for key in whole[0].calls if key[0] == path)
        own = modules[path].named_parameters(recurse=False) if is_right else ()
        names = {f"{path}.{name}".lstrip(".") for name, each in own if held.count(id(each)) == 1}
        if names & {*wrong} or _differ(call.taken, [each.taken for each in parts[path, number]], share):
            found.append((path.count("."), call.order, path))
    if not found:
        return None
    path = max(found)[2]
    name = type(modules[path]).__name__
    lines = forward_source(modules[path])
    return settled(Claim(path or name, "gradient", Evidence.GRADIENT, name, why, source=lines))


def _differ(whole: Tensors, parts: Sequence[Tensors], share: float) -> bool | None:
    """Tell whether gradients of micro-batches do not make those of the whole; None where none could be compared."""
    expected, made = {}, {}
    for name, tensor in whole.items():
        ones = [part[name] for part in parts if name in part]
        if len(ones) < len(parts):
            continue
        both = ones[0] + ones[1] if ones[0].shape == ones[1].shape == tensor.shape else joined(tensor, *ones)
        if both is not None:
            expected[name], made[name] = tensor, both * share
    return bool(others(expected, made)) if expected else None

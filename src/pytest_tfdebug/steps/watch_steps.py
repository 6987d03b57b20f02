"""A training under watch: torch's own hooks on optimisers, and on the backward, tell each step."""

from __future__ import annotations

import inspect
import math
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.steps.rows import ParameterRows, RowKeys
from pytest_tfdebug.steps.training import OWN_CODE, Batch, LiveStep, OptimizerStep, TrainingEnd
from pytest_tfdebug.tensors import is_plain
from pytest_tfdebug.tracing.record.sites import is_library
from pytest_tfdebug.values import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import FrameType

    from typing_extensions import Self

    _Tensors = Mapping[str, torch.Tensor | None]

#: Share of its norm by which a gradient may be off a multiple of another: both are of one run.
_SAME = 1e-4
#: Hyperparameters that say how a step is computed, and not which.
_HOW = frozenset({"params", "foreach", "fused", "capturable", "differentiable", "initial_lr", "param_names"})


class StepsWatch:
    """Sees the backwards and the steps of a block.

    Args:
        model: Whose parameters are told.
        before_first: Called with the first loss, and the gradients that the last backward has left, before they are
            clipped, as the first step begins.
    """

    def __init__(
        self, model: torch.nn.Module, before_first: Callable[[float, _Tensors], object], keys: RowKeys
    ) -> None:
        self.steps: list[OptimizerStep] = []
        self._own_steps: list[OptimizerStep] = []  # of a run that has no optimiser
        self._before_first, self._model = before_first, model
        self._has_begun = False
        self._parameters = dict(model.named_parameters())
        self._names = {id(each): name for name, each in self._parameters.items()}
        self._start = {name: each.detach().clone() for name, each in self._parameters.items()}
        floats = {name: each for name, each in model.named_buffers() if each.is_floating_point()}
        self._buffers = {name: each for name, each in floats.items() if each.numel() > 1}
        self._held = {name: each.detach().clone() for name, each in self._buffers.items()}
        self._first_buffers = dict(self._held)
        self._keys, self._buffer_keys = keys, RowKeys()
        self._batches: list[Batch] = []
        self._first_loss = math.nan
        self._pending: Callable[[], Batch] | None = None  # the last batch: a run without steps needs none
        self._left: dict[str, torch.Tensor | None] = {}
        self._made: dict[int, tuple[Line, ...]] = {}
        self._before: dict[str, torch.Tensor] = {}
        self._last = self._start  # the parameters after the last step
        self._at_backward: dict[str, torch.Tensor] = {}  # the parameters as the last one was made
        # where each parameter was written to since the last step, by no optimiser; by the place of its memory
        self._written: dict[str, tuple[Line, ...]] = {}
        self._places = {each.data_ptr(): name for name, each in self._parameters.items()}
        # whose steps, each with the frame that makes it: a step may call that of its superclass, or of another
        self._under_way: list[tuple[Optimizer, FrameType]] = []
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        original, made = torch.autograd.backward, Optimizer.__init__

        def backward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as torch's
            return self._backward(original, args, kwargs)

        def init(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            self._made[id(optimizer)] = _lines()
            made(optimizer, *args, **kwargs)

        self._undo.enter_context(patch.object(torch.autograd, "backward", backward))
        self._undo.enter_context(patch.object(Optimizer, "__init__", init))
        self._undo.callback(register_optimizer_step_pre_hook(self._begins).remove)
        self._undo.callback(register_optimizer_step_post_hook(self._ended).remove)
        return self

    def __exit__(self, raised: object, *_: object) -> None:
        self._undo.close()
        if not self.steps and raised is None:
            self._step_of_own_code()
            self.steps = self._own_steps

    @property
    def end(self) -> TrainingEnd:
        """What the run has changed."""
        self._refuse_other_shapes()
        flowed = {name: each.detach() - self._first_buffers[name] for name, each in self._buffers.items()}
        return TrainingEnd(
            self._moved(self._copies()),
            ParameterRows.of(self._first_buffers, flowed, self._buffer_keys),
            self._written,
        )

    def wrote(self, tensor: torch.Tensor) -> None:
        """Note that code has written to a tensor, or put another one in its place, unless an optimiser's step did."""
        name = self._names.get(id(tensor)) or (self._places.get(tensor.data_ptr()) if is_plain(tensor) else None)
        if name is not None and not self._steps_under_way():
            self._written[name] = _lines()

    def _steps_under_way(self) -> list[tuple[Optimizer, FrameType]]:
        """Return the steps that are under way: one that an exception has left is over."""
        if self._under_way:
            frames = set[int]()
            frame: FrameType | None = sys._getframe()  # noqa: SLF001 - the documented way to the running frame
            while frame is not None:
                frames.add(id(frame))
                frame = frame.f_back
            self._under_way = [each for each in self._under_way if id(each[1]) in frames]
        return self._under_way

    def _taken(self) -> dict[str, tuple[Line, ...]]:
        """Return where parameters were written to, and begin anew."""
        written, self._written = self._written, {}
        return written

    def _gradients(self) -> dict[str, torch.Tensor | None]:
        return {
            name: None if each.grad is None else each.grad.detach().clone() for name, each in self._parameters.items()
        }

    def _note_batch(self) -> None:
        if self._pending is not None:
            self._batches.append(self._pending())
            self._pending = None

    def _step_of_own_code(self) -> None:
        """Note a step that no optimiser has made: the parameters are others than they were at the last backward."""
        self._note_batch()
        batches = self._batches[sum(len(step.batches) for step in self._own_steps) :]
        if not batches or all(torch.equal(each, self._at_backward[name]) for name, each in self._parameters.items()):
            return
        self._begin_steps()
        given, none = ParameterRows.of(self._start, self._left, self._keys), dict[str, torch.Tensor | None]()
        flow = ParameterRows.of(self._first_buffers, none, self._buffer_keys)
        now, lines = self._copies(), batches[-1].lines
        moved, self._last = self._moved(now), now
        step = OptimizerStep(
            OWN_CODE, "", batches, given, None, {}, {}, (), (), flow, lines, (), moved, written=self._taken()
        )
        self._own_steps.append(step)

    def _begin_steps(self) -> None:
        """End the watch of the forward, once: it sees nothing of what follows the first step."""
        if not self._has_begun:
            self._has_begun = True
            self._before_first(self._first_loss, self._left)

    def _moved(self, now: dict[str, torch.Tensor]) -> ParameterRows:
        """Return by how much each parameter moved since the step before; most move in steps alone."""
        moved = {name: each - self._last[name] for name, each in now.items() if not torch.equal(each, self._last[name])}
        return ParameterRows.of(self._start, moved, self._keys)

    def _backward(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        self._refuse_other_shapes()
        if not self.steps:
            self._step_of_own_code()
        self._note_batch()
        before = self._gradients()
        done = original(*args, **kwargs)
        after = self._gradients()
        added = {name: _minus(after[name], before[name]) for name in after}
        is_fresh = not any(each is not None and bool(each.any()) for each in before.values())
        loss = args[0] if args else kwargs.get("tensors")
        loss = loss if isinstance(loss, torch.Tensor) else loss[0]  # type: ignore[index]
        number, lines = float(loss.detach()) if loss.numel() == 1 else 0.0, _lines()
        if math.isnan(self._first_loss):
            self._first_loss = number
        self._pending = lambda: Batch(number, is_fresh, ParameterRows.of(self._start, added, self._keys), lines)
        self._left = after
        if not self.steps:
            self._at_backward = self._copies()
        return done

    def _refuse_other_shapes(self) -> None:
        for name, each in self._model.named_parameters():
            begun = self._start.get(name)
            if begun is not None and begun.shape != each.shape:
                raise TFDebugError(
                    f"A run changes the shape of {name} from {tuple(begun.shape)} to {tuple(each.shape)}: both models "
                    "are held with the parameters that they begin with.\nChange it before the check, not in run=."
                )

    def _copies(self) -> dict[str, torch.Tensor]:
        return {name: each.detach().clone() for name, each in self._parameters.items()}

    def _begins(self, optimizer: Optimizer, *_given: Any) -> None:  # noqa: ANN401
        is_first = all(each is not optimizer for each, _ in self._steps_under_way())
        self._under_way.append((optimizer, sys._getframe(1)))  # noqa: SLF001
        if not is_first or not self._is_ours(optimizer):
            return
        if not self._left:  # no backward has been made
            raise TFDebugError(
                f"A step of {type(optimizer).__name__} begins before any backward, as where a closure makes it: a step "
                "is held to the gradients that are there as it begins.\n"
                "Call loss.backward() in run=, then step() without a closure."
            )
        self._begin_steps()
        self._note_batch()
        self._before = self._copies()
        self._given = self._gradients()

    def _is_ours(self, optimizer: Optimizer) -> bool:
        return any(id(each) in self._names for group in optimizer.param_groups for each in group["params"])

    def _ended(self, optimizer: Optimizer, *_given: Any) -> None:  # noqa: ANN401
        under_way = self._steps_under_way()
        under_way.pop()
        if any(each is optimizer for each, _ in under_way) or not self._is_ours(optimizer):
            return
        self._refuse_other_shapes()
        groups = optimizer.param_groups
        held = [self._names[id(each)] for group in groups for each in group["params"] if id(each) in self._names]
        settings = {
            self._names[id(each)]: {key: _plain(value) for key, value in group.items() if key not in _HOW}
            for group in groups
            for each in group["params"]
            if id(each) in self._names
        }
        after, outside, current = self._copies(), self._moved(self._before), dict(self._model.named_parameters())
        flow = {name: each.detach() - self._held[name] for name, each in self._buffers.items()}
        self._held = {name: each.detach().clone() for name, each in self._buffers.items()}
        kind = type(optimizer)
        given: dict[str, torch.Tensor | None] = {name: self._given[name] for name in self._given}
        self.steps.append(
            OptimizerStep(
                kind.__name__,
                kind.__module__,
                self._batches,
                ParameterRows.of(self._start, given, self._keys),
                *_factors(given, self._left, held),
                settings,
                tuple(sorted({name for name in held if held.count(name) > 1})),
                tuple(name for name in dict.fromkeys(held) if current.get(name) is not self._parameters[name]),
                ParameterRows.of(self._first_buffers, flow, self._buffer_keys),
                _lines(),
                self._made.get(id(optimizer), ()),
                self._moved(after),
                outside,
                _rule(kind),
                LiveStep(given, self._before, after),
                kind,
                self._taken(),
            )
        )
        self._batches, self._last = [], after


def _plain(value: Any) -> Any:  # noqa: ANN401 - a hyperparameter
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else repr(value)
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _minus(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    return one if one is None or other is None else one - other


def _factors(given: _Tensors, left: _Tensors, held: list[str]) -> tuple[float | None, dict[str, float | None]]:
    """Return what an optimiser saw over what the backwards left: of all parameters, and of each that has a gradient."""
    sums: dict[str, tuple[float, float, float]] = {}
    for name in dict.fromkeys(held):
        own, before = given.get(name), left.get(name)
        if own is None or before is None or not before.any():
            continue
        wide, known = own.double().flatten(), before.double().flatten()
        sums[name] = float(wide @ known), float(known @ known), float(wide @ wide)
    total = [sum(each) for each in zip(*sums.values(), strict=True)] if sums else [0.0, 0.0, 0.0]
    return _factor(*total), {name: _factor(*each) for name, each in sums.items()}


def _factor(product: float, square: float, own: float) -> float | None:
    """Return k where a vector is k times another, from their product and squares; None where it is no multiple."""
    if not square:
        return None
    k = product / square
    apart = max(own - k * product, 0.0)
    return k if apart <= (_SAME**2) * max(own, 1e-300) else None


def _rule(kind: type) -> tuple[str, int, int] | None:
    if kind.__module__.startswith("torch."):
        return None
    try:
        lines, first = inspect.getsourcelines(inspect.unwrap(kind.step))  # type: ignore[attr-defined]
        file = inspect.getsourcefile(kind) or ""
    except (OSError, TypeError, AttributeError):
        return None
    return file, first, first + len(lines) - 1


def _lines() -> tuple[Line, ...]:
    """Return the user's lines under way, innermost first."""
    found: list[Line] = []
    frame = sys._getframe(1)  # noqa: SLF001 - the documented way to the running frame
    while frame is not None and len(found) < 8:  # noqa: PLR2004 - enough for a trainer's layers
        code = frame.f_code
        if not is_library(code.co_filename) and "contextlib" not in code.co_filename:
            found.append(Line(code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    # a trainer's lines say less than those of who calls it
    own = tuple(each for each in found if "site-packages" not in each.file)
    return own or tuple(found)

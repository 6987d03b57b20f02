"""A training under watch: torch's own hooks on optimisers, and on the backward, tell each step."""

from __future__ import annotations

import inspect
import math
import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import torch
from torch.nn.utils import clip_grad
from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.steps.rows import ParameterRows, RowKeys, real_parts
from pytest_tfdebug.steps.training import Batch, Holder, LiveStep, OptimizerStep, TrainingEnd
from pytest_tfdebug.steps.watch import grad_arguments
from pytest_tfdebug.tensors import is_plain, readable
from pytest_tfdebug.tracing.record.sites import is_library
from pytest_tfdebug.values import Line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import CodeType, FrameType

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
        self._around = set[int]()  # ``id`` of optimisers inside of whose step another one has made its own
        self._keys, self._buffer_keys = keys, RowKeys()
        self._batches: list[Batch] = []
        self._first_loss = math.nan
        self._pending: Callable[[], Batch] | None = None  # the last batch: a run without steps needs none
        self._left: dict[str, torch.Tensor | None] = {}
        self._made: dict[int, tuple[tuple[Line, ...], dict[str, dict[str, Any]]]] = {}  # where, and with which settings
        self._stepped: list[Optimizer] = []  # since the last backward
        self._before: dict[str, torch.Tensor] = {}
        self._given: dict[str, torch.Tensor | None] = {}
        self._last = self._start  # the parameters after the last step
        self._begun: dict[str, torch.Tensor] = {}  # the parameters at the first backward of a step
        self._at_backward: dict[str, torch.Tensor] = {}  # the parameters as the last one was made
        self._at_write: dict[str, torch.Tensor | None] = {}  # the gradients as code first wrote to a parameter
        # where each parameter and each gradient was written to, by no optimiser; by the place of its memory
        self._written: dict[str, tuple[Line, ...]] = {}
        self._touched: dict[str, tuple[Line, ...]] = {}
        self._writer: CodeType | None = None  # the function that wrote to a parameter last, in the step of an optimiser
        self._is_rescaled = False  # whether gradients were, by more than torch's clipping
        self._places = {_place(each): name for name, each in self._parameters.items()}
        self._gradient_places: dict[object, str] = {}
        # whose steps, each with the frame that makes it: a step may call that of its superclass, or of another
        self._under_way: list[tuple[Optimizer, FrameType]] = []
        self._undo = ExitStack()

    def __enter__(self) -> Self:
        original, taken, made = torch.autograd.backward, torch.autograd.grad, Optimizer.__init__

        def backward(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as torch's
            return self._backward(original, args, kwargs)

        def grad(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as torch's
            return self._taken_by_grad(taken, args, kwargs)

        def init(optimizer: Optimizer, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
            lines = _lines()
            made(optimizer, *args, **kwargs)
            self._made[id(optimizer)] = lines, self._settings(optimizer)

        self._undo.enter_context(patch.object(torch.autograd, "backward", backward))
        self._undo.enter_context(patch.object(torch.autograd, "grad", grad))
        self._undo.enter_context(patch.object(Optimizer, "__init__", init))
        self._undo.callback(register_optimizer_step_pre_hook(self._begins).remove)
        self._undo.callback(register_optimizer_step_post_hook(self._ended).remove)
        return self

    def __exit__(self, raised: object, *_: object) -> None:
        self._undo.close()
        if not self.steps and raised is None:
            self._step_of_own_code()
            self.steps = self._own_steps
        elif raised is None:
            self._close(self._copies())

    @property
    def end(self) -> TrainingEnd:
        """What the run has changed."""
        self._refuse_other_shapes()
        flowed = {name: each.detach() - self._first_buffers[name] for name, each in self._buffers_now().items()}
        return TrainingEnd(
            self._moved(self._last, self._copies()),
            ParameterRows.of(self._first_buffers, flowed, self._buffer_keys),
            self.steps[-1].written,
        )

    def wrote(self, tensor: torch.Tensor) -> None:
        """Note that code has written to a tensor, or put another one in its place, unless an optimiser's step did."""
        place = _place(tensor)
        name = self._names.get(id(tensor)) or self._places.get(place)
        if self._steps_under_way():
            self._writer = self._writer if name is None else _code_under_way()
        elif name is not None:
            self._written[name] = _lines()
            self._at_write = self._at_write or self._gradients()
        elif place in self._gradient_places:
            self._touched[self._gradient_places[place]] = _lines()
            self._is_rescaled = self._is_rescaled or not _is_clipping()

    def set_gradient(self, tensor: torch.Tensor, gradient: torch.Tensor | None) -> None:
        """Note that code puts a gradient in the place of a tensor's, or takes it away."""
        name = self._names.get(id(tensor))
        if name is not None and not self._steps_under_way():
            self._touched[name], self._is_rescaled = _lines(), True
            if gradient is not None:
                self._gradient_places[_place(gradient)] = name

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

    def _buffers_now(self) -> dict[str, torch.Tensor]:
        """Return the buffers as they are: some code assigns another tensor."""
        now = dict(self._model.named_buffers())
        return {
            name: now[name] if name in now and now[name].shape == each.shape else each
            for name, each in self._buffers.items()
        }

    def _gradients(self) -> dict[str, torch.Tensor | None]:
        held = {name: each.grad for name, each in self._parameters.items()}
        read = {name: None if each is None else readable(each.detach()) for name, each in held.items()}
        return {name: None if each is None else each.clone() for name, each in read.items()}

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
        given = self._at_write if any(each is not None for each in self._at_write.values()) else self._left
        flow = ParameterRows.of(self._first_buffers, {}, self._buffer_keys)
        now = self._copies()
        step = OptimizerStep(
            batches,
            ParameterRows.of(self._start, given, self._keys),
            *_factors(given, self._left, [*self._parameters]),
            {},
            {},
            (),
            (),
            flow,
            batches[-1].lines,
            self._moved(self._at_backward, now),
            None,
            LiveStep(given, self._at_backward, now),
            self._written,
            self._touched,
            is_rescaled=True,  # nobody knows
        )
        self._own_steps.append(step)
        self._written, self._touched, self._left = {}, {}, {}

    def _begin_steps(self) -> None:
        """End the watch of the forward, once: it sees nothing of what follows the first step."""
        if not self._has_begun:
            self._has_begun = True
            self._before_first(self._first_loss, self._left)

    def _begin_step(self) -> None:
        """End the step before, as another begins: with its first backward, or without one."""
        now = self._copies()
        self._close(now)
        self._begun, self._stepped, self._left = now, [], {}

    def _close(self, now: dict[str, torch.Tensor]) -> None:
        """Note how far the parameters have come since the first backward of the last step."""
        if self.steps and self.steps[-1].moved is None:
            self.steps[-1].moved = self._moved(self._begun, now)
            self.steps[-1].written, self._written = self._written, {}

    def _moved(self, since: dict[str, torch.Tensor], now: dict[str, torch.Tensor]) -> ParameterRows:
        """Return by how much each parameter moved; most move in steps alone."""
        moved = {name: each - since[name] for name, each in now.items() if not torch.equal(each, since[name])}
        return ParameterRows.of(self._start, moved, self._keys)

    def _backward(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        before = self._before_backward()
        done = original(*args, **kwargs)
        after = self._gradients()
        added = {name: _minus(after[name], before[name]) for name in after}
        self._note_backward(args[0] if args else kwargs.get("tensors"), before, added)
        self._left = after
        return done

    def _taken_by_grad(self, original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:  # noqa: ANN401
        """Make a backward that leaves no gradients at the parameters, but returns them."""
        given = grad_arguments(args, kwargs)
        inputs = given["inputs"] if isinstance(given["inputs"], (list, tuple)) else [given["inputs"]]
        names = [self._names.get(id(each)) for each in inputs]
        if not any(names) or given.get("create_graph"):
            return original(*args, **kwargs)
        before = self._before_backward()
        earlier = self._left
        done = original(*args, **kwargs)
        added = {name: each for name, each in zip(names, done, strict=True) if name is not None}
        self._note_backward(given["outputs"], before, added)
        self._left = {name: _plus(earlier.get(name), added.get(name)) for name in self._parameters}
        return done

    def _before_backward(self) -> dict[str, torch.Tensor | None]:
        """Note what lies before a backward, and return the gradients that are there."""
        self._refuse_other_shapes()
        if not self.steps:
            self._step_of_own_code()
        if not self._begun or self._stepped:
            self._begin_step()
        self._note_batch()
        return self._gradients()

    def _note_backward(self, loss: Any, before: _Tensors, added: _Tensors) -> None:  # noqa: ANN401 - torch's argument
        is_fresh = not any(each is not None and bool(each.any()) for each in before.values())
        loss = loss if isinstance(loss, torch.Tensor) else loss[0]
        number, lines = float(loss.detach()) if loss.numel() == 1 else 0.0, _lines()
        if math.isnan(self._first_loss):
            self._first_loss = number
        touched, self._touched, self._is_rescaled = next(reversed(self._touched.values()), ()), {}, False
        self._pending = lambda: Batch(
            number, is_fresh, ParameterRows.of(self._start, added, self._keys), lines, touched
        )
        gradients = ((name, each.grad) for name, each in self._parameters.items())
        self._gradient_places = {_place(each): name for name, each in gradients if each is not None}
        self._at_write = {}
        if not self.steps:
            self._at_backward = self._copies()

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
        if is_first and self._is_ours(optimizer):
            with torch._C.DisableTorchFunction():  # noqa: SLF001 - what is noted is no part of the run
                self._begin(optimizer)

    def _begin(self, optimizer: Optimizer) -> None:
        """Note what is there as an optimiser begins its step."""
        self._note_batch()
        if not self._begun or any(each is optimizer for each in self._stepped):
            self._begin_step()
        if not self._batches and not self._stepped:
            self._left = self._gradients()  # nobody saw how they were made
        if not self.steps and not self._batches and all(each is None for each in self._left.values()):
            raise TFDebugError(
                f"A step of {type(optimizer).__name__} begins before any backward, as where a closure makes it: a step "
                "is held to the gradients that are there as it begins.\n"
                "Call loss.backward() in run=, then step() without a closure."
            )
        self._begin_steps()
        self._before, self._given, self._writer = self._copies(), self._gradients(), None

    def _is_ours(self, optimizer: Optimizer) -> bool:
        return any(id(each) in self._names for group in optimizer.param_groups for each in group["params"])

    def _ended(self, optimizer: Optimizer, *_given: Any) -> None:  # noqa: ANN401
        under_way = self._steps_under_way()
        under_way.pop()
        if any(each is optimizer for each, _ in under_way) or not self._is_ours(optimizer):
            return
        if id(optimizer) in self._around:  # it has others make its step, and these were seen
            self._around.remove(id(optimizer))
            return
        self._around.update(id(each) for each, _ in under_way)
        self._refuse_other_shapes()
        step = self._step_of(optimizer)
        if self._stepped:
            self.steps[-1] = self._together(self.steps[-1], step)
        else:
            self.steps.append(step)
        self._stepped.append(optimizer)
        self._batches = []

    def _step_of(self, optimizer: Optimizer) -> OptimizerStep:
        """Return what an optimiser has done."""
        kind, settings = type(optimizer), self._settings(optimizer)
        made_at, made_with = self._made.get(id(optimizer), ((), {}))
        both = ((known, made_with.get(name, {})) for name, known in settings.items())
        changed = frozenset(
            key for known, first in both for key in first.keys() & known.keys() if first[key] != known[key]
        )
        rule = None if kind.__module__.startswith("torch.") else _source_of(self._writer or kind.step)
        holder = Holder(kind.__name__, kind.__module__, _lines(), made_at, changed, rule, kind)
        listed = [self._names.get(id(each)) for group in optimizer.param_groups for each in group["params"]]
        held = [name for name in listed if name is not None]
        after, outside, current = (
            self._copies(),
            self._moved(self._last, self._before),
            dict(self._model.named_parameters()),
        )
        buffers = self._buffers_now()
        flow = {name: each.detach() - self._held[name] for name, each in buffers.items()}
        self._held = {name: each.detach().clone() for name, each in buffers.items()}
        self._last, touched, self._touched = after, self._touched, {}
        is_rescaled, self._is_rescaled = self._is_rescaled, False
        return OptimizerStep(
            self._batches,
            ParameterRows.of(self._start, self._given, self._keys),
            *_factors(self._given, self._left, held),
            dict.fromkeys(held, holder),
            settings,
            tuple(sorted({name for name in held if held.count(name) > 1})),
            tuple(name for name in dict.fromkeys(held) if current.get(name) is not self._parameters[name]),
            ParameterRows.of(self._first_buffers, flow, self._buffer_keys),
            holder.lines,
            None,
            outside,
            LiveStep(self._given, self._before, after),
            {},
            touched,
            is_rescaled,
        )

    def _settings(self, optimizer: Optimizer) -> dict[str, dict[str, Any]]:
        """Return the hyperparameters of each parameter that an optimiser holds."""
        return {
            self._names[id(each)]: {key: _plain(value) for key, value in group.items() if key not in _HOW}
            for group in optimizer.param_groups
            for each in group["params"]
            if id(each) in self._names
        }

    def _together(self, one: OptimizerStep, other: OptimizerStep) -> OptimizerStep:
        """Return the steps of two optimisers, without a backward between them, as one: each has its own parameters."""
        if one.live is None or other.live is None or one.outside is None or other.outside is None:
            return other
        names, own = other.holders.keys(), one.live
        live = LiveStep(
            {**own.gradients, **{name: other.live.gradients[name] for name in names}},
            {**own.before, **{name: other.live.before[name] for name in names}},
            {**own.after, **{name: other.live.after[name] for name in names}},
        )
        factors = _factors(live.gradients, self._left, [*one.holders, *names])
        return replace(
            one,
            given=ParameterRows.of(self._start, live.gradients, self._keys),
            factor=factors[0],
            factors=factors[1],
            holders={**one.holders, **other.holders},
            settings={**one.settings, **other.settings},
            twice=(*one.twice, *other.twice, *(name for name in one.holders if name in names)),
            stale=(*one.stale, *other.stale),
            buffers=ParameterRows.together([one.buffers, other.buffers]),
            lines=other.lines,
            outside=ParameterRows.together([one.outside, other.outside]),
            live=live,
            touched={**one.touched, **other.touched},
            is_rescaled=one.is_rescaled or other.is_rescaled,
        )


def _is_clipping() -> bool:
    """Tell whether torch's own clipping is under way."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to the running frame
    while frame is not None and frame.f_code.co_filename != clip_grad.__file__:
        frame = frame.f_back
    return frame is not None


def _place(tensor: torch.Tensor) -> object:
    """Return what tells the memory of a tensor: its address changes where a copy of it is made late."""
    return (tensor.untyped_storage()._cdata, tensor.storage_offset()) if is_plain(tensor) else id(tensor)  # noqa: SLF001


def _plain(value: Any) -> Any:  # noqa: ANN401 - a hyperparameter
    if isinstance(value, torch.Tensor):
        return value.item() if value.numel() == 1 else repr(value)
    return tuple(map(_plain, value)) if isinstance(value, (list, tuple)) else value


def _plus(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    return one if other is None else other if one is None else one + other


def _minus(one: torch.Tensor | None, other: torch.Tensor | None) -> torch.Tensor | None:
    return one if one is None or other is None else one - other


def _factors(given: _Tensors, left: _Tensors, held: list[str]) -> tuple[float | None, dict[str, float | None]]:
    """Return what an optimiser saw over what the backwards left: of all parameters, and of each that has a gradient."""
    sums: dict[str, tuple[float, float, float]] = {}
    for name in dict.fromkeys(held):
        own, before = given.get(name), left.get(name)
        if own is None or before is None or not before.any():
            continue
        wide, known = (real_parts(each).double().flatten() for each in (own, before))
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


def _source_of(function: Any) -> tuple[str, int, int] | None:  # noqa: ANN401 - a function or its code
    try:
        lines, first = inspect.getsourcelines(inspect.unwrap(function))
        file = inspect.getsourcefile(function) or ""
    except (OSError, TypeError):
        return None
    return file, first, first + len(lines) - 1


def _code_under_way() -> CodeType | None:
    """Return the innermost of the user's functions under way, or else of a library's that is not torch."""
    found: CodeType | None = None
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to the running frame
    while frame is not None and (found is None or "site-packages" in found.co_filename):
        if not is_library(frame.f_code.co_filename) and (
            found is None or "site-packages" not in frame.f_code.co_filename
        ):
            found = frame.f_code
        frame = frame.f_back
    return found


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

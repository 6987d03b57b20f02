"""The backward under watch: the gradient of every tensor that passed between modules, and of every parameter."""

from __future__ import annotations

import weakref
from collections import Counter, deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from pytest_tfdebug.data.overflow import Details, Extremes, Fault, Frame
from pytest_tfdebug.errors import listed
from pytest_tfdebug.overflow.extremes import NARROW, WIDER, Reducer, details
from pytest_tfdebug.overflow.judge import is_ignored
from pytest_tfdebug.overflow.settings import largest
from pytest_tfdebug.tracing.record.modules import modules_by_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping
    from typing import TypeAlias

    from pytest_tfdebug.data.overflow import FaultKind
    from pytest_tfdebug.overflow.extremes import Headroom
    from pytest_tfdebug.overflow.settings import OverflowSettings
    from pytest_tfdebug.records import Call

    #: What a tensor was in the forward: a frame of each call that took or gave it.
    Roles: TypeAlias = list[tuple[Frame, Call]]


class Gradients:
    """Hooks on tensors and parameters; gradients are judged at the end of each backward, in the order they came."""

    def __init__(
        self, settings: OverflowSettings, headroom: Headroom, skipped: Counter[str], conclude: Callable[[], object]
    ) -> None:
        self.fault: Fault | None = None
        self.forward = 0
        self.has_seen = False
        self._settings, self._headroom, self._skipped, self._conclude = settings, headroom, skipped, conclude
        self._reducer = Reducer(settings)
        self._history: deque[Frame] = deque(maxlen=settings.frames)
        self._events: list[tuple[Frame, Roles]] = []  # gradients that came by; no roles for that of a parameter
        self._details: Details | None = None
        self._followed: MutableMapping[torch.Tensor, Roles] = WeakTensorKeyDictionary()
        self._parameters: MutableMapping[torch.Tensor, Frame] = WeakTensorKeyDictionary()
        self._handles: list[Any] = []
        self._is_queued = False
        self._is_removed = False

    def follow(self, tensor: torch.Tensor, frame: Frame, call: Call) -> None:
        """Watch the gradient of a tensor of the forward; it may be one call's output and another's input."""
        if not torch.is_grad_enabled() or isinstance(tensor, torch.nn.Parameter):
            return
        roles = self._followed.get(tensor)
        if roles is not None:
            roles.append((frame, call))
            return
        self._followed[tensor] = roles = [(frame, call)]
        tensor.register_hook(lambda gradient: self._see(frame, roles, gradient))  # type: ignore[no-untyped-call]

    def begin(self, root: torch.nn.Module, number: int) -> None:
        """A forward begins, with tensors of its own: watch the gradients of all parameters that are not watched yet."""
        self.settle()
        self.forward, self._followed = number, WeakTensorKeyDictionary()
        root_name = type(root).__name__
        for path, module in modules_by_path(root).items():
            for name, parameter in module.named_parameters(recurse=False):
                if not parameter.requires_grad or parameter in self._parameters:
                    continue
                frame = Frame(0, path or root_name, type(module).__name__, "gradient", name, Extremes("", 0.0, 0.0))
                self._parameters[parameter] = frame
                self._handles.append(parameter.register_post_accumulate_grad_hook(partial(self._see_grad, frame)))  # type: ignore[no-untyped-call]

    def settle(self) -> None:
        """Judge the gradients that came since the last time."""
        self._reducer.read_back()
        self._skipped.update(self._reducer.skipped)
        self._reducer = Reducer(self._settings)
        events, self._events, self._is_queued = self._events, [], False
        self.has_seen |= bool(events)
        for position, (frame, roles) in enumerate(events):
            if self.fault is None:
                self._history.append(frame)
            if frame.extremes.is_finite:
                self._headroom.see(None, [frame])
            elif self.fault is None and self._is_bad(frame):
                self._blame(frame, roles, [later for later, uses in events[position:] if not uses])

    def reset(self) -> None:
        """Forget the fault; the next backward is judged afresh."""
        self.fault = self._details = None

    def remove(self) -> None:
        """Take the hooks off; those on tensors stay until their graph goes, and do nothing."""
        self._is_removed = True
        while self._handles:
            self._handles.pop().remove()

    def _see_grad(self, frame: Frame, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self._see(replace(frame, forward=self.forward), [], parameter.grad)

    def _see(self, of: Frame, roles: Roles, gradient: torch.Tensor) -> None:
        if self._is_removed or self.fault is not None:
            return
        extremes = self._reducer.extremes(gradient, [])
        if extremes is None:
            return
        frame = _gradient_frame(of, extremes, weakref.ref(gradient))
        self._events.append((frame, roles))
        if self._details is None and not self._reducer.is_waiting and self._is_bad(frame):
            self._details = details(gradient)
        if not self._is_queued:
            self._is_queued = True
            engine = torch.autograd.Variable._execution_engine  # noqa: SLF001 - as torch's distributed wrappers do
            engine.queue_callback(self._end)

    def _end(self) -> None:
        self.settle()
        self._conclude()

    def _is_bad(self, frame: Frame) -> bool:
        return not frame.extremes.is_finite and not is_ignored(frame.path, self._settings.ignore)

    def _blame(self, frame: Frame, roles: Roles, parameters: list[Frame]) -> None:
        """Blame the innermost module that took the tensor: the gradient of its own output was finite."""
        takers = [role for role in roles if role[0].direction == "input"]
        source, called_at, gradient = None, None, frame.tensor()
        if takers:
            taken, call = max(takers, key=lambda role: role[1].depth)
            frame = _gradient_frame(taken, frame.extremes, frame.tensor)
            source, called_at = call.source, call.called_at
            self._history[-1] = frame
        found = self._details or (None if gradient is None else details(gradient))
        kind: FaultKind = "loss" if roles and not takers else "gradient"
        frames = tuple(self._history)
        fault = Fault(frame, kind, frame.path, frame.class_name, source, frames, found, called_at=called_at)
        fault.facts.extend(_facts(parameters))
        dtype = frame.extremes.dtype
        if dtype == NARROW:
            fault.hints.append(f"{dtype} ends at {largest(dtype):.2e}: scale the loss down, or use {WIDER}.")
        self.fault = fault


def _gradient_frame(of: Frame, extremes: Extremes, tensor: Callable[[], torch.Tensor | None]) -> Frame:
    leaf = of.leaf if of.direction == "gradient" else f"{of.direction}{of.leaf}"
    return replace(of, direction="gradient", leaf=leaf, extremes=extremes, tensor=tensor)


def _facts(parameters: list[Frame]) -> Iterator[str]:
    bad = [frame for frame in parameters if not frame.extremes.is_finite]
    if not bad:
        yield "No parameter has a gradient that is not finite."
        return
    names = listed([f"{frame.path}.{frame.leaf} ({frame.class_name})" for frame in bad])
    yield f"Parameters whose gradients are not finite, in the order of the backward: {names}."

"""One outermost call as it happens: every tensor reduced as it is met, every number handed to the judge."""

from __future__ import annotations

import weakref
from collections import deque
from typing import TYPE_CHECKING

from pytest_tfdebug.overflow.diagnosis import details, hints, weight_facts
from pytest_tfdebug.overflow.extremes import Reducer
from pytest_tfdebug.overflow.judge import Judge
from pytest_tfdebug.overflow.records import Extremes, Fault, Frame
from pytest_tfdebug.running import RUNNING
from pytest_tfdebug.tracing.record.mask_names import is_mask_input, is_mask_name
from pytest_tfdebug.tracing.record.wrappers import modules_by_path

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from pytest_tfdebug.overflow.gradients import Gradients
    from pytest_tfdebug.overflow.headroom import Headroom
    from pytest_tfdebug.overflow.records import FrameDirection
    from pytest_tfdebug.overflow.settings import OverflowSettings
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tracing.record.leaves import Leaf


class Pass:
    """One outermost call under watch. On the CPU a fault is found as its call ends, with the tensors still in hand."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        number: int,
        root: torch.nn.Module,
        settings: OverflowSettings,
        history: deque[Frame],
        headroom: Headroom,
        gradients: Gradients | None,
    ) -> None:
        self.number = number
        self.root = root
        self.history: deque[Frame] = deque(history, maxlen=settings.frames)
        self.tensors = 0
        self.outer: Pass | None = RUNNING.watched.get()
        self.reducer = Reducer(settings)
        self._judge = Judge(self.history, settings.ignore, headroom)
        self._gradients = gradients
        self._running: list[tuple[Call, list[torch.Tensor]]] = []
        self._queue: list[Callable[[], object]] = []
        self._refs: dict[int, weakref.ref[torch.Tensor]] = {}

    @property
    def fault(self) -> Fault | None:
        """The first value that is not finite, if there is one; not known before :meth:`settle` off the CPU."""
        return self._judge.fault

    def enter(self, call: Call, leaves: list[Leaf]) -> None:
        """A call begins."""
        if self.fault is not None:
            return
        masks = [leaf.tensor for leaf in leaves if is_mask_input(leaf.path, call.parameters)]
        self._running.append((call, masks))
        frames = self._frames(call, "input", leaves)
        self._tell(lambda: self._judge.enter(call, frames))

    def leave(self, call: Call, leaves: list[Leaf]) -> None:
        """A call has returned."""
        if self.fault is not None:
            return
        frames = self._frames(call, "output", leaves)
        self._tell(lambda: self._judge.leave(call, frames))
        self._drop(call)

    def fail(self, call: Call) -> None:
        """An exception left a call."""
        if self.fault is None:
            self._tell(lambda: self._judge.close(call))
            self._drop(call)

    def probe(self, tensor: torch.Tensor, text: str) -> None:
        """``detect_overflow`` was given a tensor."""
        if self.fault is not None or not self._running:
            return
        call = self._running[-1][0]
        extremes = self.reducer.extremes(tensor, self._masks())
        if extremes is not None:
            frame = self._frame(call, "probe", text, extremes, tensor)
            self._tell(lambda: self._judge.probe(frame))

    def settle(self) -> None:
        """Read back the numbers that wait on a device, and judge by them."""
        if self._queue:
            self.reducer.read_back()
            queue, self._queue = self._queue, []
            for event in queue:
                event()
            self._diagnose()

    def _tell(self, event: Callable[[], object]) -> None:
        """Tell the judge of an event now, or in its turn if numbers before it are still on their device."""
        if self._queue or self.reducer.is_waiting:
            self._queue.append(event)
        else:
            event()
            self._diagnose()
            self._refs.clear()

    def _diagnose(self) -> None:
        fault = self.fault
        if fault is None or fault.details is not None:
            return
        tensor = self._refs.get(id(fault.frame), lambda: None)()
        if tensor is not None:
            fault.details = details(tensor)
        fault.facts.extend(weight_facts(modules_by_path(self.root).get(fault.owner, self.root)))
        fault.hints.extend(hints(fault, self._masks()))

    def _frames(self, call: Call, direction: FrameDirection, leaves: list[Leaf]) -> list[Frame]:
        frames = []
        masks = self._masks()
        is_named_mask = is_mask_name(call.path) or is_mask_name(call.class_name)
        for leaf in leaves:
            extremes = self.reducer.extremes(leaf.tensor, masks)
            if extremes is None:
                continue
            is_mask = is_named_mask if direction == "output" else is_mask_input(leaf.path, call.parameters)
            extremes.is_mask |= is_mask
            frames.append(self._frame(call, direction, leaf.path, extremes, leaf.tensor))
            if self._gradients is not None and leaf.tensor.requires_grad:
                self._gradients.follow(leaf.tensor, frames[-1], call)
        return frames

    def _frame(
        self, call: Call, direction: FrameDirection, leaf: str, extremes: Extremes, tensor: torch.Tensor
    ) -> Frame:
        frame = Frame(self.number, call.path, call.class_name, direction, leaf, extremes)
        self._refs[id(frame)] = weakref.ref(tensor)
        self.tensors += 1
        return frame

    def _masks(self) -> list[torch.Tensor]:
        return [mask for _, masks in self._running for mask in masks]

    def _drop(self, call: Call) -> None:
        while self._running and self._running.pop()[0] is not call:
            pass

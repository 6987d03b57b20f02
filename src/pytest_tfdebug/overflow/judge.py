"""One outermost call as it happens: each tensor is reduced as it is met, and the judge finds the first fault.

The judge reads calls and numbers in the order in which they happened and looks at no tensor: it may be told of a call
while the call is under way, or of a whole forward once its numbers were read back from the device.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_tfdebug.overflow.extremes import Reducer, details, hints, weight_facts
from pytest_tfdebug.overflow.records import Fault, FaultKind, Frame
from pytest_tfdebug.tracing.record.selection import matches_any
from pytest_tfdebug.tracing.record.signatures import is_mask_input, is_mask_name
from pytest_tfdebug.tracing.record.wrappers import modules_by_path
from pytest_tfdebug.tracing.values.slicing import glue_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import torch

    from pytest_tfdebug.overflow.extremes import Headroom
    from pytest_tfdebug.overflow.gradients import Gradients
    from pytest_tfdebug.overflow.records import FrameDirection, OverflowSettings
    from pytest_tfdebug.records import Call, SourceRange
    from pytest_tfdebug.tracing.record.leaves import Leaf


@dataclass
class _Open:
    """A call under way."""

    call: Call  # the call
    inputs: list[Frame]  # frames of its inputs; the report lists them when the call ends
    children: list[Call] = field(default_factory=list)  # its child calls so far
    holds_ignored: bool = False  # a module inside it is ignored and gave values that are not finite


class Judge:
    """Follows the calls of one outermost call."""

    def __init__(self, history: deque[Frame], ignore: tuple[str, ...], headroom: Headroom) -> None:
        self.fault: Fault | None = None
        self._history = history
        self._ignore = ignore
        self._headroom = headroom
        self._open: list[_Open] = []

    def enter(self, call: Call, frames: list[Frame]) -> None:
        """A call begins."""
        bad = self._first_bad(frames)
        if bad is not None:
            parent = self._open[-1] if self._open else None
            if parent is None:
                self._blame(bad, "inputs", call, None, frames)
            else:
                before = parent.children[-1] if parent.children else None
                source = glue_lines(parent.call, before, call, parent.children)
                self._blame(bad, "glue", parent.call, source, frames)
        self._open.append(_Open(call, frames))

    def leave(self, call: Call, frames: list[Frame]) -> None:
        """A call has returned."""
        ended = self.close(call)
        if ended is None or self.fault is not None:
            return
        shown = [*ended.inputs, *frames]
        if ended.holds_ignored:  # the values of the ignored module may flow into the result
            for frame in frames:
                frame.extremes.is_exempt |= not frame.extremes.is_finite
        bad = self._first_bad(frames)
        if bad is None:
            self._history.extend(shown)
            if not is_ignored(call.path, self._ignore):
                self._headroom.see(call, shown, is_leaf=not ended.children)
        elif ended.children:
            source = glue_lines(call, ended.children[-1], None, ended.children)
            self._blame(bad, "glue", call, source, shown)
        else:
            kind: FaultKind = "module" if all(item.extremes.is_finite for item in ended.inputs) else "excused"
            self._blame(bad, kind, call, call.source, shown)

    def close(self, call: Call) -> _Open | None:
        """Close a call that has ended, and the calls inside it that an exception left; return it if it was open."""
        while self._open:
            ended = self._open.pop()
            if self._open:
                self._open[-1].children.append(ended.call)
                self._open[-1].holds_ignored |= ended.holds_ignored
            if ended.call is call:
                return ended
        return None

    def _first_bad(self, frames: Iterable[Frame]) -> Frame | None:
        if self.fault is not None:
            return None
        for frame in frames:
            if not frame.extremes.is_finite and not self._is_excused(frame):
                return frame
        return None

    def _is_excused(self, frame: Frame) -> bool:
        extremes = frame.extremes
        if extremes.is_exempt:
            return True
        if is_ignored(frame.path, self._ignore):
            extremes.is_exempt, extremes.note = True, f"ignored: {frame.path}"
            for enclosing in self._open:
                enclosing.holds_ignored = True
            return True
        if extremes.is_mask and extremes.is_only_low:
            extremes.note = "a mask"
            return True
        if extremes.unmasked.is_finite:
            extremes.note = "-inf only where a mask is"
            return True
        return False

    def _blame(self, frame: Frame, kind: FaultKind, owner: Call, source: SourceRange | None, last: list[Frame]) -> None:
        self._history.extend(last)
        frames = tuple(self._history)
        self.fault = Fault(frame, kind, owner.path, owner.class_name, source, frames, called_at=owner.called_at)


@lru_cache(maxsize=16384)
def is_ignored(path: str, globs: tuple[str, ...]) -> bool:
    """Tell whether a module path matches one of the globs."""
    return matches_any(path, globs)


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
        self.reducer = Reducer(settings)
        self._ignore = settings.ignore
        self._judge = Judge(self.history, settings.ignore, headroom)
        self._gradients = gradients
        self._running: list[tuple[Call, list[torch.Tensor]]] = []
        self._queue: list[Callable[[], object]] = []

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

    def _diagnose(self) -> None:
        fault = self.fault
        if fault is None or fault.details is not None:
            return
        tensor = fault.frame.tensor()
        if tensor is not None:
            fault.details = details(tensor)
        fault.facts.extend(weight_facts(modules_by_path(self.root).get(fault.owner, self.root)))
        fault.hints.extend(hints(fault, self._masks()))

    def _frames(self, call: Call, direction: FrameDirection, leaves: list[Leaf]) -> list[Frame]:
        frames = []
        masks = self._masks()
        is_named_mask = is_mask_name(call.path) or is_mask_name(call.class_name)
        for path, tensor in leaves:
            extremes = self.reducer.extremes(tensor, masks)
            if extremes is None:
                continue
            extremes.is_mask |= is_named_mask if direction == "output" else is_mask_input(path, call.parameters)
            at = self.number, call.path, call.class_name, direction, path
            frame = Frame(*at, extremes, weakref.ref(tensor))
            frames.append(frame)
            self.tensors += not is_ignored(call.path, self._ignore)
            if self._gradients is not None and tensor.requires_grad:
                self._gradients.follow(tensor, frame, call)
        return frames

    def _masks(self) -> list[torch.Tensor]:
        return [mask for _, masks in self._running for mask in masks]

    def _drop(self, call: Call) -> None:
        while self._running and self._running.pop()[0] is not call:
            pass

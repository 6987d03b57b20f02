"""One outermost call as it happens: each tensor is reduced as it is met, and the first fault is found.

Calls and numbers are judged in the order in which they happened, and no tensor is looked at for that: as the call is
under way, or once the numbers of a whole forward were read back from the device.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_tfdebug.data.overflow import Fault, FaultKind, Frame
from pytest_tfdebug.overflow.extremes import Reducer, details, hints, weight_facts
from pytest_tfdebug.tracing.record.masks import is_mask_input, is_mask_name
from pytest_tfdebug.tracing.record.modules import matches_any, modules_by_path
from pytest_tfdebug.tracing.values.slicing import glue_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    import torch

    from pytest_tfdebug.data.overflow import FrameDirection
    from pytest_tfdebug.overflow.extremes import Headroom
    from pytest_tfdebug.overflow.settings import OverflowSettings
    from pytest_tfdebug.records import Call, SourceRange
    from pytest_tfdebug.tensors import Leaf


@dataclass
class _Open:
    """A call under way."""

    call: Call
    parent: _Open | None  # the call around it
    masks: list[torch.Tensor]  # among its inputs
    inputs: list[Frame] = field(default_factory=list)  # the report lists them when the call ends
    children: list[Call] = field(default_factory=list)  # its child calls so far
    holds_ignored: bool = False  # a module inside it is ignored and gave values that are not finite


class Pass:
    """One outermost call under watch. On the CPU a fault is found as its call ends, with the tensors still in hand."""

    def __init__(
        self,
        settings: OverflowSettings,
        headroom: Headroom,
        history: Iterable[Frame],
        number: int,
        root: torch.nn.Module,
        *,
        is_root: bool,
        follow: Callable[[torch.Tensor, Frame, Call], object] | None = None,
    ) -> None:
        self.number = number
        self.root, self.is_root = root, is_root  # whether the call is of the root, and not of a module inside it
        #: The first value that is not finite, if there is one; not known before :meth:`settle` off the CPU.
        self.fault: Fault | None = None
        self.history: deque[Frame] = deque(history, maxlen=settings.frames)
        self.tensors = 0
        self.reducer = Reducer(settings)
        self._headroom, self._ignore, self._follow = headroom, settings.ignore, follow
        self._innermost: _Open | None = None
        self._queue: list[Callable[[], object]] = []

    def enter(self, call: Call, leaves: list[Leaf]) -> None:
        """A call begins."""
        if self.fault is None:
            masks = [leaf.tensor for leaf in leaves if is_mask_input(leaf.path, call.parameters)]
            self._innermost = entered = _Open(call, self._innermost, masks)
            entered.inputs = self._frames(call, "input", leaves)
            self._tell(lambda: self._judge_inputs(entered))

    def leave(self, call: Call, leaves: list[Leaf] | None) -> None:
        """A call has returned, or an exception left it, and there are no leaves."""
        if self.fault is None:
            frames = None if leaves is None else self._frames(call, "output", leaves)
            ended = self._ended(call)
            self._tell(lambda: self._judge_outputs(ended, call, frames))

    def product(self, name: str, result: torch.Tensor, at: SourceRange) -> None:
        """A forward has computed a matrix product in its own code."""
        if self.fault is not None or self._innermost is None:
            return
        call = self._innermost.call
        extremes = None if is_ignored(call.path, self._ignore) else self.reducer.extremes(result, self._masks())
        if extremes is not None:
            frame = Frame(self.number, call.path, call.class_name, "product", name, extremes)
            self._tell(lambda: self._headroom.see_product(call, frame, at))

    def settle(self) -> None:
        """Read back the numbers that wait on a device, and judge by them."""
        if self._queue:
            self.reducer.read_back()
            queue, self._queue = self._queue, []
            for event in queue:
                event()
            self._diagnose()

    def _tell(self, event: Callable[[], object]) -> None:
        """Judge an event now, or in its turn if numbers before it are still on their device."""
        if self._queue or self.reducer.is_waiting:
            self._queue.append(event)
        else:
            event()
            self._diagnose()

    def _ended(self, call: Call) -> list[_Open]:
        """Return what ends with a call: the calls inside it that an exception left, and then the call."""
        ended: list[_Open] = []
        while self._innermost is not None and (not ended or ended[-1].call is not call):
            ended.append(self._innermost)
            self._innermost = self._innermost.parent
        return ended

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
            if self._follow is not None and tensor.requires_grad:
                self._follow(tensor, frame, call)
        return frames

    def _masks(self) -> list[torch.Tensor]:
        return [mask for each in _outwards(self._innermost) for mask in each.masks]

    def _judge_inputs(self, entered: _Open) -> None:
        bad, parent = self._first_bad(entered.inputs, entered.parent), entered.parent
        if bad is not None and parent is None:
            self._blame(bad, "inputs", entered.call, None, entered.inputs)
        elif bad is not None and parent is not None:
            before = parent.children[-1] if parent.children else None
            source = glue_lines(parent.call, before, entered.call, parent.children)
            self._blame(bad, "glue", parent.call, source, entered.inputs)

    def _judge_outputs(self, ended: list[_Open], call: Call, frames: list[Frame] | None) -> None:
        for each in ended:
            if each.parent is not None:
                each.parent.children.append(each.call)
                each.parent.holds_ignored |= each.holds_ignored
        if frames is None or self.fault is not None or not ended or ended[-1].call is not call:
            return
        own = ended[-1]
        shown = [*own.inputs, *frames]
        if own.holds_ignored:  # the values of the ignored module may flow into the result
            for frame in frames:
                frame.extremes.is_exempt |= not frame.extremes.is_finite
        bad = self._first_bad(frames, own.parent)
        if bad is None:
            self.history.extend(shown)
            if not is_ignored(call.path, self._ignore):
                self._headroom.see(call, shown, is_leaf=not own.children)
        elif own.children:
            self._blame(bad, "glue", call, glue_lines(call, own.children[-1], None, own.children), shown)
        else:
            kind: FaultKind = "module" if all(item.extremes.is_finite for item in own.inputs) else "excused"
            self._blame(bad, kind, call, call.source, shown)

    def _first_bad(self, frames: list[Frame], around: _Open | None) -> Frame | None:
        if self.fault is not None:
            return None
        return next(
            (each for each in frames if not each.extremes.is_finite and not self._is_excused(each, around)), None
        )

    def _is_excused(self, frame: Frame, around: _Open | None) -> bool:
        extremes = frame.extremes
        if extremes.is_exempt:
            return True
        if is_ignored(frame.path, self._ignore):
            extremes.is_exempt, extremes.note = True, f"ignored: {frame.path}"
            for enclosing in _outwards(around):
                enclosing.holds_ignored = True
        elif extremes.is_mask and extremes.is_only_low:
            extremes.note = "a mask"
        elif extremes.unmasked.is_finite:
            extremes.note = "-inf only where a mask is"
        else:
            return False
        return True

    def _blame(self, frame: Frame, kind: FaultKind, owner: Call, source: SourceRange | None, last: list[Frame]) -> None:
        self.history.extend(last)
        frames = tuple(self.history)
        self.fault = Fault(frame, kind, owner.path, owner.class_name, source, frames, called_at=owner.called_at)

    def _diagnose(self) -> None:
        fault = self.fault
        if fault is None or fault.details is not None:
            return
        tensor = fault.frame.tensor()
        if tensor is not None:
            fault.details = details(tensor)
        fault.facts.extend(weight_facts(modules_by_path(self.root).get(fault.owner, self.root)))
        fault.hints.extend(hints(fault, self._masks()))


def _outwards(call: _Open | None) -> Iterator[_Open]:
    while call is not None:
        yield call
        call = call.parent


@lru_cache(maxsize=16384)
def is_ignored(path: str, globs: tuple[str, ...]) -> bool:
    """Tell whether a module path matches one of the globs."""
    return matches_any(path, globs)

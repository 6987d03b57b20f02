"""The verdict on one forward: which tensor is the first that is not finite, and whose code made it.

The judge reads calls and numbers in the order in which they happened and looks at no tensor: it may be told of a call
while the call is under way, or of a whole forward once its numbers were read back from the device.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from pytest_tfdebug.overflow.records import Fault, FaultKind, Frame
from pytest_tfdebug.tracing.record.globs import matches_any
from pytest_tfdebug.tracing.values.glue import glue_lines

if TYPE_CHECKING:
    from collections import deque
    from collections.abc import Iterable

    from pytest_tfdebug.overflow.headroom import Headroom
    from pytest_tfdebug.records import Call, SourceRange


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

    def probe(self, frame: Frame) -> None:
        """``detect_overflow`` was given a tensor inside the running call."""
        bad = self._first_bad([frame])
        if bad is None or not self._open:
            self._history.append(frame)
        else:
            running = self._open[-1].call
            self._blame(bad, "probe", running, running.source, [frame])

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

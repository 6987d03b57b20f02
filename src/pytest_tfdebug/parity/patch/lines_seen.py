"""What the names of each line of a port's own code held when it ran: an edit takes what is at hand, and fits."""

from __future__ import annotations

import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.frames import is_installed
from pytest_tfdebug.tracing.record.sites import is_library

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from types import FrameType

#: Attributes that every module has.
_OF_EVERY_MODULE = frozenset({"training"})
#: Attributes of one object that are looked at.
_MOST_PARTS = 60


class NameHeld(NamedTuple):
    """What a name or an attribute held."""

    kind: str  # tensor, flag, number, text, callable, list, or the name of its class
    value: object = None  # of a flag, a number or a text; of what can be called the name of its class
    shape: tuple[int, ...] = ()  # of a tensor

    def fits(self, other: NameHeld) -> bool:
        """Tell whether another may stand in its place, and is another."""
        is_plain = self.kind in ("flag", "number", "text")
        return self.kind == other.kind and not (is_plain and self.value == other.value)

    def is_like(self, other: NameHeld) -> bool:
        """Tell whether another one that fits is easily taken for it: a tensor of its shape, a function of its class."""
        return self.shape == other.shape and (self.kind != "callable" or self.value == other.value)


@dataclass(frozen=True)
class Seen:
    """What the function of a line held when the line ran first."""

    names: Mapping[str, NameHeld]  # of its names
    parts: Mapping[str, Mapping[str, NameHeld]]  # of what names hold, and of what modules hold: ``self``, ``self.cfg``
    is_making: bool  # whether it ran while the model was made


@dataclass
class LinesSeen:
    """The lines that ran, by file and number."""

    by_line: dict[tuple[str, int], Seen] = field(default_factory=dict)

    @contextmanager
    def watched(self, *, is_making: bool) -> Iterator[None]:
        """Note each line of own code that runs in a block: of no library, and of no test."""

        def entered(frame: FrameType, _event: str, _: object) -> Any:  # noqa: ANN401 - as sys.settrace takes
            code = frame.f_code
            is_own = (
                not is_installed(code.co_filename)
                and not is_library(code.co_filename)
                and not code.co_name.startswith("test")
            )
            return ran if is_own else None

        def ran(frame: FrameType, event: str, _: object) -> Any:  # noqa: ANN401
            at = frame.f_code.co_filename, frame.f_lineno
            if event == "line" and at not in self.by_line:
                self.by_line[at] = _seen(frame.f_locals, is_making=is_making)
            return ran

        before = sys.gettrace()
        sys.settrace(entered)
        try:
            yield
        finally:
            sys.settrace(before)


def _seen(held: Mapping[str, Any], *, is_making: bool) -> Seen:
    parts = {name: _parts_of(each) for name, each in held.items()}
    for name, each in held.items():
        if isinstance(each, torch.nn.Module):  # its configuration
            plain = {key: part for key, part in vars(each).items() if not key.startswith("_")}
            parts |= {f"{name}.{key}": _parts_of(part) for key, part in plain.items()}
    return Seen({name: _held(each) for name, each in held.items() if not name.startswith("__")}, parts, is_making)


def _parts_of(held: object) -> dict[str, NameHeld]:
    """Return what an object of the user's holds by name: its attributes, parameters, parts and properties."""
    is_plain = held is None or isinstance(held, (torch.Tensor, int, float, str, list, tuple, dict, set))
    if is_plain or (callable(held) and not isinstance(held, torch.nn.Module)):
        return {}
    found = {key: each for key, each in getattr(held, "__dict__", {}).items() if not key.startswith("_")}
    if isinstance(held, torch.nn.Module):
        inner = (vars(held).get(name, {}) for name in ("_parameters", "_buffers", "_modules"))
        found = {key: each for key, each in found.items() if key not in _OF_EVERY_MODULE}
        for each in inner:
            found |= each
    elif type(held).__module__ != "builtins":
        found |= _computed(held)
    return {key: _held(each) for key, each in [*found.items()][:_MOST_PARTS]}


def _computed(held: object) -> dict[str, Any]:
    """Return what the properties of an object give."""
    found = {}
    for name, each in vars(type(held)).items():
        if isinstance(each, property) and not name.startswith("_"):
            with suppress(Exception):  # of the user's class
                found[name] = getattr(held, name)
    return found


def _held(each: object) -> NameHeld:
    if isinstance(each, torch.Tensor):
        return NameHeld("tensor", None, tuple(each.shape))
    if isinstance(each, bool):
        return NameHeld("flag", each)
    if isinstance(each, (int, float)):
        return NameHeld("number", each)
    if isinstance(each, str):
        return NameHeld("text", each)
    if callable(each):
        return NameHeld("callable", type(each).__name__)
    return NameHeld("list" if isinstance(each, (list, tuple)) else type(each).__name__)

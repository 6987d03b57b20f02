"""With which arguments modules were made, and by which functions, so that both can be done again.

Tables come from constructors, and weights from the functions that convert those of a checkpoint.
"""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from functools import wraps
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch
from weakref import WeakKeyDictionary, WeakSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    import torch

_Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_noted: WeakKeyDictionary[torch.nn.Module, _Arguments] = WeakKeyDictionary()
#: File and line of the call that makes a module, and of those around it up to the constructor of what holds it.
_lines: WeakKeyDictionary[torch.nn.Module, tuple[tuple[str, int], ...]] = WeakKeyDictionary()


class Maker(NamedTuple):
    """A function that was under way when a module was made, with what it was given."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


#: Of each module that no other module's constructor makes, the innermost first.
_makers: WeakKeyDictionary[torch.nn.Module, tuple[Maker, ...]] = WeakKeyDictionary()

#: Flags of a code that takes ``*args`` and ``**kwargs``.
_VAR_ARGS, _VAR_KEYWORDS = 0x04, 0x08
#: Functions around a module that is made, at most, and elements of the tensors that are kept for one.
_MOST_MAKERS, _MOST_ELEMENTS = 6, 50_000_000
#: Calls around that of a constructor, at most.
_MOST_LINES = 6
#: What calls tests and fixtures, and how tests are called: these are not done again.
_RUNNERS, _TEST = ("_pytest", "pluggy", "unittest", "hypothesis"), "test"


@contextmanager
def noted() -> Iterator[None]:
    """Note with which arguments each module is made in a block, but for those that are given modules or tensors.

    By which functions it is made is known until the block ends: what they were given may hold the module itself.
    """
    import torch

    original = torch.nn.Module.__init__

    @wraps(original)
    def made(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        original(self, *args, **kwargs)
        around = _outside(self, sys._getframe(1))  # noqa: SLF001 - the documented way to the running frame
        given = _given(around)
        if given is not None:
            _noted[self] = given
            _lines[self] = tuple(islice(_lines_around(around.outer), _MOST_LINES))
        if around.outer is not None and not _is_in_constructor(around.outer):
            _makers[self] = tuple(_makers_in(around.outer))

    before = WeakSet(_makers)  # of a block around this one
    with patch.object(torch.nn.Module, "__init__", made):
        try:
            yield
        finally:
            for each in [module for module in _makers if module not in before]:
                del _makers[each]


def arguments_of(module: torch.nn.Module) -> _Arguments | None:
    """Return with which arguments a module was made; None where that is not known.

    Where it was not noted, it is what the module holds under the names of its constructor's parameters.
    """
    noted_of = _noted.get(module)
    if noted_of is not None:
        return noted_of
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    taken = [each for each in inspect.signature(type(module)).parameters.values() if each.kind not in kinds]
    if any(each.default is each.empty and not hasattr(module, each.name) for each in taken):
        return None
    given = {each.name: getattr(module, each.name) for each in taken if hasattr(module, each.name)}
    given.pop("device", None)
    return None if any(map(_holds_tensors, given.values())) else ((), given)


def lines_of(module: torch.nn.Module) -> tuple[tuple[str, int], ...]:
    """Return file and line of the call that made a module, and of those around it, the innermost first.

    The last is in the constructor of what holds the module, if that is near.
    """
    return _lines.get(module, ())


class _Around(NamedTuple):
    """The frames of a module that is made."""

    constructor: FrameType | None  # the outermost constructor of its own
    outer: FrameType | None  # what calls that


def _outside(module: torch.nn.Module, frame: FrameType | None) -> _Around:
    found: FrameType | None = None
    while frame is not None and _constructed_in(frame) is module:
        found, frame = frame, frame.f_back
    return _Around(found, frame)


def _given(around: _Around) -> _Arguments | None:
    """Return what the outermost constructor that is under way was given; None for what cannot be kept."""
    if around.constructor is None:
        return None
    (_, *args), kwargs = _arguments_in(around.constructor)
    is_plain = not any(map(_holds_tensors, (*args, *kwargs.values())))
    return (tuple(args), kwargs) if is_plain else None


def _arguments_in(frame: FrameType) -> _Arguments:
    """Return what the function of a frame was given, unless it has put something else in its place since."""
    code, held = frame.f_code, frame.f_locals
    places = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames
    args = [held.get(name) for name in names[: code.co_argcount]]
    kwargs = {name: held.get(name) for name in names[code.co_argcount : places]}
    if code.co_flags & _VAR_ARGS:
        args += held.get(names[places], ())
        places += 1
    if code.co_flags & _VAR_KEYWORDS:
        kwargs |= held.get(names[places], {})
    return tuple(args), kwargs


def _lines_around(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    import torch

    while frame is not None:
        yield frame.f_code.co_filename, frame.f_lineno
        if isinstance(_constructed_in(frame), torch.nn.Module):
            return
        frame = frame.f_back


def makers_of(module: torch.nn.Module) -> tuple[Maker, ...]:
    """Return the functions that were under way when a module was made, the innermost first."""
    return _makers.get(module, ())


def _is_in_constructor(frame: FrameType | None) -> bool:
    """Tell whether a frame is called by the constructor of a module, whose part is made."""
    import torch

    while frame is not None:
        if isinstance(_constructed_in(frame), torch.nn.Module):
            return True
        frame = frame.f_back
    return False


def _makers_in(frame: FrameType | None) -> Iterator[Maker]:
    """Yield the functions of frames that can be called again, from one outwards to the test."""
    count = 0
    while frame is not None and count < _MOST_MAKERS:
        package = str(frame.f_globals.get("__name__")).partition(".")[0]
        if package in _RUNNERS or frame.f_code.co_name.startswith(_TEST):
            return
        function = _function_of(frame)
        if function is not None:
            args, kwargs = _arguments_in(frame)
            if inspect.ismethod(function):
                args = args[1:]
            if elements_of((args, kwargs)) <= _MOST_ELEMENTS:
                count += 1
                yield Maker(function, args, kwargs)
        frame = frame.f_back


def _function_of(frame: FrameType) -> Callable[..., Any] | None:
    """Return the function that a frame runs, as it is called: found by its name."""
    code = frame.f_code
    around = frame.f_back.f_locals if frame.f_back is not None else {}
    owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
    for held in (frame.f_globals.get(code.co_name), around.get(code.co_name), getattr(owner, code.co_name, None)):
        function = inspect.unwrap(held) if callable(held) else None
        if getattr(function, "__code__", None) is code and not code.co_flags & inspect.CO_GENERATOR:
            return held if inspect.isroutine(held) else function
    return None


def elements_of(given: Any) -> int:  # noqa: ANN401 - any arguments
    """Return how many elements the tensors have that are given, and those of modules."""
    import torch

    if isinstance(given, torch.Tensor):
        return given.numel()
    if isinstance(given, torch.nn.Module):
        return sum(each.numel() for each in given.parameters())
    if isinstance(given, dict):
        given = [*given.values()]
    return sum(map(elements_of, given)) if isinstance(given, (list, tuple)) else 0


def _constructed_in(frame: FrameType) -> object:
    """Return what the constructor of a frame makes; None for the frame of another function."""
    code = frame.f_code
    is_constructor = code.co_name == "__init__" and code.co_argcount > 0
    return frame.f_locals.get(code.co_varnames[0]) if is_constructor else None


def _holds_tensors(given: Any) -> bool:  # noqa: ANN401 - any argument
    import torch

    if isinstance(given, dict):
        given = [*given.values()]
    if isinstance(given, (list, tuple)):
        return any(isinstance(each, (torch.nn.Module, torch.Tensor)) for each in given)
    return isinstance(given, (torch.nn.Module, torch.Tensor))

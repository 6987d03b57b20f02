"""With which arguments modules were made, so that one can be made again: tables come from constructors."""

from __future__ import annotations

import inspect
import sys
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    import torch

_Arguments = tuple[tuple[Any, ...], dict[str, Any]]
_noted: WeakKeyDictionary[torch.nn.Module, _Arguments] = WeakKeyDictionary()

#: Flags of a code that takes ``*args`` and ``**kwargs``.
_VAR_ARGS, _VAR_KEYWORDS = 0x04, 0x08


@contextmanager
def noted() -> Iterator[None]:
    """Note with which arguments each module is made in a block, but for those that are given modules or tensors."""
    import torch

    original = torch.nn.Module.__init__

    @wraps(original)
    def made(self: torch.nn.Module, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401
        original(self, *args, **kwargs)
        given = _given(self, sys._getframe(1))  # noqa: SLF001 - the documented way to the running frame
        if given is not None:
            _noted[self] = given

    with patch.object(torch.nn.Module, "__init__", made):
        yield


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


def _given(module: torch.nn.Module, frame: FrameType | None) -> _Arguments | None:
    """Return what the outermost constructor that is under way was given; None for what cannot be kept."""
    found: FrameType | None = None
    while frame is not None and _is_constructor(module, frame):
        found, frame = frame, frame.f_back
    if found is None:
        return None
    code, held = found.f_code, found.f_locals
    places = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames
    args = [held.get(name) for name in names[1 : code.co_argcount]]
    kwargs = {name: held.get(name) for name in names[code.co_argcount : places]}
    if code.co_flags & _VAR_ARGS:
        args += held.get(names[places], ())
        places += 1
    if code.co_flags & _VAR_KEYWORDS:
        kwargs |= held.get(names[places], {})
    is_plain = not any(map(_holds_tensors, (*args, *kwargs.values())))
    return (tuple(args), kwargs) if is_plain else None


def _is_constructor(module: torch.nn.Module, frame: FrameType) -> bool:
    code = frame.f_code
    return code.co_name == "__init__" and code.co_argcount > 0 and frame.f_locals.get(code.co_varnames[0]) is module


def _holds_tensors(given: Any) -> bool:  # noqa: ANN401 - any argument
    import torch

    if isinstance(given, dict):
        given = [*given.values()]
    if isinstance(given, (list, tuple)):
        return any(isinstance(each, (torch.nn.Module, torch.Tensor)) for each in given)
    return isinstance(given, (torch.nn.Module, torch.Tensor))

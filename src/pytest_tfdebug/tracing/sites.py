"""Where in the source: the line from which a module was called, and the lines of its own forward.

The interpreter's frames are read while the call is under way, so every answer is the line that really ran, through
decorators, helper methods and subclasses; the rest is looked up once for each place and remembered.
"""

from __future__ import annotations

import inspect
import sys
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, cast

import torch

from pytest_tfdebug.records import Site, SourceRange

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType

_MODULE_FILE = torch.nn.Module.__call__.__code__.co_filename
_OWN_FOLDER = __file__.rpartition("tracing")[0]
_TORCH_FOLDER = torch.__file__.rpartition("__init__")[0]


class Place(NamedTuple):
    """Where a module was called.

    Args:
        forward: The line in the parent's forward, or None for a root.
        helper: The line in a method that the forward called, when the call stands there.
    """

    forward: Site | None
    helper: Site | None


def locate_call(parent: torch.nn.Module) -> Place:
    """Return where the running forward of ``parent`` calls the module whose hook is running now."""
    codes = _codes_of(cast("type", type(parent))) | {_code_of(parent.__dict__.get("forward"))}
    fallback: FrameType | None = None
    own: list[FrameType] = []
    for frame in _frames_of_caller():
        if frame.f_code in codes:
            own.append(frame)
        elif fallback is None and frame.f_code.co_name != "__call__" and not _is_library(frame.f_code.co_filename):
            fallback = frame
    if not own:
        return Place(_site(fallback) if fallback else None, None)
    return Place(_site(own[-1]), _site(own[0]) if own[0].f_code is not own[-1].f_code else None)


def forward_source(module: torch.nn.Module) -> SourceRange | None:
    """Return the lines of a module's own forward; None for modules that are part of torch."""
    code = _code_of(module.__dict__.get("forward")) or _code_of(type(module).forward)
    if code is None or code.co_filename.startswith(_TORCH_FOLDER):
        return None
    return SourceRange(code.co_filename, *_extent(code))


@lru_cache(maxsize=4096)
def positional_parameters(module_class: type) -> tuple[str, ...]:
    """Return the names of the positional parameters of a class's forward, ``self`` left out."""
    try:
        signature = inspect.signature(module_class.forward)  # type: ignore[attr-defined] # a class of modules
    except (TypeError, ValueError):
        return ()
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(name for name, parameter in signature.parameters.items() if parameter.kind in kinds)[1:]


@lru_cache(maxsize=4096)
def parameter_names(module_class: type) -> frozenset[str]:
    """Return the names of every parameter of a class's forward, keyword-only ones too."""
    try:
        return frozenset(inspect.signature(module_class.forward).parameters)  # type: ignore[attr-defined] # as above
    except (AttributeError, TypeError, ValueError):
        return frozenset()


def _frames_of_caller() -> Iterator[FrameType]:
    """Yield the frames between the innermost ``Module.__call__`` and the one that encloses it, nearest first."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to the running frame
    while frame is not None and frame.f_code.co_filename != _MODULE_FILE:
        frame = frame.f_back
    while frame is not None and (
        frame.f_code.co_filename == _MODULE_FILE or frame.f_code.co_filename.startswith(_OWN_FOLDER)
    ):
        frame = frame.f_back
    while frame is not None and frame.f_code.co_filename != _MODULE_FILE:
        yield frame
        frame = frame.f_back


def _site(frame: FrameType) -> Site:
    return _resolve(frame.f_code, frame.f_lasti, frame.f_lineno or frame.f_code.co_firstlineno)


@lru_cache(maxsize=16384)
def _resolve(code: CodeType, instruction: int, line: int) -> Site:
    end_line, function = line, code.co_name
    if sys.version_info >= (3, 11):
        function = code.co_qualname
        start, end, _, _ = next(islice(code.co_positions(), instruction // 2, None), (None, None, None, None))
        line, end_line = start or line, end or line
    return Site(code.co_filename, line, end_line, function, *_extent(code))


@lru_cache(maxsize=4096)
def _extent(code: CodeType) -> tuple[int, int]:
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return code.co_firstlineno, max(lines, default=code.co_firstlineno)


@lru_cache(maxsize=4096)
def _codes_of(module_class: type) -> frozenset[CodeType | None]:
    """Return the code of every method of a module class, torch's own ``nn.Module`` left out."""
    bases = [base for base in inspect.getmro(module_class) if base not in (torch.nn.Module, object)]
    return frozenset(_code_of(value) for base in bases for value in vars(base).values()) - {None}


def _code_of(function: object) -> CodeType | None:
    """Return the code that a function runs once its decorators are taken off; None for what is not a function."""
    if not callable(function) or isinstance(function, type):
        return None
    bare = inspect.unwrap(function)
    code: CodeType | None = getattr(getattr(bare, "__func__", bare), "__code__", None)
    return code


def _is_library(file: str) -> bool:
    return file.startswith((_TORCH_FOLDER, _OWN_FOLDER, "<"))

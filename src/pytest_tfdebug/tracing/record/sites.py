"""Where in the source: the line from which a module was called, and the lines of its own forward.

The interpreter's frames are read while the call is under way, so every answer is the line that really ran, through
decorators, helper methods and subclasses; the rest is looked up once for each place and remembered.
"""

from __future__ import annotations

import inspect
import sys
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, cast

import torch

from pytest_tfdebug.records import Site, SourceRange

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import CodeType, FrameType

MODULE_FILE = torch.nn.Module.__call__.__code__.co_filename
_OWN_FOLDER = __file__.rpartition("tracing")[0]
_TORCH_FOLDER = torch.__file__.rpartition("__init__")[0]
#: Where transformers puts a forward around that of a layer which it shards.
_SHARDING = "transformers.distributed."


def locate_call(parent: torch.nn.Module, codes: Mapping[int, CodeType]) -> tuple[Site | None, Site | None]:
    """Return where the running forward of the parent calls the module whose hook is running now.

    The line in the forward, None for a root; and that in a method of the parent, where the call stands in one, or in a
    function that is given the parent and does its work, as attention processors are.
    """
    frames = _frames_of_caller()
    own = [place for place, frame in enumerate(frames) if id(frame.f_code) in codes]
    if not own:
        users = (each for each in frames if not is_library(each.f_code.co_filename))
        fallback = next((each for each in users if each.f_code.co_name != "__call__"), None)
        return _site(fallback) if fallback else None, None
    within = frames[: own[-1]]  # a decorator around the forward is given the parent too
    inner = next((each for each in within if id(each.f_code) in codes or _is_given(each, parent)), None)
    outer = frames[own[-1]]
    return _site(outer), _site(inner) if inner is not None and inner.f_code is not outer.f_code else None


def _is_given(frame: FrameType, module: torch.nn.Module) -> bool:
    """Tell whether a function of the user's was given a module as one of its arguments."""
    code = frame.f_code
    if is_library(code.co_filename):
        return False
    names, held = code.co_varnames[: code.co_argcount], frame.f_locals
    return any(held.get(name) is module for name in names)


def codes_of(module: torch.nn.Module) -> dict[int, CodeType]:
    """Return the code of every method of a module by its id, torch's own ``nn.Module`` left out.

    By id, for the hash of a code is computed anew from all that it holds each time.
    """
    codes, own = _codes_of(cast("type", type(module))), _forward_code(module)
    return codes if own is None or id(own) in codes else {**codes, id(own): own}


def forward_source(module: torch.nn.Module) -> SourceRange | None:
    """Return the lines of a module's own forward; None for modules that are part of torch."""
    return _lines_of(_forward_code(module))


def source_of(function: object) -> SourceRange | None:
    """Return the lines of a function; None for one that is part of torch or has no lines."""
    return _lines_of(_code_of(function))


def _lines_of(code: CodeType | None) -> SourceRange | None:
    if code is None or code.co_filename.startswith(_TORCH_FOLDER):
        return None
    return SourceRange(code.co_filename, *_extent(code))


def is_inside_a_call() -> bool:
    """Tell whether a module calls the module whose hook is running now."""
    frames = _frames_of_caller()
    return bool(frames) and frames[-1].f_back is not None


def _frames_of_caller() -> list[FrameType]:
    """Return the frames between the innermost ``Module.__call__`` and the one that encloses it, nearest first."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to the running frame
    while frame is not None and frame.f_code.co_filename != MODULE_FILE:
        frame = frame.f_back
    while frame is not None and (
        frame.f_code.co_filename == MODULE_FILE or frame.f_code.co_filename.startswith(_OWN_FOLDER)
    ):
        frame = frame.f_back
    frames = []
    while frame is not None and frame.f_code.co_filename != MODULE_FILE:
        frames.append(frame)
        frame = frame.f_back
    return frames


#: Every place seen so far, by code and instruction, with the code, so that its id stays its own.
_places: dict[tuple[int, int], tuple[CodeType, Site]] = {}


def _site(frame: FrameType) -> Site:
    code, instruction = frame.f_code, frame.f_lasti
    known = _places.get((id(code), instruction))
    if known is None:
        line = end_line = frame.f_lineno or code.co_firstlineno
        function = code.co_name
        if sys.version_info >= (3, 11):
            function = code.co_qualname
            start, end, _, _ = next(islice(code.co_positions(), instruction // 2, None), (None, None, None, None))
            line, end_line = start or line, end or line
        site = Site(code.co_filename, line, end_line, function, *_extent(code))
        known = _places[id(code), instruction] = (code, site)
    return known[1]


@lru_cache(maxsize=4096)
def _extent(code: CodeType) -> tuple[int, int]:
    lines = [line for _, _, line in code.co_lines() if line is not None]
    return code.co_firstlineno, max(lines, default=code.co_firstlineno)


def _forward_code(module: torch.nn.Module) -> CodeType | None:
    own = module.__dict__.get("forward")
    if getattr(own, "__module__", "").startswith(_SHARDING):
        own = None
    return (None if own is None else _code_of(own)) or _code_of(type(module).forward)


@lru_cache(maxsize=4096)
def _codes_of(module_class: type) -> dict[int, CodeType]:
    bases = [base for base in inspect.getmro(module_class) if base not in (torch.nn.Module, object)]
    codes = [_code_of(value) for base in bases for value in vars(base).values()]
    return {id(code): code for code in codes if code is not None}


def _code_of(function: object) -> CodeType | None:
    """Return the code that a function runs once its decorators are taken off; None for what is not a function."""
    if not callable(function) or isinstance(function, type):
        return None
    bare = inspect.unwrap(function)
    code: CodeType | None = getattr(getattr(bare, "__func__", bare), "__code__", None)
    return code


def is_library(file: str) -> bool:
    """Tell whether a file belongs to torch or to this package, or is none (``<string>``)."""
    return file.startswith((_TORCH_FOLDER, _OWN_FOLDER, "<"))

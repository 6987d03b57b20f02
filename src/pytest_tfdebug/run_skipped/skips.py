"""The skips that a test meets, and which of them are lifted.

During a run, functions that do the same and know where they are called replace ``unittest.skip``, ``skipIf`` and
``skipUnless``, ``TestCase.skipTest`` and ``pytest.skip``. When a test is run once more, they do nothing for the skips
that the run's mode lifts.
"""

from __future__ import annotations

import functools
import inspect
import re
import sys
import unittest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_tfdebug.run_skipped import source

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType

#: Attribute of functions and classes with the skips that ``unittest``'s decorators gave them.
_CARRIED = "__tf_skips__"
_WRAPPER = "skip_wrapper"
#: What each mode lifts.
LIFTED = {"unconditional": frozenset({"unconditional"}), "all": frozenset({"unconditional", "conditional"})}
#: A condition with one of these asks for a machine, a library or an option, which no edit of the test provides.
_ENVIRONMENT = re.compile(
    r"available|(?<![a-z])(?:cuda|gpu|xpu|npu|hpu|mps|version)|accelerator|torch_device|device_count|device_type|platform"
    r"|environ|getenv|getoption|getini|find_spec|ImportError|ModuleNotFoundError|\bsys\.|\bos\.|\bHAS_|\bIS_CI|\bRUN_"
)
#: How the names of the functions begin in which a test starts.
_ENTRIES = ("test", "setUp", "setup_", "asyncSetUp")
_MACHINERY = frozenset({"unittest", "_pytest", "pluggy", "contextlib", "functools"})


class Skip(NamedTuple):
    """A skip in the source."""

    file: str  # its file
    line: int  # the line to delete
    reason: str  # its reason as written
    # `"unconditional"`, `"conditional"`, or `"environment"` for what the machine or an option decides
    kind: str = "unconditional"
    condition: str = ""  # what it depends on, or the name of the decorator that made it

    @classmethod
    def on(cls, condition: str, file: str, line: int, reason: str) -> Skip:
        """Return a skip that depends on a condition; an empty condition, or ``True``, always holds."""
        if condition in {"", "True", "1"}:
            return cls(file, line, reason)
        kind = "environment" if _ENVIRONMENT.search(condition) else "conditional"
        return cls(file, line, reason, kind, condition)

    def seen_from(self, root: Path) -> Skip:
        """Return the skip with its file relative to a directory, where it lies there."""
        path = Path(self.file)
        return self._replace(file=path.relative_to(root).as_posix()) if path.is_relative_to(root) else self


class _CallingLine(NamedTuple):
    """A place that calls something."""

    code: CodeType
    line: int

    @classmethod
    def of(cls, frame: FrameType) -> _CallingLine:
        return cls(frame.f_code, frame.f_lineno)


class Lifting:
    """Which skips the running test meets, and whether they are lifted."""

    def __init__(self, mode: str) -> None:
        self.kinds, self.is_on = LIFTED[mode], False
        self.met: list[Skip] = []

    def passes(self, skip: Skip) -> bool:
        """Note a skip, and tell whether it is lifted."""
        self.met.append(skip)
        return self.is_on and skip.kind in self.kinds

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replace what skips."""
        skip = self._decorator(unittest.skip)
        patch.setattr(unittest.case, "skip", skip)  # which skipIf and skipUnless call
        patch.setattr(unittest, "skip", skip)
        patch.setattr(unittest.TestCase, "skipTest", self._skip_test(unittest.TestCase.skipTest))
        patch.setattr(pytest, "skip", self._pytest_skip(pytest.skip))

    def _decorator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def skip(reason: Any) -> Any:  # noqa: ANN401 - a reason, or the function of a bare decorator
            frame = sys._getframe(1)  # noqa: SLF001 - the documented way to ask who calls
            name = frame.f_code.co_name if frame.f_globals is vars(unittest.case) else ""
            made = _CallingLine.of(frame.f_back if name and frame.f_back else frame)

            def decorate(test_item: Any) -> Any:  # noqa: ANN401 - a function or a class
                applied = made if test_item is reason else _CallingLine.of(sys._getframe(1))  # noqa: SLF001 - likewise
                text = "" if test_item is reason else reason
                return self._mark(test_item, original(text), _declared(made, applied, str(text), name))

            return decorate(reason) if inspect.isfunction(reason) else decorate

        return skip

    def _mark(self, test_item: Any, decorate: Callable[..., Any], skip: Skip) -> Any:  # noqa: ANN401 - as it came
        """Skip a function or class as ``unittest`` does, except a function whose skip is lifted."""
        if isinstance(test_item, type):
            setattr(test_item, _CARRIED, (skip, *vars(test_item).get(_CARRIED, ())))
            return decorate(test_item)
        skipping = decorate(test_item)

        @functools.wraps(skipping)
        def skip_wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever a test takes
            return (test_item if self.passes(skip) else skipping)(*args, **kwargs)

        vars(skip_wrapper).update({_CARRIED: (skip, *getattr(test_item, _CARRIED, ())), "__wrapped__": test_item})
        return skip_wrapper

    def _skip_test(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def skip_test(testcase: unittest.TestCase, reason: str) -> None:
            if not self.passes(_in_body(sys._getframe(1), reason)):  # noqa: SLF001 - likewise
                original(testcase, reason)

        return skip_test

    def _pytest_skip(self, original: Any) -> Any:  # noqa: ANN401 - pytest types it as a class or a function
        @functools.wraps(original)
        def skip(reason: str = "", *, allow_module_level: bool = False) -> None:
            __tracebackhide__ = True
            frame = sys._getframe(1)  # noqa: SLF001 - likewise
            if allow_module_level or _is_machinery(frame) or not self.passes(_in_body(frame, reason)):
                original(reason, allow_module_level=allow_module_level)

        vars(skip)["Exception"] = original.Exception
        return skip


def carried(owner: Any) -> tuple[Skip, ...]:  # noqa: ANN401 - a function or a class
    """Return the skips that decorators of ``unittest`` gave a function, or a class and its bases."""
    if isinstance(owner, type):
        return tuple(skip for base in owner.__mro__ for skip in vars(base).get(_CARRIED, ()))
    return tuple(getattr(owner, _CARRIED, ()))


def without_skips(function: Any) -> Any:  # noqa: ANN401 - a function
    """Return the function without the outermost decorators of ``unittest`` that skip it."""
    while getattr(getattr(function, "__code__", None), "co_name", "") == _WRAPPER and carried(function):
        function = function.__wrapped__
    return function


def _declared(made: _CallingLine, applied: _CallingLine, reason: str, name: str) -> Skip:
    """Return the skip of a decorator: one that a function makes (``slow``, ``require_gpu``) is the environment's."""
    for site in (made, applied):
        if site.code.co_flags & inspect.CO_OPTIMIZED:  # as only a function has
            return Skip(site.code.co_filename, site.line, reason, "environment", site.code.co_name)
    condition = source.condition_at(made.code.co_filename, made.line, {name}) or name if name else ""
    here = made if made.code is applied.code else applied
    return Skip.on(condition, here.code.co_filename, here.line, reason)


def _in_body(frame: FrameType, reason: str) -> Skip:
    """Return the skip of a call, with all the conditions between it and the test, its set-up or a fixture."""
    conditions: list[str] = []
    caller: FrameType | None = frame
    while caller is not None and not _is_machinery(caller):
        found = source.guards(caller.f_code, caller.f_lineno)
        conditions[:0] = [f"{caller.f_code.co_name}()"] if found is None else found
        if caller.f_code.co_name.startswith(
            _ENTRIES
        ):  # a wrapper around it, such as one that runs it again, decides nothing
            break
        caller = caller.f_back
    plain = [condition for condition in conditions if not condition.startswith(("for ", "async for "))]
    return Skip.on(" and ".join(plain or conditions), frame.f_code.co_filename, frame.f_lineno, reason)


def _is_machinery(frame: FrameType) -> bool:
    """Tell whether a frame belongs to a library that runs tests."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _MACHINERY

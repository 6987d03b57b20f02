"""The skips that a test meets, where each is written, and which of them are lifted.

During a run, functions that do the same and know where they are called replace ``unittest.skip``, ``skipIf`` and
``skipUnless``, ``TestCase.skipTest``, ``pytest.skip`` and the marks ``skip`` and ``skipif``. When a test is run once
more, the functions do nothing for the skips that the run's mode lifts.
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
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

#: Attribute of functions and classes with the skips that decorators gave them, each with its mark if it is one.
_CARRIED = "__tf_skips__"
_WRAPPER = "skip_wrapper"
_MARKS = ("skip", "skipif")
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

    file: str
    line: int  # the line to delete
    reason: str  # as written
    # or "conditional"; "environment" for what the machine or an option decides, "body" for what the code of a test does
    kind: str = "unconditional"

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
        self.kinds = LIFTED[mode]
        self.is_on = False  # whether a test is run without its skips
        self.met: list[Skip] = []  # the skips that the test has met so far
        self._written: dict[int, tuple[pytest.Mark, _CallingLine]] = {}  # where each mark was made, by its id

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
        patch.setattr(pytest.MarkDecorator, "__call__", self._mark_call(pytest.MarkDecorator.__call__))
        for name in _MARKS:
            patch.setattr(pytest.MarkGenerator, name, property(self._mark_made(name)), raising=False)

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
            _carry(test_item, None, skip)
            return decorate(test_item)
        skipping = decorate(test_item)

        @functools.wraps(skipping)
        def skip_wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever a test takes
            return (test_item if self.passes(skip) else skipping)(*args, **kwargs)

        vars(skip_wrapper)["__wrapped__"] = test_item
        _carry(skip_wrapper, None, skip)
        return skip_wrapper

    def _mark_made(self, name: str) -> Callable[[Any], pytest.MarkDecorator]:
        def made(generator: Any) -> pytest.MarkDecorator:  # noqa: ANN401 - pytest.mark
            decorator: pytest.MarkDecorator = generator.__getattr__(name)
            self._written[id(decorator.mark)] = decorator.mark, _CallingLine.of(sys._getframe(1))  # noqa: SLF001 - likewise
            return decorator

        return made

    def _mark_call(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Note where a mark is given to a function or class, and that a mark with arguments is the one without them."""

        @functools.wraps(original)
        def call(decorator: pytest.MarkDecorator, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as a mark does
            made, mark = original(decorator, *args, **kwargs), decorator.mark
            if mark.name in _MARKS:
                _, written = self._written.get(id(mark), (mark, None))
                applied = _CallingLine.of(sys._getframe(1))  # noqa: SLF001 - likewise
                if not isinstance(made, pytest.MarkDecorator):
                    _carry(made, mark, _declared(written, applied, _reason(mark), mark.name))
                elif written is not None:
                    self._written[id(made.mark)] = made.mark, written
            return made

        return call

    def of_mark(self, item: pytest.Item, mark: pytest.Mark) -> Skip:
        """Return the skip of a mark, that of ``pytestmark`` or a parameter where no decorator gave it."""
        owners = [getattr(item, "function", None), *getattr(getattr(item, "cls", None), "__mro__", ())]
        pairs: Iterator[tuple[pytest.Mark, Skip]] = (
            pair for owner in owners if owner is not None for pair in vars(owner).get(_CARRIED, ())
        )
        given = next((skip for carrier, skip in pairs if carrier is mark), None)
        if given is not None:
            return given
        _, written = self._written.get(id(mark), (mark, None))
        if written is None or _is_in_function(written):
            return Skip(str(item.path), 0, _reason(mark), "environment")
        return _declared(written, written, _reason(mark), mark.name)

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


def _carry(owner: Any, mark: pytest.Mark | None, skip: Skip) -> None:  # noqa: ANN401 - a function or a class
    setattr(owner, _CARRIED, ((mark, skip), *vars(owner).get(_CARRIED, ())))


def carried(owner: Any) -> tuple[Skip, ...]:  # noqa: ANN401 - a function or a class
    """Return the skips that decorators of ``unittest`` gave a function, or a class and its bases."""
    owners = owner.__mro__ if isinstance(owner, type) else (owner,)
    return tuple(skip for each in owners for mark, skip in getattr(each, "__dict__", {}).get(_CARRIED, ()) if not mark)


def held_marks(item: pytest.Item) -> Iterator[pytest.Mark]:
    """Yield the ``skip`` and ``skipif`` marks of a test whose condition holds."""
    from _pytest.skipping import evaluate_condition

    yield from item.iter_markers("skip")
    for mark in item.iter_markers("skipif"):
        conditions = (mark.kwargs["condition"],) if "condition" in mark.kwargs else mark.args
        if not conditions or any(evaluate_condition(item, mark, condition)[0] for condition in conditions):
            yield mark


def without_skips(function: Any) -> Any:  # noqa: ANN401 - a function
    """Return the function without the outermost decorators of ``unittest`` that skip it."""
    while getattr(getattr(function, "__code__", None), "co_name", "") == _WRAPPER and carried(function):
        function = function.__wrapped__
    return function


def _reason(mark: pytest.Mark) -> str:
    return str(mark.kwargs.get("reason") or (mark.args[0] if mark.args and mark.name == "skip" else ""))


def _declared(made: _CallingLine | None, applied: _CallingLine, reason: str, name: str) -> Skip:
    """Return the skip of a decorator: what another line or function decides (``slow``, ``needs_gpu``) is not lifted."""
    for site in (made, applied):
        if site is not None and _is_in_function(site):
            return Skip(site.code.co_filename, site.line, reason, "environment")
    place = applied.code.co_filename, applied.line
    if name in {"", "skip"}:
        return Skip(*place, reason)
    if made != applied:
        return Skip(*place, reason, "environment")
    condition = source.condition_at(*place, {name})
    if condition in {"True", "1"}:
        return Skip(*place, reason)
    return Skip(*place, reason, "environment" if _ENVIRONMENT.search(condition) else "conditional")


def _is_in_function(site: _CallingLine) -> bool:
    return bool(site.code.co_flags & inspect.CO_OPTIMIZED)  # as only a function has


def _in_body(frame: FrameType, reason: str) -> Skip:
    """Return the skip of a call; it is lifted only if nothing between it and the start of the test decides about it."""
    caller: FrameType | None = frame
    is_always = True
    while caller is not None and not _is_machinery(caller):
        is_always = is_always and source.is_always_reached(caller.f_code, caller.f_lineno)
        if caller.f_code.co_name.startswith(_ENTRIES):  # what wraps it, to run it again, decides nothing
            break
        caller = caller.f_back
    return Skip(frame.f_code.co_filename, frame.f_lineno, reason, "unconditional" if is_always else "body")


def _is_machinery(frame: FrameType) -> bool:
    """Tell whether a frame belongs to a library that runs tests."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _MACHINERY

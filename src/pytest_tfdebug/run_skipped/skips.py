"""The skips of a run: where each is written, and which of them are lifted.

``unittest.skip`` and ``pytest.mark.skip`` note the line that calls them. A line of a module or of a class stands beside
the tests that it skips; one of a function (``slow``, a hook of a conftest) is a choice of the run, and stays. So does a
skip that the code of a test calls, unless that is all that the test does.
"""

from __future__ import annotations

import ast
import functools
import inspect
import sys
import unittest
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

#: Where a mark, and where a function or class, keeps what is known of its skips.
_PLACE, _SKIPS = "tf_place", "__tf_skips__"
#: Functions and errors that skip the test that calls or raises them.
_SKIPPING = frozenset({"skip", "skipTest", "SkipTest"})
_MACHINERY = frozenset({"unittest", "_pytest", "pytest_tfdebug"})


class Skip(NamedTuple):
    """A skip in the source."""

    file: str  # empty where a function decides it, and not the source beside the test
    line: int  # the line to delete
    reason: str  # as written
    is_conditional: bool = False


class Lifting:
    """Which skips are lifted while a test is run without them."""

    def __init__(self, mode: str) -> None:
        self.is_on = False  # whether a test is run without its skips
        self._lifts_conditions = mode == "all"

    def lifts(self, skip: Skip) -> bool:
        """Tell whether a skip is one to lift."""
        return bool(skip.file) and (self._lifts_conditions or not skip.is_conditional)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replace what makes skips."""
        skip = self._decorator(unittest.skip)
        patch.setattr(unittest.case, "skip", skip)  # which skipIf and skipUnless call
        patch.setattr(unittest, "skip", skip)
        patch.setattr(pytest.Mark, "__init__", _noting(pytest.Mark.__init__))

    def _decorator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def skip(reason: Any) -> Any:  # noqa: ANN401 - a reason, or the function of a bare decorator
            is_bare = inspect.isfunction(reason)
            is_conditional = sys._getframe(1).f_globals["__name__"] == "unittest.case"  # noqa: SLF001 - as below
            found = Skip(*_place(), "" if is_bare else str(reason), is_conditional)

            def decorate(test_item: Any) -> Any:  # noqa: ANN401 - a function or a class
                skipped = original(found.reason)(test_item)
                if not isinstance(test_item, type):
                    skipped = self._wrapper(test_item, skipped, found)
                setattr(skipped, _SKIPS, (found, *of_decorators(test_item)))
                return skipped

            return decorate(reason) if is_bare else decorate

        return skip

    def _wrapper(self, test_item: Callable[..., Any], skipping: Callable[..., Any], skip: Skip) -> Callable[..., Any]:
        @functools.wraps(skipping)
        def skip_wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever a test takes
            return (test_item if self.is_on and self.lifts(skip) else skipping)(*args, **kwargs)

        vars(skip_wrapper)["__wrapped__"] = test_item
        return skip_wrapper


def _place() -> tuple[str, int]:
    """Return the file and line that asks for a skip; no file if it is in a function, and not in a module or a class."""
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - the documented way to ask who calls
    while frame is not None and str(frame.f_globals.get("__name__")).partition(".")[0] in _MACHINERY:
        frame = frame.f_back
    if frame is None or frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return "", 0
    return frame.f_code.co_filename, frame.f_lineno


def _noting(create: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(create)
    def create_here(mark: pytest.Mark, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401 - as a mark takes them
        create(mark, *args, **kwargs)
        object.__setattr__(mark, _PLACE, _place())  # a mark is frozen

    return create_here


def of_marks(item: pytest.Item) -> Iterator[tuple[pytest.Mark, Skip]]:
    """Yield the ``skip`` marks of a test, and the ``skipif`` marks whose condition holds."""
    from _pytest.skipping import evaluate_condition

    for mark in (*item.iter_markers("skip"), *item.iter_markers("skipif")):
        is_always = mark.name == "skip"
        conditions = () if is_always else mark.args
        conditions = (mark.kwargs["condition"],) if "condition" in mark.kwargs else conditions
        if not conditions or any(evaluate_condition(item, mark, condition)[0] for condition in conditions):
            reason = mark.kwargs.get("reason") or (mark.args[0] if mark.args and is_always else "")
            file, line = getattr(mark, _PLACE, ("", 0))
            yield mark, Skip(file, line, str(reason), bool(conditions))


def of_decorators(test_item: Any) -> tuple[Skip, ...]:  # noqa: ANN401 - a function or a class
    """Return the skips that decorators of ``unittest`` give a function or a class."""
    return getattr(test_item, _SKIPS, ())


def without_skips(function: Any) -> Any:  # noqa: ANN401 - a function
    """Return the function without the outermost decorators of ``unittest`` that skip it."""
    while getattr(getattr(function, "__code__", None), "co_name", "") == "skip_wrapper" and of_decorators(function):
        function = function.__wrapped__
    return function


def innermost(function: Any) -> Any:  # noqa: ANN401 - a function
    """Return the function that was decorated, also by ``parameterized.expand``."""
    while inspect.isfunction(inner := getattr(function, "__wrapped__", None) or getattr(function, "place_as", None)):
        function = inner
    return function


def does_nothing(function: Any) -> bool:  # noqa: ANN401 - a function
    """Tell whether a test holds only a docstring, ``pass`` and skips, or is a skip of nothing at all."""
    if without_skips(function) is None:  # as ``parameterized.expand`` leaves it
        return True
    body = _body(function)
    return body is not None and all(_is_skip(each) or _is_idle(each) for each in body)


def of_body(function: Any, reason: str) -> list[Skip]:  # noqa: ANN401 - a function
    """Return the skips, for a reason that pytest gave, that a test calls itself and that are all that it does."""
    body = _body(function) if does_nothing(function) else None
    return [
        Skip(innermost(function).__code__.co_filename, each.lineno, reason) for each in body or () if _is_skip(each)
    ]


def _is_skip(statement: ast.stmt) -> bool:
    skip = statement.value if isinstance(statement, ast.Expr) else getattr(statement, "exc", None)
    called = skip.func if isinstance(skip, ast.Call) else skip
    return getattr(called, "attr", getattr(called, "id", None)) in _SKIPPING


def _is_idle(statement: ast.stmt) -> bool:
    value = getattr(statement, "value", None)
    is_constant = value is None or isinstance(value, ast.Constant)
    return isinstance(statement, ast.Pass) or (isinstance(statement, (ast.Expr, ast.Return)) and is_constant)


def _body(function: Any) -> list[ast.stmt] | None:  # noqa: ANN401 - a function
    """Return the statements of a function; None where its source cannot be read."""
    try:
        lines, first = inspect.getsourcelines(innermost(function))
        tree = ast.parse("if True:\n" + "".join(f" {line}" for line in lines))
    except (OSError, TypeError, SyntaxError, UnicodeError):
        return None
    found = next((node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))), None)
    return None if found is None else ast.increment_lineno(found, first - 2).body

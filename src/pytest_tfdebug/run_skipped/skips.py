"""The skips of a test, where each is written, and which of them are lifted.

The source says where a decorator, a mark or ``pytestmark`` skips, and on which condition. A skip that the source does
not show beside the test is a choice of another function (``slow``, ``require_gpu``) and stays. What ``unittest.skip``
wraps, ``TestCase.skipTest`` and ``pytest.skip`` let a test pass when it is run once more.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
import tokenize
import unittest
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

Definition: TypeAlias = "ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef"

#: Attribute of a function or class with the reasons for which ``unittest.skip`` skips it.
_REASONS = "__tf_reasons__"
_WRAPPER = "skip_wrapper"
#: A condition with one of these asks for a machine, a library or an option, which no edit of the test provides.
_ENVIRONMENT = re.compile(
    r"available|(?<![a-z])(?:cuda|gpu|xpu|npu|hpu|mps|version)|accelerator|torch_device|device_count|device_type|platform"
    r"|environ|getenv|getoption|getini|find_spec|ImportError|ModuleNotFoundError|\bsys\.|\bos\.|\bHAS_|\bIS_CI|\bRUN_"
)
#: How the names of the functions begin in which a test starts.
_ENTRIES = ("test", "setUp", "setup_", "asyncSetUp")
_MACHINERY = frozenset({"unittest", "_pytest", "pluggy", "contextlib", "functools"})
_DECLARED = frozenset({"skip", "skipIf", "skipUnless", "skipif"})
#: Functions and errors that skip the test that calls or raises them.
_SKIPPING = frozenset({"skip", "skipTest", "SkipTest"})
#: Statements whose block is entered always, and those that decide whether it is.
_ENTERED = (ast.With, ast.AsyncWith, ast.Try)
_DECIDING = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.Match)


class Skip(NamedTuple):
    """A skip in the source."""

    file: str
    line: int  # the line to delete
    reason: str  # as written
    # or "conditional"; "environment" for what the machine or an option decides, "body" for what the code of a test does
    kind: str = "unconditional"


class Lifting:
    """Which skips the running test meets in its code, and whether they are lifted."""

    def __init__(self, mode: str) -> None:
        self.kinds = {"unconditional", "conditional"} if mode == "all" else {"unconditional"}
        self.is_on = False  # whether a test is run without its skips
        self.met: list[Skip] = []  # the skips that the code of the test has met so far

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Replace what skips."""
        skip, skip_test = self._decorator(unittest.skip), unittest.TestCase.skipTest
        pytest_skip: Any = pytest.skip  # typed as a class or a function

        @functools.wraps(skip_test)
        def skip_or_pass(testcase: unittest.TestCase, reason: str) -> None:
            if not self._passes(sys._getframe(1), reason):  # noqa: SLF001 - the documented way to ask who calls
                skip_test(testcase, reason)

        @functools.wraps(pytest_skip)
        def pytest_skip_or_pass(reason: str = "", *, allow_module_level: bool = False) -> None:
            __tracebackhide__ = True
            frame = sys._getframe(1)  # noqa: SLF001 - likewise
            if allow_module_level or _is_machinery(frame) or not self._passes(frame, reason):
                pytest_skip(reason, allow_module_level=allow_module_level)

        vars(pytest_skip_or_pass)["Exception"] = pytest_skip.Exception
        patch.setattr(unittest.case, "skip", skip)  # which skipIf and skipUnless call
        patch.setattr(unittest, "skip", skip)
        patch.setattr(unittest.TestCase, "skipTest", skip_or_pass)
        patch.setattr(pytest, "skip", pytest_skip_or_pass)

    def _decorator(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def skip(reason: Any) -> Any:  # noqa: ANN401 - a reason, or the function of a bare decorator
            is_bare = inspect.isfunction(reason)

            def decorate(test_item: Any) -> Any:  # noqa: ANN401 - a function or a class
                skipping = skipped = original("" if is_bare else reason)(test_item)
                if not isinstance(test_item, type):

                    @functools.wraps(skipping)
                    def skip_wrapper(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever a test takes
                        return (test_item if self.is_on else skipping)(*args, **kwargs)

                    vars(skip_wrapper)["__wrapped__"] = test_item
                    skipped = skip_wrapper
                reasons = ("" if is_bare else str(reason), *getattr(test_item, _REASONS, ()))
                setattr(skipped, _REASONS, reasons)
                return skipped

            return decorate(reason) if is_bare else decorate

        return skip

    def _passes(self, frame: FrameType, reason: str) -> bool:
        """Note a skip that code calls, and tell whether it is lifted: only if nothing before it decides about it."""
        caller: FrameType | None = frame
        is_always = True
        while caller is not None and not _is_machinery(caller):
            is_always = is_always and _is_always_reached(caller.f_code, caller.f_lineno)
            if caller.f_code.co_name.startswith(_ENTRIES):  # what wraps it, to run it again, decides nothing
                break
            caller = caller.f_back
        kind = "unconditional" if is_always else "body"
        self.met.append(Skip(frame.f_code.co_filename, frame.f_lineno, reason, kind))
        return self.is_on and kind in self.kinds


def declared(item: pytest.Function, function: Any) -> Iterator[Skip]:  # noqa: ANN401 - the item's, or one behind it
    """Yield the skips that decorators and marks give a test."""
    is_test_case = hasattr(item.cls, "countTestCases")
    reasons = [
        str(mark.kwargs.get("reason") or (mark.args[0] if mark.args and mark.name == "skip" else ""))
        for mark in held_marks(item)
    ]
    for owner in (function, item.cls) if is_test_case else (function,):
        if getattr(owner, "__unittest_skip__", False):
            reasons += getattr(owner, _REASONS, (getattr(owner, "__unittest_skip_why__", ""),))
    places = list(_places(item, function))
    for reason in reasons:
        found = (skip for file, node, at in places if (skip := _written(file, node, at, reason)) is not None)
        yield next(found, Skip(str(item.path), 0, reason, "environment"))


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
    while getattr(getattr(function, "__code__", None), "co_name", "") == _WRAPPER and hasattr(function, _REASONS):
        function = function.__wrapped__
    return function


def innermost(function: Any) -> Any:  # noqa: ANN401 - a function
    """Return the function that was decorated, also by ``parameterized.expand``."""
    while inspect.isfunction(inner := getattr(function, "__wrapped__", None) or getattr(function, "place_as", None)):
        function = inner
    return function


def is_own(function: Any, skips: list[Skip]) -> bool:  # noqa: ANN401 - a test function
    """Tell whether a test itself has one of some skips, and not only its class, module or set-up."""
    inner = innermost(function)
    if without_skips(function) is None or not inspect.isfunction(inner):
        return without_skips(function) is None
    code, definition = inner.__code__, _definition(inner.__code__)
    last = 0 if definition is None else definition.end_lineno or 0
    return any(skip.file == code.co_filename and code.co_firstlineno <= skip.line <= last for skip in skips)


def does_nothing(code: CodeType) -> bool:
    """Tell whether a function's body holds no more than a docstring, ``pass`` and skips."""
    function = _definition(code)
    return function is not None and all(map(_is_nothing, function.body))


def _is_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Return):
        return statement.value is None or isinstance(statement.value, ast.Constant)
    skip = statement.value if isinstance(statement, ast.Expr) else getattr(statement, "exc", None)
    is_skip = isinstance(skip, (ast.Call, ast.Name, ast.Attribute)) and _last_name(skip) in _SKIPPING
    return is_skip or isinstance(skip, ast.Constant) or isinstance(statement, ast.Pass)


def _is_always_reached(code: CodeType, line: int) -> bool:
    """Tell whether a function that gets as far as a line runs it whatever its conditions and loops do."""
    function = _definition(code)
    block: list[ast.stmt] = [] if function is None else function.body
    while True:
        found = next((each for each in block if each.lineno <= line <= (each.end_lineno or 0)), None)
        if not isinstance(found, _ENTERED):
            return found is not None and not isinstance(found, _DECIDING)
        block = found.body


def _places(item: pytest.Function, function: Any) -> Iterator[tuple[str, ast.expr, int]]:  # noqa: ANN401 - as above
    """Yield each expression that may skip a test, with its file, and the line of its use where that is elsewhere."""
    code = getattr(innermost(function), "__code__", None)
    holders: list[tuple[str, Definition | ast.Module | None]] = []
    if code is not None:
        holders.append((code.co_filename, _definition(code)))
    for cls in getattr(item.cls, "__mro__", ()):
        file = getattr(sys.modules.get(cls.__module__), "__file__", None) or ""
        named = (node for node in _definitions(file).values() if node.name == cls.__name__)
        holders.append((file, next(named, None)))
    holders.append((str(item.path), _module(str(item.path))))
    for file, holder in holders:
        found = list(getattr(holder, "decorator_list", ()))
        if isinstance(holder, (ast.ClassDef, ast.Module)):
            found += _assigned(holder, "pytestmark")
        for node in found:
            aliases = _assigned(_module(file), node.id) if isinstance(node, ast.Name) else []
            yield from ((file, alias, node.lineno) for alias in aliases)
            yield from ((file, part, 0) for part in ast.walk(node) if isinstance(part, ast.expr))


def _assigned(holder: ast.ClassDef | ast.Module, name: str) -> list[ast.expr]:
    assignments = (each for each in holder.body if isinstance(each, ast.Assign))
    return [each.value for each in assignments if any(_last_name(target) == name for target in each.targets)]


def _written(file: str, node: ast.expr, at: int, reason: str) -> Skip | None:
    """Return the skip that an expression is; None if it is none, or one for another reason."""
    if _last_name(node) not in _DECLARED or isinstance(getattr(node, "ctx", None), ast.Store):
        return None
    arguments = node.args if isinstance(node, ast.Call) else []
    named = {each.arg: each.value for each in node.keywords} if isinstance(node, ast.Call) else {}
    is_always = _last_name(node) == "skip"
    told = named.get("reason") or next(iter(arguments[0 if is_always else 1 :]), ast.Constant(""))
    if isinstance(told, ast.Constant) and told.value != reason:
        return None
    condition = named.get("condition") or next(iter(arguments), None)
    asked = "True" if is_always or condition is None else ast.unparse(condition)
    if asked in {"True", "1"}:
        return Skip(file, at or node.lineno, reason)
    return Skip(file, at or node.lineno, reason, "environment" if at or _ENVIRONMENT.search(asked) else "conditional")


def _is_machinery(frame: FrameType) -> bool:
    """Tell whether a frame belongs to a library that runs tests."""
    return str(frame.f_globals.get("__name__")).partition(".")[0] in _MACHINERY


def _last_name(node: ast.AST) -> str:
    """Return the last part of a dotted name, called or not."""
    node = node.func if isinstance(node, ast.Call) else node
    return str(getattr(node, "attr", None) or getattr(node, "id", ""))


def _definition(code: CodeType) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the ``def`` of a function; None where its source cannot be read."""
    found = _definitions(code.co_filename).get((code.co_name, code.co_firstlineno))
    return None if isinstance(found, ast.ClassDef) else found


@functools.cache
def _definitions(file: str) -> dict[tuple[str, int], Definition]:
    """Return every function and class of a file by its name and first line, that of its first decorator."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    nodes = (node for node in ast.walk(_module(file)) if isinstance(node, kinds))
    return {(node.name, (node.decorator_list[0] if node.decorator_list else node).lineno): node for node in nodes}


@functools.cache
def _module(file: str) -> ast.Module:
    """Return the syntax of a file; empty where it cannot be read."""
    try:
        with tokenize.open(file) as stream:
            return ast.parse(stream.read())
    except (OSError, SyntaxError, UnicodeError):
        return ast.Module([], [])

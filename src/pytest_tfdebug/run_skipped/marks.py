"""The ``skip`` and ``skipif`` marks of a test that hold, and where they are written."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_tfdebug.run_skipped import source
from pytest_tfdebug.run_skipped.skips import Skip

if TYPE_CHECKING:
    import ast
    from collections.abc import Iterator

    from pytest_tfdebug.run_skipped.source import WrittenMark


class Marked(NamedTuple):
    """A mark that skips a test."""

    mark: pytest.Mark
    skip: Skip


def marks_of(item: pytest.Item) -> list[Marked]:
    """Return the marks that skip a test."""
    return [Marked(mark, _skip(item, node, mark)) for node, mark in _held(item)]


def _held(item: pytest.Item) -> Iterator[tuple[Any, pytest.Mark]]:
    """Yield each mark whose condition holds, with the node that carries it."""
    from _pytest.skipping import evaluate_condition

    for node, mark in item.iter_markers_with_node("skip"):
        yield node, mark
    for node, mark in item.iter_markers_with_node("skipif"):
        conditions = (mark.kwargs["condition"],) if "condition" in mark.kwargs else mark.args
        if not conditions or any(evaluate_condition(item, mark, condition)[0] for condition in conditions):
            yield node, mark


def _skip(item: pytest.Item, node: Any, mark: pytest.Mark) -> Skip:  # noqa: ANN401 - a node with or without an object
    """Return the skip of a mark. A mark that stands nowhere in the source was added by a hook, for this run."""
    reason = str(mark.kwargs.get("reason") or (mark.args[0] if mark.args and mark.name == "skip" else ""))
    for body, file, namespace in _bodies(item, node, mark):
        written = source.mark_in(body, mark, namespace)
        if written is not None:
            return _written(mark, written, file, reason)
    return Skip(str(item.path), 0, reason, "environment", "added by a hook")


def _written(mark: pytest.Mark, written: WrittenMark, file: str, reason: str) -> Skip:
    if mark.name == "skip":
        return Skip(file, written.line, reason)
    if written.alias:
        return Skip(file, written.line, reason, "environment", written.alias)
    return Skip.on(written.condition or mark.name, file, written.line, reason)


def _bodies(item: pytest.Item, node: Any, mark: pytest.Mark) -> Iterator[tuple[ast.AST | None, str, dict[str, Any]]]:  # noqa: ANN401 - likewise
    """Yield the syntax, file and names of each module, class or function that was given a mark."""
    obj = getattr(node, "obj", None)
    if isinstance(node, pytest.Module):
        yield source.module_definition(str(node.path)), str(node.path), vars(obj)
    elif isinstance(node, pytest.Class):
        for base in node.obj.__mro__:
            if _has_mark(vars(base).get("pytestmark", ()), mark):
                module = sys.modules[base.__module__]
                file = str(getattr(module, "__file__", ""))
                yield source.class_definition(base, file), file, vars(module)
    elif node is item and isinstance(item, pytest.Function):
        function = getattr(holder_of(item), item.originalname)
        given = [*getattr(function, "pytestmark", ()), *getattr(getattr(item, "callspec", None), "marks", ())]
        if not _has_mark(given, mark):
            return
        function = inspect.unwrap(function)
        yield source.definition(function.__code__), function.__code__.co_filename, function.__globals__


def holder_of(item: pytest.Function) -> Any:  # noqa: ANN401 - a class or a module
    """Return the class or module that holds a test's function."""
    return item.cls or item.module


def _has_mark(given: Any, mark: pytest.Mark) -> bool:  # noqa: ANN401 - a mark or its decorator, or several
    each_given = given if isinstance(given, (list, tuple)) else (given,)
    return any(getattr(each, "mark", each) is mark for each in each_given)

"""Tests that ``parameterized.expand`` multiplies: which functions a class ends up with, and under which names.

``expand`` puts one function for each parameter set into the class body and leaves ``None`` under the name itself. A
subclass that defines that name again therefore adds a test and removes none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import libcst as cst

from pytest_tfdebug.scan import syntax
from pytest_tfdebug.scan.bindings import Binding, Decorator, Function
from pytest_tfdebug.scan.values import Evaluator, Scope

if TYPE_CHECKING:
    from pytest_tfdebug.scan.classes import Linked
    from pytest_tfdebug.scan.workspace import Workspace


class Expansion(NamedTuple):
    """How a function is expanded: the names it gets, or what they depend on, and the decorators that still apply."""

    names: tuple[str, ...]
    inner: tuple[Decorator, ...]
    outer: tuple[Decorator, ...]


def expansion(
    workspace: Workspace, evaluator: Evaluator, definer: Linked, function: Binding | None
) -> Expansion | None:
    """Return how ``parameterized.expand`` multiplies a function of a class, or None where it does not."""
    if not isinstance(function, Function):
        return None
    for index, decorator in enumerate(function.decorators):
        node = workspace.node(definer.file, decorator) if "expand" in decorator.text else None
        callee = node.func if isinstance(node, cst.Call) else None
        callee = callee.func if isinstance(callee, cst.Call) else callee
        if callee is not None and syntax.dotted(callee).rpartition(".")[2] == "expand":
            names = _names(function.name, node, Scope(definer.file), evaluator)
            return Expansion(names, function.decorators[index + 1 :], function.decorators[:index])
    return None


def _names(base: str, node: Any, scope: Scope, evaluator: Evaluator) -> tuple[str, ...]:
    """Return the names that ``expand`` gives, or one that stands for the names of these parameters."""
    args = syntax.arguments(node)
    unknown = (f"{base}_*{syntax.source(args[0].value) if args else ''}",)
    if len(args) != 1 or args[0].keyword not in {"", "input"}:
        return unknown
    rows = evaluator.value(args[0].value, scope)
    if not isinstance(rows, (list, tuple)) or not rows:
        return unknown
    digits = len(str(len(rows) - 1))
    names = []
    for number, row in enumerate(rows):
        first = row[0] if isinstance(row, (list, tuple)) and row else row
        if not isinstance(first, (str, int, float, bool, type(None))):
            return unknown
        suffix = f"_{_safe(first)}" if isinstance(first, str) else ""
        names.append(f"{base}_{number:0>{digits}}{suffix}")
    return tuple(names)


def _safe(text: str) -> str:
    """Return text as ``expand`` puts it into a name: each run of other characters is one underscore."""
    marks = [mark if mark.isascii() and (mark.isalnum() or mark == "_") else " " for mark in text]
    words = "".join(marks).split(" ")
    inner = [word for word in words[1:-1] if word]
    return "_".join([words[0], *inner, *words[-1:]]) if len(words) > 1 else words[0]

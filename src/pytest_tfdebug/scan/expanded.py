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
    from collections.abc import Callable

    from pytest_tfdebug.scan.classes import Linked
    from pytest_tfdebug.scan.workspace import Workspace


class Slot(NamedTuple):
    """One function that a class has for a test.

    Attributes:
        name: Its name.
        definer: The class that defines it.
        binding: What was bound.
        decorators: The decorators that still apply, if not those of the binding.
        is_leftover: Whether it is what ``expand`` leaves under the name itself.
    """

    name: str
    definer: Linked
    binding: Binding
    decorators: tuple[Decorator, ...] | None = None
    is_leftover: bool = False


class Expansion(NamedTuple):
    """How a function is expanded: the names it gets, or what they depend on, and the decorators that still apply."""

    names: tuple[str, ...]
    inner: tuple[Decorator, ...]
    outer: tuple[Decorator, ...]


def expansion(workspace: Workspace, evaluator: Evaluator, definer: Linked, function: Binding) -> Expansion | None:
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


def slots(
    mro: tuple[Linked, ...], test: str, expansion_of: Callable[[Linked, Binding], Expansion | None]
) -> list[Slot]:
    """Return the functions that a class has for a test, of which some definition is expanded.

    Args:
        mro: The classes of a class's MRO that take part.
        test: Name of the test, without a parameter's suffix.
        expansion_of: Returns how a class's function is expanded, or None where it is not.
    """
    found: dict[str, Slot] = {}
    for definer in mro:
        for name, binding in definer.facts.members.items():
            if name.startswith(f"{test}_") and name[len(test) + 1 :].partition("_")[0].isdigit():
                found.setdefault(name, Slot(name, definer, binding))
        own = definer.facts.members.get(test)
        if own is None:
            continue
        expanded = expansion_of(definer, own)
        if expanded is None:
            found.setdefault(test, Slot(test, definer, own))
            continue
        found.setdefault(test, Slot(test, definer, own, expanded.outer, is_leftover=True))
        for name in expanded.names:
            found.setdefault(name, Slot(name, definer, own, expanded.inner))
    return list(found.values())

"""Tests that ``parameterized.expand`` multiplies: which functions a class ends up with, and under which names.

``expand`` puts one function for each parameter set into the class body and leaves ``None`` under the name itself. A
subclass that defines that name again therefore adds a test and removes none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.facts import Decorator, Function
from pytest_tfdebug.scan.values import Scope

if TYPE_CHECKING:
    from pytest_tfdebug.scan.classes import Linked
    from pytest_tfdebug.scan.facts import Binding
    from pytest_tfdebug.scan.values import Evaluator
    from pytest_tfdebug.scan.workspace import Source, Workspace

_EXPAND = re.compile(r"[\w.]*\bexpand\s*\(")
_UNSAFE = re.compile(r"[^a-zA-Z0-9_]+")


class Slot(NamedTuple):
    """One function that a class has for a test: its name, the class that defines it, and what was bound."""

    name: str
    definer: Linked
    binding: Binding
    is_leftover: bool = False  # what expand leaves under the name itself


class Expansion(NamedTuple):
    """How a function is expanded: the names it gets, or what they depend on, and the decorators that still apply."""

    names: tuple[str, ...]
    inner: tuple[Decorator, ...]
    outer: tuple[Decorator, ...]


def expansion(function: Binding, source: Source, workspace: Workspace, evaluator: Evaluator) -> Expansion | None:
    """Return how ``parameterized.expand`` multiplies a function, or None where it does not."""
    if not isinstance(function, Function):
        return None
    for index, decorator in enumerate(function.decorators):
        if "expand" in decorator.text and _EXPAND.match(decorator.text):
            expression = workspace.parser.expression(decorator.text)
            names = _names(function.name, expression, Scope(source), evaluator)
            return Expansion(names, function.decorators[index + 1 :], function.decorators[:index])
    return None


def _names(base: str, expression: Any, scope: Scope, evaluator: Evaluator) -> tuple[str, ...]:  # noqa: ANN401
    """Return the names that ``expand`` gives, or one that stands for the names of these parameters."""
    unknown = (f"{base}_*{expression[2][0][2] if expression[0] == 'call' and expression[2] else ''}",)
    if expression[0] != "call" or len(expression[2]) != 1 or expression[2][0][0] not in {"", "input"}:
        return unknown
    rows = evaluator.value(expression[2][0][1], scope)
    if not isinstance(rows, (list, tuple)) or not rows:
        return unknown
    digits = len(str(len(rows) - 1))
    names = []
    for number, row in enumerate(rows):
        first = row[0] if isinstance(row, (list, tuple)) and row else row
        if not isinstance(first, (str, int, float, bool, type(None))):
            return unknown
        suffix = f"_{_UNSAFE.sub('_', first)}" if isinstance(first, str) else ""
        names.append(f"{base}_{number:0>{digits}}{suffix}")
    return tuple(names)


def slots(mro: tuple[Linked, ...], test: str, expansions: dict[int, Expansion]) -> list[Slot]:
    """Return the functions that a class has for a test, of which some definition is expanded.

    Args:
        mro: The classes of a class's MRO that take part.
        test: Name of the test, without a parameter's suffix.
        expansions: How a function is expanded, by ``id`` of the function.
    """
    child = re.compile(rf"{re.escape(test)}_\d+(?:_\w*)?")
    found: dict[str, Slot] = {}
    for definer in mro:
        for name, binding in definer.facts.members.items():
            if name.startswith(test) and child.fullmatch(name):
                found.setdefault(name, Slot(name, definer, binding))
        own = definer.facts.members.get(test)
        if own is None:
            continue
        expanded = expansions.get(id(own))
        if expanded is None:
            found.setdefault(test, Slot(test, definer, own))
            continue
        left = own._replace(decorators=expanded.outer, body="", empty=False) if isinstance(own, Function) else own
        found.setdefault(test, Slot(test, definer, left, is_leftover=True))
        for name in expanded.names:
            found.setdefault(name, Slot(name, definer, own))
    return list(found.values())

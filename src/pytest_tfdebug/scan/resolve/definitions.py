"""What a definition does to a test, in any class that has it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import libcst as cst

from pytest_tfdebug.scan.read import syntax
from pytest_tfdebug.scan.read.bindings import Binding, BoundFunction, BoundValue, Class, Decorator
from pytest_tfdebug.scan.read.outline import squeeze
from pytest_tfdebug.scan.read.syntax import UNKNOWN, Unknown
from pytest_tfdebug.scan.resolve.classes import Linked
from pytest_tfdebug.scan.resolve.conditions import NOTHING, UNCONDITIONAL, Applied, GuardedSkip, State, judged
from pytest_tfdebug.scan.resolve.values import Evaluator, Scope
from pytest_tfdebug.scan.resolve.workspace import Found, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.scan.resolve.decorators import Decorators

#: Decorators whose result is no function, so that pytest does not collect it, and attributes of a property.
_NO_FUNCTION = frozenset({"property", "cached_property", "classproperty"})
_ACCESSORS = frozenset({"setter", "deleter", "getter"})
#: Kinds of expression whose value is never a function.
_NO_CALLABLE = (
    cst.Comparison, cst.ConcatenatedString, cst.Dict, cst.FormattedString, cst.List, cst.Set, cst.Tuple,
)  # fmt: skip


#: The skips of a function that is not followed, or the function itself with the class that defines it.
_Target: TypeAlias = "tuple[tuple[GuardedSkip, ...], tuple[Linked, Binding] | None]"


@dataclass(frozen=True, eq=False)
class Definition:
    """What a definition does to a test in any class.

    ``state`` is what it gives the test without its body, and ``function`` the one whose body may change that, if any.
    ``method`` holds the skips of its decorators. ``outcomes``, by the identity of the body's skips, grows.
    """

    definer: Linked
    state: State | None = None
    function: BoundFunction | None = None
    method: Applied = NOTHING
    outcomes: dict[int, State | None] = field(default_factory=dict)


class Definitions:
    """Reads definitions, each once.

    Attributes:
        of: Returns what a class's binding of a test's name does; other decorators may be given than it has.
        variants: Returns the name and definition of each function that the classes of an MRO have for a test.
    """

    def __init__(self, workspace: Workspace, evaluator: Evaluator, decorators: Decorators) -> None:
        self._workspace, self._evaluator, self._decorators = workspace, evaluator, decorators
        self._expansion = cache(partial(_expansion, workspace, evaluator))
        self.of, self.variants = cache(self._read), cache(self._variants)

    def _variants(self, test: str, mro: tuple[Linked, ...]) -> list[tuple[str, Definition]]:
        own = {definer: definer.facts.members[test] for definer in mro if test in definer.facts.members}
        expansions = {definer: self._expansion(definer, member) for definer, member in own.items()}
        if not any(expansions.values()):
            return [(test, self.of(test, *next(iter(own.items()))))]
        found: dict[str, Definition | None] = {}
        for definer in mro:
            slots: list[tuple[str, Binding, tuple[Decorator, ...] | None]]
            slots = [(name, each, None) for name, each in definer.facts.members.items() if _is_numbered(name, test)]
            expanded = expansions.get(definer)
            if expanded is not None:
                found.setdefault(test, self._leftover(definer, expanded.outer))
                slots += [(name, own[definer], expanded.inner) for name in expanded.names]
            elif definer in own:
                slots.append((test, own[definer], None))
            found.update((slot[0], self.of(slot[0], definer, *slot[1:])) for slot in slots if slot[0] not in found)
        return [(name, definition) for name, definition in found.items() if definition is not None]

    def _leftover(self, definer: Linked, decorators: tuple[Decorator, ...]) -> Definition | None:
        """Return what the ``None`` does that ``expand`` leaves under the name, of which a skip or mark makes a test."""
        method = self._on_method(definer, decorators)
        is_marked = any(self._decorators.is_mark(definer.file, decorator) for decorator in decorators)
        return Definition(definer, judged(method)) if is_marked or method.skips else None

    def _read(
        self, name: str, definer: Linked, binding: Binding, decorators: tuple[Decorator, ...] | None = None
    ) -> Definition:
        seen: set[int] = set()
        while isinstance(binding, BoundValue) and id(binding) not in seen:  # names may be bound to each other
            seen.add(id(binding))
            target = self._function(definer, binding)
            if target is None:
                reason = f"{name} = {squeeze(binding.text)}" if binding.text else ""
                return _without_body(definer, "vanished", binding, reason)
            skips, found = target
            if found is None:
                return Definition(definer, judged(Applied("decorator", skips)))
            definer, binding = found
        if not isinstance(binding, BoundFunction):
            return Definition(definer)
        decorators = binding.decorators if decorators is None else decorators
        if any(makes_no_function(decorator.text) for decorator in decorators):
            return _without_body(definer, "vanished", binding)
        method = self._on_method(definer, decorators)
        state = judged(method)
        if state is None and (binding.is_empty or (why := self._why_it_cannot_fail(definer, binding, decorators))):
            return _without_body(definer, "empty", binding, "" if binding.is_empty else why)
        return Definition(definer, state, None if state is not None and state.is_skipped else binding, method)

    def _why_it_cannot_fail(self, definer: Linked, function: BoundFunction, decorators: tuple[Decorator, ...]) -> str:
        expects = self._decorators.expects_failure(definer.file, decorators)
        return "unittest.expectedFailure" if expects else function.what_hides

    def _on_method(self, definer: Linked, decorators: Iterable[Decorator]) -> Applied:
        found = (self._decorators.of(definer.file, decorator, definer.facts) for decorator in decorators)
        return Applied("decorator", tuple(skip for skips in found for skip in skips))

    def _function(self, definer: Linked, value: BoundValue) -> _Target | None:
        node = self._workspace.node(definer.file, value)
        is_not = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not)
        is_attribute = isinstance(node, cst.Call) and makes_no_function(syntax.dotted(node.func))
        if isinstance(node, _NO_CALLABLE) or is_not or is_attribute or syntax.constant(node) is not UNKNOWN:
            return None
        if isinstance(node, cst.Call):
            skips = self._decorators.skips(node, Scope(definer.file))
            return tuple(each._replace(path=definer.file.path, line=value.line) for each in skips), None
        dotted = syntax.dotted(node)
        return self._referred(definer, value, dotted) if dotted else ((), None)

    def _referred(self, definer: Linked, value: BoundValue, dotted: str) -> _Target | None:
        member = value.previous if value.previous is not None else definer.facts.members.get(dotted)
        if member is not None and member is not value:
            return (), (definer, member)
        head, _, name = dotted.rpartition(".")
        named = (base for base in definer.mro if head and base.name == head.rpartition(".")[2])
        base = next((base for base in named if name in base.facts.members), None)
        if base is not None:
            return (), (base, base.facts.members[name])
        symbol = self._workspace.resolve(definer.file, dotted)
        if isinstance(symbol, Found) and isinstance(symbol.binding, BoundValue):
            known = self._evaluator.bound(symbol.file, symbol.binding)
            return ((), None) if isinstance(known, Unknown) else None
        if isinstance(symbol, Found) and isinstance(symbol.binding, BoundFunction):
            return (), (Linked(symbol.file, Class.nothing()), symbol.binding)
        return (), None


def _without_body(definer: Linked, state: str, binding: BoundFunction | BoundValue, reason: str = "") -> Definition:
    """Return a definition that leaves nothing to run under the test's name."""
    return Definition(definer, State(state, state, reason, UNCONDITIONAL, definer.file.path, binding.line))


def _is_numbered(name: str, test: str) -> bool:
    """Tell whether a name is one that ``expand`` may give a test: its own and a number."""
    return name.startswith(f"{test}_") and name[len(test) + 1 :].partition("_")[0].isdigit()


def makes_no_function(decorator: str) -> bool:
    """Tell whether a decorator, by its source, makes an attribute of a method."""
    head, _, name = decorator.rpartition(".")
    return name in _NO_FUNCTION or (name in _ACCESSORS and head.isidentifier())


def is_test(binding: Binding | None) -> bool:
    """Tell whether a definition in a mixin is a test: a function, and nothing that turns it into an attribute."""
    return isinstance(binding, BoundFunction) and not any(makes_no_function(each.text) for each in binding.decorators)


class _Expansion(NamedTuple):
    """How ``expand`` multiplies a function: the names it gives, or what they depend on, and what decorates it still.

    It leaves ``None`` under the name itself, so that a subclass that defines it again adds a test and removes none.
    """

    names: tuple[str, ...]
    inner: tuple[Decorator, ...]
    outer: tuple[Decorator, ...]


def _expansion(
    workspace: Workspace, evaluator: Evaluator, definer: Linked, function: Binding | None
) -> _Expansion | None:
    """Return how ``parameterized.expand`` multiplies a function of a class, or None where it does not."""
    if not isinstance(function, BoundFunction):
        return None
    for index, decorator in enumerate(function.decorators):
        node = workspace.node(definer.file, decorator) if "expand" in decorator.text else None
        callee = node.func if isinstance(node, cst.Call) else None
        callee = callee.func if isinstance(callee, cst.Call) else callee
        if callee is not None and syntax.dotted(callee).rpartition(".")[2] == "expand":
            names = _names(function.name, node, Scope(definer.file), evaluator)
            return _Expansion(names, function.decorators[index + 1 :], function.decorators[:index])
    return None


def _names(base: str, node: Any, scope: Scope, evaluator: Evaluator) -> tuple[str, ...]:
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
    first, *inner = "".join(marks).split(" ")
    return "_".join([first, *filter(None, inner[:-1]), *inner[-1:]])

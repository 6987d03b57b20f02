"""What a definition does to a test, in any class that has it."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import libcst as cst

from pytest_tfdebug.scan import expanded, syntax
from pytest_tfdebug.scan.bindings import Binding, Class, Decorator, Function, Value
from pytest_tfdebug.scan.classes import Linked
from pytest_tfdebug.scan.conditions import UNCONDITIONAL
from pytest_tfdebug.scan.outline import squeeze
from pytest_tfdebug.scan.states import NOTHING, Applied, Skip, State, judged
from pytest_tfdebug.scan.syntax import UNKNOWN, Unknown
from pytest_tfdebug.scan.values import Evaluator, Scope
from pytest_tfdebug.scan.workspace import Found, Workspace

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.scan.decorators import Decorators
    from pytest_tfdebug.scan.expanded import Slot

#: Decorators whose result is no function, so that pytest does not collect it, and attributes of a property.
_NO_FUNCTION = frozenset({"property", "cached_property", "classproperty"})
_ACCESSORS = frozenset({"setter", "deleter", "getter"})
#: Kinds of expression whose value is never a function.
_NO_CALLABLE = (
    cst.Comparison, cst.ConcatenatedString, cst.Dict, cst.FormattedString, cst.List, cst.Set, cst.Tuple,
)  # fmt: skip


#: The skips of a function that is not followed, or the function itself with the class that defines it.
_Target: TypeAlias = "tuple[tuple[Skip, ...], tuple[Linked, Binding] | None]"


class Definition(NamedTuple):
    """What a definition does to a test in any class; ``states`` grows with the outcomes of its body.

    ``state`` is the state that its decorators give it, and ``always`` the same if its body cannot change it.
    """

    definer: Linked
    states: dict[int, State | None]
    function: Function | None = None
    method: Applied = NOTHING
    vanished: State | None = None
    always: State | None = None
    state: State | None = None
    empty: State | None = None


class Definitions:
    """Reads definitions, each once.

    Attributes:
        expansion: Returns how ``parameterized.expand`` multiplies a definition, or None where it does not.
    """

    def __init__(self, workspace: Workspace, evaluator: Evaluator, decorators: Decorators) -> None:
        self._workspace, self._evaluator, self._decorators = workspace, evaluator, decorators
        self._known: dict[tuple[Any, ...], Definition] = {}
        self.expansion = cache(partial(expanded.expansion, workspace, evaluator))

    def of(
        self,
        name: str,
        definer: Linked,
        binding: Binding,
        decorators: tuple[Decorator, ...] | None = None,
        is_leftover: bool = False,  # noqa: FBT001, FBT002 - a slot's
    ) -> Definition:
        """Return what a class's binding of a test's name does; ``decorators`` replace its own where they are given."""
        key = name, definer, id(binding), decorators
        if key not in self._known:
            found = self._read(name, definer, binding, decorators)
            self._known[key] = found._replace(function=None, empty=None) if is_leftover else found
        return self._known[key]

    def is_collected(self, leftover: Slot) -> bool:
        """Tell whether a decorator outside ``expand`` has made the ``None`` that it leaves callable.

        ``unittest.skip`` makes a function of it, and a mark of pytest is itself callable: both are then collected.
        """
        definer, decorators = leftover.definer, leftover.decorators or ()
        is_marked = any(self._decorators.is_mark(definer.file, decorator) for decorator in decorators)
        return is_marked or bool(self._on_method(definer, decorators).skips)

    def _read(
        self, name: str, definer: Linked, binding: Binding, decorators: tuple[Decorator, ...] | None
    ) -> Definition:
        seen: set[int] = set()
        while isinstance(binding, Value):
            if id(binding) in seen:  # names that are bound to each other
                return Definition(definer, {})
            seen.add(id(binding))
            target = self._function(definer, binding)
            if target is None:
                reason = f"{name} = {squeeze(binding.text)}" if binding.text else ""
                return _vanished(definer, reason, binding.line)
            skips, found = target
            if found is None:
                return _defined(definer, None, Applied("decorator", skips), None)
            definer, binding = found
        if not isinstance(binding, Function):
            return Definition(definer, {})
        decorators = binding.decorators if decorators is None else decorators
        if any(makes_no_function(decorator.text) for decorator in decorators):
            return _vanished(definer, "", binding.line)
        method = self._on_method(definer, decorators)
        empty = None
        if not method.skips and binding.is_empty:
            empty = State("empty", "empty", "", UNCONDITIONAL, definer.file.path, binding.line)
        return _defined(definer, binding, method, empty)

    def _on_method(self, definer: Linked, decorators: Iterable[Decorator]) -> Applied:
        found = (self._decorators.of(definer.file, decorator, definer.facts) for decorator in decorators)
        return Applied("decorator", tuple(skip for skips in found for skip in skips))

    def _function(self, definer: Linked, value: Value) -> _Target | None:
        """Return the function that a name is bound to by assignment; None if it is bound to no function."""
        node = self._workspace.node(definer.file, value)
        if node is None:
            return (), None
        is_not = isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Not)
        if isinstance(node, _NO_CALLABLE) or is_not or syntax.constant(node) is not UNKNOWN:
            return None
        if isinstance(node, cst.Call):
            if makes_no_function(syntax.dotted(node.func)):
                return None
            skips = self._decorators.skips(node, Scope(definer.file))
            return tuple(each._replace(path=definer.file.path, line=value.line) for each in skips), None
        dotted = syntax.dotted(node)
        return self._referred(definer, value, dotted) if dotted else ((), None)

    def _referred(self, definer: Linked, value: Value, dotted: str) -> _Target | None:
        member = value.previous if value.previous is not None else definer.facts.members.get(dotted)
        if member is not None and member is not value:
            return (), (definer, member)
        head, _, name = dotted.rpartition(".")
        for base in definer.mro:
            if head and base.name == head.rpartition(".")[2] and name in base.facts.members:
                return (), (base, base.facts.members[name])
        symbol = self._workspace.resolve(definer.file, dotted)
        if isinstance(symbol, Found) and isinstance(symbol.binding, Value):
            known = self._evaluator.bound(symbol.file, symbol.binding)
            return ((), None) if isinstance(known, Unknown) else None
        if isinstance(symbol, Found) and isinstance(symbol.binding, Function):
            return (), (Linked(symbol.file, Class.nothing()), symbol.binding)
        return (), None


def _vanished(definer: Linked, reason: str, line: int) -> Definition:
    """Return a definition that leaves no function under the test's name."""
    state = State("vanished", "vanished", reason, UNCONDITIONAL, definer.file.path, line)
    return Definition(definer, {}, vanished=state)


def _defined(definer: Linked, function: Function | None, method: Applied, empty: State | None) -> Definition:
    """Return a definition with the state that its decorators give it."""
    state = judged([method])
    always = state if state is not None and state.state == "skipped" else None
    return Definition(definer, {}, function, method, None, always, state, empty)


def makes_no_function(decorator: str) -> bool:
    """Tell whether a decorator, by its source, makes an attribute of a method."""
    head, _, name = decorator.rpartition(".")
    return name in _NO_FUNCTION or (name in _ACCESSORS and head.isidentifier())


def is_test(binding: Binding | None) -> bool:
    """Tell whether a definition in a mixin is a test: a function, and nothing that turns it into an attribute."""
    return isinstance(binding, Function) and not any(makes_no_function(each.text) for each in binding.decorators)

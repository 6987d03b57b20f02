"""Classes linked to their bases across files, in C3 order."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import libcst as cst

from pytest_tfdebug.scan.errors import Unresolved
from pytest_tfdebug.scan.read import syntax
from pytest_tfdebug.scan.read.bindings import Binding, BoundFunction, BoundValue, Class
from pytest_tfdebug.scan.resolve.workspace import External, File, Found, Workspace

#: Something in a class that an outcome may depend on: its kind and its arguments.
Dependency: TypeAlias = "tuple[Any, ...]"

#: Classes outside the repository that are ``unittest.TestCase`` and bring no tests, by name.
_KNOWN_CASES = frozenset({
    "AccelerateTestCase", "AsyncTestCase", "DjangoTestCase", "IsolatedAsyncioTestCase", "MultiProcessTestCase",
    "TempDirTestCase", "TestCase", "TestCasePlus", "TransactionTestCase",
})  # fmt: skip
#: How the names of such classes end.
_TEST_CASES = ("TestCase", "TestCasePlus")
#: Classes outside the repository that bring no tests, by full name.
_NEUTRAL = frozenset({"abc.ABC", "typing.Generic", "typing.Protocol", "typing_extensions.Protocol", "enum.Enum"})
_ABSTRACT = frozenset({"abstractmethod", "abstractproperty", "abstractclassmethod", "abstractstaticmethod"})
_BUILTIN = frozenset({"object", "Exception", "dict", "list", "tuple", "str", "int", "float"})


class Linked:
    """A class with its bases.

    Attributes:
        mro: The classes of the repository that it is made of, itself first.
        externals: The full names of the bases outside the repository.
        is_test_case: Whether ``unittest.TestCase`` is anywhere in the bases.
        is_closed: Whether all bases are known, so that an attribute that none of them binds is not there.
        inherited: The definition that Python picks for each name that the bases bind.
    """

    def __init__(
        self,
        file: File,
        facts: Class,
        bases: tuple[Linked, ...] = (),
        externals: frozenset[str] = frozenset(),
        inherited: dict[str, tuple[Linked, Binding]] | None = None,
    ) -> None:
        self.file, self.facts, self.name = file, facts, facts.name
        self.mro: tuple[Linked, ...] = (self, *bases)
        self.externals, self.inherited = externals, inherited or {}
        self.is_test_case = any(name.endswith(_TEST_CASES) for name in externals)
        self.is_closed = all(map(is_known, externals))

    def find(self, name: str) -> tuple[Linked, Binding] | None:
        """Return the definition that Python picks for a name."""
        own = self.facts.members.get(name)
        return self.inherited.get(name) if own is None else (self, own)

    def helper(self, name: str) -> tuple[Linked, BoundFunction] | None:
        """Return the method that Python picks for a name."""
        definer, member = self.find(name) or (self, None)
        return (definer, member) if isinstance(member, BoundFunction) else None

    def after(self, definer: Linked, name: str) -> tuple[Linked, Binding] | None:
        """Return the definition that ``super()`` picks in a class of the MRO."""
        following = self.mro[self.mro.index(definer) + 1 :] if definer in self.mro else ()
        return next(((cls, cls.facts.members[name]) for cls in following if name in cls.facts.members), None)

    def writes(self, name: str) -> bool:
        """Tell whether a method of the class or its bases sets an attribute of this name."""
        return any(name in cls.facts.writes for cls in self.mro)

    @property
    def is_abstract(self) -> bool:
        """Whether it has no instances because abstract methods are left in it."""
        metaclasses = (found for cls in self.mro for found in cls.facts.metaclasses)
        if not any(name.rpartition(".")[2] in {"ABC", "ABCMeta"} for name in (*self.externals, *metaclasses)):
            return False
        members = self.inherited | {name: (self, member) for name, member in self.facts.members.items()}
        return any(_is_abstract(member) for _, member in members.values())


def _inherited(bases: tuple[Linked, ...]) -> dict[str, tuple[Linked, Binding]]:
    """Return what a class inherits; of one that has one base, what that inherits is found once in a long chain."""
    base = bases[0] if bases and bases[0].mro == bases else None
    found = base.inherited if base else {}
    for cls in (base,) if base else reversed(bases):
        if cls.facts.members:
            found = found | {name: (cls, member) for name, member in cls.facts.members.items()}
    return found


class Linker:
    """Links classes, each once."""

    def __init__(self, workspace: Workspace) -> None:
        self.unresolved: dict[Unresolved, None] = {}
        self._workspace = workspace
        self._linked: dict[tuple[str, int, str], Linked | None] = {}
        self._inherited = cache(_inherited)

    @property
    def classes(self) -> list[Linked]:
        """The classes that were linked."""
        return [cls for cls in self._linked.values() if cls is not None]

    def link(self, found: Found) -> Linked | None:
        """Return a class with its bases; None while it is being linked, as a class cannot be its own base."""
        file, facts = found
        if not isinstance(facts, Class):
            return None
        key = (file.path, facts.line, facts.name)
        if key not in self._linked:
            self._linked[key] = None
            try:
                bases = [(node, self._base(file, node)) for node in facts.bases]
            except RecursionError:
                del self._linked[key]
                raise
            inside = [base for _, base in bases if isinstance(base, Linked)]
            outside = {base: node for node, base in bases if isinstance(base, str)}
            for base, node in outside.items():
                if not is_known(base):
                    self.unresolved[Unresolved(syntax.code(node), facts.name, *key[:2])] = None
            externals = frozenset(outside).union(*(base.externals for base in inside))
            following = _following(inside)
            self._linked[key] = Linked(file, facts, following, externals, self._inherited(following))
        return self._linked[key]

    def _base(self, file: File, node: Any) -> Linked | str | None:
        """Return a base, or its full name where it is not in the repository; None where it is no class."""
        if isinstance(node, cst.IfExp):  # Mixin if is_available() else object
            branches = [self._base(file, branch) for branch in (node.body, node.orelse)]
            return next((branch for branch in branches if isinstance(branch, Linked)), branches[0])
        if isinstance(node, cst.Subscript):  # Generic[T]
            return self._base(file, node.value)
        dotted = syntax.dotted(node)
        symbol = self._workspace.resolve(file, dotted) if dotted else None
        if isinstance(symbol, Found) and isinstance(symbol.binding, Class):
            return self.link(symbol)
        if isinstance(symbol, Found) and isinstance(symbol.binding, BoundValue) and symbol.binding.text:
            value = self._workspace.node(symbol.file, symbol.binding)
            return None if syntax.dotted(value) == dotted else self._base(symbol.file, value)
        if isinstance(symbol, External):
            return symbol.name
        return dotted or ("" if isinstance(node, cst.Call) else None)


def _is_abstract(binding: Binding) -> bool:
    decorators = binding.decorators if isinstance(binding, BoundFunction) else ()
    return any(decorator.text.rpartition(".")[2] in _ABSTRACT for decorator in decorators)


def is_known(name: str) -> bool:
    """Tell whether a base class outside the repository is one whose tests, if any, are known."""
    last = name.rpartition(".")[2]
    return last in _KNOWN_CASES or name in _NEUTRAL or name in _BUILTIN or name.startswith("builtins.")


def _following(bases: list[Linked]) -> tuple[Linked, ...]:
    """Return what follows a class with these bases in its MRO; depth first where Python would refuse the class."""
    if len(bases) == 1:
        return bases[0].mro
    order: list[Linked] = []
    left = [base.mro for base in bases] + [tuple(bases)]
    while left := [sequence for sequence in left if sequence]:
        behind = {cls for sequence in left for cls in sequence[1:]}
        head = next((sequence[0] for sequence in left if sequence[0] not in behind), None)
        if head is None:
            return tuple(dict.fromkeys(cls for base in bases for cls in base.mro))
        order.append(head)
        left = [sequence[1:] if sequence[0] is head else sequence for sequence in left]
    return tuple(order)

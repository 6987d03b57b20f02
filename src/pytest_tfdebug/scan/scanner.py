"""From a repository to the state of every common test in every model's test classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.scan.classes import Linked, Linker, is_abstract, is_abstract_base
from pytest_tfdebug.scan.effects import Decorators
from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.facts import Class, Function, Import, Value
from pytest_tfdebug.scan.layout import Place, is_owned, place
from pytest_tfdebug.scan.runner import Runner
from pytest_tfdebug.scan.states import Decided, States, is_test
from pytest_tfdebug.scan.values import Evaluator
from pytest_tfdebug.scan.workspace import Found, Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.scan.classes import Kin, Unresolved
    from pytest_tfdebug.scan.tree import Tree
    from pytest_tfdebug.scan.workspace import Workspace

#: Mixins that the report calls by another name.
ORIGINS = {"ModelTesterMixin": "common", "GenerationTesterMixin": "GenerationMixin"}


class ClassTests(NamedTuple):
    """A test class that pytest collects for a model, and what is decided of the common tests that it has."""

    model: str
    name: str
    path: str
    decided: Decided


class Mixin(NamedTuple):
    """A class that defines tests for others to inherit: what the report calls it, the length of its MRO, its tests."""

    origin: str
    size: int
    tests: frozenset[str]


class Scan(NamedTuple):
    """What a scan found."""

    classes: list[ClassTests]
    mixins: set[Mixin]
    bad: dict[str, str]
    unresolved: list[Unresolved]

    def __add__(self, other: Scan) -> Scan:  # type: ignore[override]
        """Return what two scans of parts of the model test files found together."""
        return Scan(
            [*self.classes, *other.classes],
            self.mixins | other.mixins,
            {**self.bad, **other.bad},
            list(dict.fromkeys((*self.unresolved, *other.unresolved))),
        )

    def origin(self, test: str) -> str:
        """Return where a test comes from: the mixin at the root of those that define it."""
        found = [(mixin.size, mixin.origin) for mixin in self.mixins if test in mixin.tests]
        names = {origin for _, origin in found}
        return next((name for name in ORIGINS.values() if name in names), min(found)[1])


def model_files(tree: Tree) -> list[Place]:
    """Return the model test files of a repository.

    Raises:
        ScanError: If there are none.
    """
    for under in ("tests/models", "tests", ""):
        if under and not tree.is_dir(under):
            continue
        places = [found for path in tree.files(under) if (found := place(path)) is not None]
        if places:
            return sorted(places)
    raise ScanError(
        "No model tests here: no file such as tests/models/bert/test_modeling_bert.py; "
        "run in the root of a repository or name it with --repo."
    )


class Scanner:
    """Scans files of a workspace.

    Args:
        workspace: The files of a repository.
        places: All of its model test files.
    """

    def __init__(self, workspace: Workspace, places: list[Place]) -> None:
        self._workspace = workspace
        self._owned = frozenset(found.owned for found in places)
        self._linker = Linker(workspace)
        self._evaluator = Evaluator(workspace)
        decorators = Decorators(workspace, self._evaluator)
        self._states = States(workspace, self._evaluator, decorators, Runner(decorators, self._evaluator))
        self._mixin_tests: dict[Linked, frozenset[str]] = {}
        self._kin_tests: dict[Kin, frozenset[str]] = {}
        self._used: set[Linked] = set()

    def scan(self, places: Iterable[Place], test: str | None) -> Scan:
        """Return the states of one test, or of every common test, in some of the model test files."""
        classes = [found for where in places for found in self._file(where, test)]
        mixins = {
            Mixin(ORIGINS.get(cls.name, cls.name), len(cls.mro), tests)
            for cls, tests in self._mixin_tests.items()
            if tests
        }
        return Scan(classes, mixins, self._workspace.bad, self._unresolved())

    def _unresolved(self) -> list[Unresolved]:
        """Return the base classes of test classes that are neither in the repository nor known by name."""
        used = {(cls.source.path, cls.head.line, cls.name) for cls in self._used}
        return [found for found in self._linker.unresolved if (found.path, found.line, found.cls) in used]

    def _file(self, where: Place, test: str | None) -> Iterator[ClassTests]:
        source = self._workspace.source(where.path)
        if source is None:
            return
        on_module = self._states.on_module(source)
        for name, found in self._classes(source, set()):
            cls = None if self._is_alone(found) else self._linker.link(found)
            if cls is None:
                continue
            if cls.kin.is_test_case or name.startswith("Test"):
                self._used.update(cls.mro)
            tests = self._tests(cls) | self._inherited(cls.kin)
            if not tests or not self._is_collected(name, cls):
                continue
            wanted = tests if test is None else tests & {test}
            yield ClassTests(where.model, name, where.path, self._states.of(cls, wanted, on_module))

    def _classes(self, source: Source, seen: set[str]) -> Iterator[tuple[str, Found]]:
        """Yield the classes in a module's namespace, imported ones too, as pytest goes through it."""
        seen.add(source.path)
        for name, binding in source.facts.names.items():
            found = self._bound(source, name, binding)
            if found is not None:
                yield name, found
        for star in source.facts.stars:
            module = self._workspace.module(source.path, star)
            if isinstance(module, Source) and module.path not in seen and _is_of_tests(module.path):
                others = self._classes(module, seen)
                yield from ((name, found) for name, found in others if name not in source.facts.names)

    def _bound(self, source: Source, name: str, binding: Class | Function | Value | Import) -> Found | None:
        if isinstance(binding, Class):
            return Found(source, binding)
        if isinstance(binding, Function):
            return None
        if isinstance(binding, Value) and not binding.text.replace(".", "").isidentifier():
            return None
        if isinstance(binding, Import):
            path = self._workspace.module_path(source.path, binding.module) if binding.name else None
            if path is None or not _is_of_tests(path):
                return None
            module = self._workspace.source(path)
            symbol = self._workspace.exported(module, binding.name) if module is not None else None
        else:
            symbol = self._workspace.lookup(source, name)
        return symbol if isinstance(symbol, Found) and isinstance(symbol.binding, Class) else None

    def _is_collected(self, name: str, cls: Linked) -> bool:
        """Tell whether pytest collects a class under a name."""
        marked = self._evaluator.attribute(cls, "__test__") if cls.find("__test__") else None
        if marked is False:
            return False
        if cls.kin.is_test_case:
            return not _is_abstract(cls)
        if not name.startswith("Test") and marked is not True:
            return False
        return cls.find("__init__") is None and cls.find("__new__") is None

    def _is_alone(self, found: Found) -> bool:
        """Tell whether a class has no bases and belongs to a model, so that it has no common test."""
        has_bases = isinstance(found.binding, Class) and bool(found.binding.bases)
        return not has_bases and is_owned(found.source.path, self._owned)

    def _tests(self, cls: Linked) -> frozenset[str]:
        """Return the tests that a class defines for others to inherit; none if it belongs to a model."""
        if cls not in self._mixin_tests:
            names: Iterable[str] = ()
            if not is_owned(cls.source.path, self._owned):
                members = cls.facts.members.items()
                names = (name for name, member in members if name.startswith("test_") and is_test(member))
            self._mixin_tests[cls] = frozenset(names)
        return self._mixin_tests[cls]

    def _inherited(self, kin: Kin) -> frozenset[str]:
        """Return the tests that the bases of a class define for others to inherit."""
        if kin not in self._kin_tests:
            self._kin_tests[kin] = frozenset().union(*map(self._tests, kin.mro))
        return self._kin_tests[kin]


def _is_of_tests(path: str) -> bool:
    """Tell whether a module is one of tests, whose classes pytest may collect."""
    return "/tests/" in f"/{path}" or "/test/" in f"/{path}"


def _is_abstract(cls: Linked) -> bool:
    """Tell whether a class has abstract methods left and a metaclass that counts them."""
    own = (value for key, value in cls.head.keywords if key == "metaclass")
    if not (cls.kin.counts_abstract or any(map(is_abstract_base, own))):
        return False
    members = cls.facts.members
    return any(map(is_abstract, members.values())) or not cls.kin.abstract <= members.keys()

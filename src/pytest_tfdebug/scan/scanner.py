"""From a repository to the state of every common test in every model's test classes.

Models are scanned one by one, in several processes where that pays.
"""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from contextlib import suppress
from functools import cache, cached_property
from typing import TYPE_CHECKING, TypeVar

from pytest_tfdebug.scan.read.bindings import BoundFunction, BoundValue, Class, Import
from pytest_tfdebug.scan.read.layout import ModelTestFile, Work, is_owned, model_files
from pytest_tfdebug.scan.read.tree import DiskTree, Tree
from pytest_tfdebug.scan.resolve.bodies import Runner
from pytest_tfdebug.scan.resolve.class_states import ClassStates
from pytest_tfdebug.scan.resolve.classes import Linked, Linker
from pytest_tfdebug.scan.resolve.decorators import Decorators
from pytest_tfdebug.scan.resolve.definitions import is_test
from pytest_tfdebug.scan.resolve.values import Evaluator
from pytest_tfdebug.scan.resolve.workspace import File, Found, Workspace
from pytest_tfdebug.scan.result import ORIGINS, ClassTests, Mixin, ModelScan, PartialScan, result

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.scan.result import ScanResult


class Scanner:
    """Scans the models of a repository, and keeps what it has read; ``owned`` are the paths of one model alone."""

    def __init__(self, work: Work, tree: Tree) -> None:
        paths = {where.path for where in work.places}
        self.workspace = workspace = Workspace(tree, paths, is_checked=work.is_checked)
        self.owned = frozenset(found.owned for found in work.places)
        self.linker = Linker(workspace)
        self._evaluator = Evaluator(workspace)
        self.decorators = Decorators(workspace, self._evaluator)
        self.runner = Runner(workspace, self.decorators, self._evaluator)
        self.states = ClassStates(workspace, self._evaluator, self.decorators, self.runner)
        self._tree, self._test, self._by_model = tree, work.test, work.by_model()
        self._is_by_name = work.is_by_name
        self._tests, self._inherited = cache(self._tests_of), cache(self._inherited_of)
        self._linked: dict[Linked, bool] = {}  # classes of the model that is scanned, and whether they are tests

    def scan(self, models: Iterable[str] | None = None) -> PartialScan:
        """Return what is found in some models, or all."""
        found = [self._scanned(each, self._by_model[each]) for each in (self._by_model if models is None else models)]
        return PartialScan(found, self.workspace.bad, self._tree.record)

    def _scanned(self, model: str, places: list[ModelTestFile]) -> ModelScan:
        """Return the states of one test, or of all, in a model's files; one that cannot be followed is noted as bad."""
        classes: list[ClassTests] = []
        self._linked = {}
        for where in places:
            try:
                found = list(self._file(where))
            except RecursionError as error:
                self.workspace.note_bad(where.path, error)
            if where.path not in self.workspace.bad:
                classes += found
        mixins = {
            Mixin(ORIGINS.get(cls.name, cls.name), len(cls.mro), tests)
            for cls in set().union(*(each.mro for each in self._linked))
            if (tests := self._tests(cls))
        }
        ordered = sorted(mixins, key=lambda mixin: (mixin.origin, mixin.size, sorted(mixin.tests)))
        linked = set().union(*(cls.mro for cls, is_test_class in self._linked.items() if is_test_class))
        used = {(cls.file.path, cls.facts.line, cls.name) for cls in linked}
        unresolved = [base for base in self.linker.unresolved if (base.path, base.line, base.cls) in used]
        unread = [line for where in places for line in self.workspace.unread.get(where.path, ())]
        return ModelScan(model, classes, ordered, unresolved, unread)

    def _file(self, where: ModelTestFile) -> Iterator[ClassTests]:
        file = self.workspace.file(where.path)
        if file is None:
            return
        on_module = self.states.on_module(file)
        for name, found in self._classes(file, set()):
            is_alone = not getattr(found.binding, "has_bases", False) and is_owned(found.file.path, self.owned)
            # a class of a model without bases has no common test
            cls = None if is_alone and not self._is_by_name else self.linker.link(found)
            if cls is None:
                continue
            self._linked[cls] = cls.is_test_case or name.startswith("Test") or self._linked.get(cls, False)
            tests = self._tests(cls) | self._inherited(cls.mro[1:])
            if not tests or not self._is_collected(name, cls):
                continue
            wanted = tests if self._test is None else tests & {self._test}
            yield ClassTests(where.model, name, self.states.of(cls, wanted, on_module))

    def _classes(self, file: File, seen: set[str]) -> Iterator[tuple[str, Found]]:
        """Yield the classes in a module's namespace, imported ones too, as pytest goes through it."""
        seen.add(file.path)
        for name, binding in file.module.names.items():
            found = self._bound(file, name, binding)
            if found is not None:
                yield name, found
        for star in file.module.stars:
            module = self.workspace.module(file.path, star)
            if isinstance(module, File) and module.path not in seen and _is_of_tests(module.path):
                others = self._classes(module, seen)
                yield from ((name, found) for name, found in others if name not in file.module.names)

    def _bound(self, file: File, name: str, binding: Class | BoundFunction | BoundValue | Import) -> Found | None:
        symbol = None
        if isinstance(binding, Import):
            path = self.workspace.module_path(file.path, binding.module) if binding.name else None
            module = self.workspace.file(path) if path is not None and _is_of_tests(path) else None
            symbol = self.workspace.exported(module, binding.name) if module is not None else None
        elif not isinstance(binding, BoundValue) or binding.text.replace(".", "").isidentifier():
            symbol = self.workspace.lookup(file, name)
        return symbol if isinstance(symbol, Found) and isinstance(symbol.binding, Class) else None

    def _is_collected(self, name: str, cls: Linked) -> bool:
        marked = self._evaluator.attribute(cls, "__test__") if cls.find("__test__") else None
        if marked is False or cls.is_test_case:
            return marked is not False and not cls.is_abstract
        is_named = name.startswith("Test") or marked is True
        return is_named and cls.find("__init__") is None and cls.find("__new__") is None

    def _tests_of(self, cls: Linked) -> frozenset[str]:
        """Return the tests that a class defines for others to inherit, or, of a model, under names that others use."""
        if is_owned(cls.file.path, self.owned):
            return self._shared.intersection(cls.facts.members) if self._is_by_name else frozenset()
        return _tests_in(cls.facts)

    @cached_property
    def _shared(self) -> frozenset[str]:
        """The names of tests that several models define, where these are what the models have in common."""
        count: Counter[str] = Counter()
        tests: set[str] = set()
        for places in self._by_model.values():
            files = [file for where in places if (file := self.workspace.file(where.path)) is not None]
            classes = [each for file in files for each in file.module.names.values() if isinstance(each, Class)]
            count.update({name for each in classes for name in each.members})
            tests.update(*map(_tests_in, classes))
        return frozenset(test for test in tests if count[test] > 1)

    def _inherited_of(self, bases: tuple[Linked, ...]) -> frozenset[str]:
        """Return the tests that the bases of a class define for others to inherit."""
        return frozenset().union(*map(self._tests, bases))


def _tests_in(cls: Class) -> frozenset[str]:
    return frozenset(name for name, member in cls.members.items() if name.startswith("test_") and is_test(member))


def _is_of_tests(path: str) -> bool:
    """Tell whether a module is one of tests, whose classes pytest may collect."""
    return "/tests/" in f"/{path}" or "/test/" in f"/{path}"


def scan(
    repo: str | os.PathLike[str] = ".", test_method_name: str | None = None, *, models_dir: str = ""
) -> ScanResult:
    """Scan a transformers-style repository for the common tests that its models skip.

    Args:
        repo: Root of the repository.
        test_method_name: The one test to scan; every common test where it is not given.
        models_dir: Where its models' tests are, relative to the root; found where it is not given.

    Raises:
        ScanError: If there is no such directory, it has no model tests or no common tests, or none of this name.
    """
    return scan_tree(DiskTree(repo), test_method_name, models_dir)


def scan_tree(tree: Tree, test: str | None, models_dir: str) -> ScanResult:
    """Scan the files of a tree, as :func:`scan` does."""
    return result(Scanner(Work("", tuple(model_files(tree, models_dir)), test), tree).scan(), test)


_T = TypeVar("_T")

#: The fewest models for which more processes pay, and the most processes.
SHARED, _PROCESSES = 48, 4
#: How many models are scanned before more processes start, and in how many parts each process takes the others.
_FIRST, _PARTS = 4, 6


def scan_all(work: Work, tree: DiskTree) -> PartialScan:
    """Scan with a progress bar, in several processes where there are many models and processors for them."""
    models = list(work.by_model())
    processes = min(os.cpu_count() or 1, _PROCESSES)
    if len(models) >= SHARED and processes > 1 and sys.platform == "linux":
        from concurrent.futures.process import BrokenProcessPool

        with suppress(OSError, BrokenProcessPool):  # if no more processes can be started, this one scans everything
            return PartialScan.union([*_in_processes(work, models, processes), PartialScan([], {}, tree.record)])
    return Scanner(work, tree).scan(_progress(models, len(models)))


def _in_processes(work: Work, models: list[str], processes: int) -> list[PartialScan]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    first = _scan_part(work, models[:_FIRST])  # reads the mixins, which the other processes then have too
    size = -(-len(models[_FIRST:]) // (processes * _PARTS))
    parts = [models[at : at + size] for at in range(_FIRST, len(models), size)]
    context = get_context("fork")  # the processes then have what is imported and read here
    with ProcessPoolExecutor(processes, mp_context=context, initializer=gc.disable) as pool:
        futures = [pool.submit(_scan_part, work, part) for part in parts]
        found = [first, *(future.result() for future in _progress(futures, len(futures)))]
    _scanner.cache_clear()
    return found


def _scan_part(work: Work, models: list[str]) -> PartialScan:
    return _scanner(work).scan(models)


@cache
def _scanner(work: Work) -> Scanner:
    return Scanner(work, DiskTree(work.root))


def _progress(items: Iterable[_T], count: int) -> Iterable[_T]:
    if not sys.stderr.isatty():
        return items
    from tqdm import tqdm

    bar: Iterable[_T] = tqdm(items, total=count, leave=False, bar_format="{percentage:3.0f}%|{bar}| {elapsed}")
    return bar

"""The state of each test of a class, from the definition that its MRO picks, the class itself and its module."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from pytest_tfdebug.scan.read.bindings import Binding, BoundFunction, BoundValue, Decorator, Import
from pytest_tfdebug.scan.resolve.bodies import End, Runner
from pytest_tfdebug.scan.resolve.conditions import (
    NOTHING,
    RAN,
    Applied,
    Condition,
    GuardedSkip,
    State,
    judged,
    of_body,
    of_variants,
)
from pytest_tfdebug.scan.resolve.definitions import Definition, Definitions
from pytest_tfdebug.scan.resolve.values import CLASS_NAME, Evaluator
from pytest_tfdebug.scan.resolve.workspace import File, Found, Workspace

if TYPE_CHECKING:
    from pytest_tfdebug.scan.resolve.classes import Linked
    from pytest_tfdebug.scan.resolve.decorators import Decorators

#: Methods that run before every test of a class and can skip in its place, in a ``unittest.TestCase`` and elsewhere.
_SETUPS = ("setUpClass", "setup_class", "setUp", "asyncSetUp", "setup_method")
_PLAIN_SETUPS = ("setup_class", "setup_method")
#: What holds the model classes that a common test goes through.
_CLASSES = "all_model_classes"
#: Functions of which pytest calls the first that a module has, before its tests.
_MODULE_SETUPS = ("setUpModule", "setup_module")


class ClassStates:
    """Decides states. What does not depend on the class is decided once."""

    def __init__(self, workspace: Workspace, evaluator: Evaluator, decorators: Decorators, runner: Runner) -> None:
        self._workspace, self._decorators, self._runner = workspace, decorators, runner
        self._evaluator = evaluator
        self.definitions = Definitions(workspace, evaluator, decorators)
        self._on_one = cache(self._of_marks)
        self._own = cache(_own_tests)
        self._joined: dict[tuple[int, str], State] = {}  # by identity: the definitions keep the states alive

    def on_module(self, file: File) -> tuple[Applied, ...]:
        """Return the skips that a module applies to all tests that pytest collects in it, the nearest first."""
        skips = [skip for mark in _marks(file.module.names) for skip in self._decorators.of(file, mark)]
        skips += [skip for call in file.module.calls for skip in self._decorators.module_skip(file, call)]
        found = (self._workspace.lookup(file, name) for name in _MODULE_SETUPS)
        setup, on_setup = next((each for each in found if isinstance(each, Found)), None), NOTHING
        if setup is not None and isinstance(setup.binding, BoundFunction) and not setup.binding.decorators:
            of_setup, end = self._runner.function(setup.file, setup.binding)
            on_setup = of_body(of_setup, is_skipped=end is End.SKIPPED)
        return Applied("class-decorator", tuple(skips)), on_setup

    def _on_class(self, cls: Linked) -> Applied:
        skips = (skip for each in cls.mro for skip in self._on_one(each))
        kept = (skip for skip in skips if skip.kind == "pytest" or cls.is_test_case)
        return Applied("class-decorator", tuple(kept))

    def _of_marks(self, cls: Linked) -> list[GuardedSkip]:
        found = [self._decorators.of(cls.file, decorator) for decorator in cls.facts.decorators]
        found += [self._decorators.of(cls.file, mark, cls.facts) for mark in _marks(cls.facts.members)]
        return [skip for skips in found for skip in skips]

    def _on_setup(self, cls: Linked) -> Applied:
        skips: list[GuardedSkip] = []
        for name in _SETUPS if cls.is_test_case else _PLAIN_SETUPS:
            if (found := cls.helper(name)) is not None:
                on_one, end, _ = self._runner.test(*found, cls)
                skips.extend(of_body(on_one, is_skipped=end is End.SKIPPED).skips)
        return of_body(skips, is_skipped=False)

    def of(self, cls: Linked, tests: frozenset[str], on_module: tuple[Applied, ...]) -> dict[str, State]:
        """Return the states of some tests that a class has, in a module that applies skips to all of them."""
        base = _named(judged(self._on_setup(cls), self._on_class(cls), *on_module) or RAN, cls)
        own, variants = self._own(cls), self.definitions.variants
        mros = {test: cls.mro if test in own else cls.mro[1:] for test in tests}
        return {
            test: of_variants([(name, self._of_definition(cls, each, base)) for name, each in variants(test, mro)])
            for test, mro in mros.items()
        }

    def _of_definition(self, cls: Linked, definition: Definition, base: State) -> State:
        """Return the state that one definition gives a test of a class."""
        state = definition.state
        if base.is_skipped:
            return state if state is not None and state.state == "vanished" else base
        if definition.function is not None:
            skips, end, _ = self._runner.test(definition.definer, definition.function, cls)
            if skips and id(skips) not in definition.outcomes:
                body = of_body(skips, is_skipped=end is End.SKIPPED)
                definition.outcomes[id(skips)] = judged(definition.method, body)
            state = definition.outcomes[id(skips)] if skips else state
            if state is None and self._has_no_classes(cls, definition.function):
                where = cls.find(_CLASSES)
                line = where[1].line if where is not None else 0
                return State("empty", "empty", f"{_CLASSES} is empty", file=(where or (cls, 0))[0].file.path, line=line)
        return base if state is None else _named(self._joined_with(state, base), cls)

    def _has_no_classes(self, cls: Linked, function: BoundFunction) -> bool:
        """Tell whether a test goes through the model classes of a class that has none."""
        return function.mentions(f"self.{_CLASSES}") and self._evaluator.attribute(cls, _CLASSES) == ()

    def _joined_with(self, state: State, base: State) -> State:
        """Return the state of a test that may run with the condition of the class added."""
        if not base.condition or not (state.condition or state.state == "empty"):
            return state
        key = (id(state), base.condition)
        if key not in self._joined:
            condition = Condition.of((*state.condition.ways, *base.condition.ways))
            self._joined[key] = state._replace(condition=condition)
        return self._joined[key]


def _marks(names: dict[str, Binding]) -> list[Decorator]:
    """Return the ``pytestmark`` among the names of a module or class, as a decorator."""
    mark = names.get("pytestmark")
    text = "pytestmark" if isinstance(mark, Import) else mark.text if isinstance(mark, BoundValue) else ""
    return [Decorator(text, mark.line)] if mark is not None and text else []


def _named(state: State, cls: Linked) -> State:
    has_name = CLASS_NAME in state.reason
    return state._replace(reason=state.reason.replace(CLASS_NAME, cls.name)) if has_name else state


def _own_tests(cls: Linked) -> set[str]:
    """Return the names of the tests that a class binds, also without the number that ``expand`` adds."""
    names = [name for name in cls.facts.members if name.startswith("test_")]
    return set(names).union(*map(unnumbered, names))


@cache
def unnumbered(test: str) -> tuple[str, ...]:
    """Return the names that ``expand`` may have made a test's name of."""
    words = test.split("_")
    return tuple("_".join(words[:at]) for at, word in enumerate(words) if at and word.isdigit())

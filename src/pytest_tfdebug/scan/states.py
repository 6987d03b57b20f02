"""The state of each test in each class, from the definition that the MRO picks."""

from __future__ import annotations

import re
from functools import cache
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from pytest_tfdebug.scan import variants
from pytest_tfdebug.scan.classes import Linked
from pytest_tfdebug.scan.conditions import UNCONDITIONAL, Condition
from pytest_tfdebug.scan.facts import MODULE_SETUPS, SETUPS, Class, Decorator, Function, Value, squeeze
from pytest_tfdebug.scan.runner import End
from pytest_tfdebug.scan.values import CLASS_NAME, NAME, Scope, Unknown
from pytest_tfdebug.scan.workspace import Found

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable
    from collections.abc import Set as AbstractSet

    from pytest_tfdebug.scan.classes import Kin, Question
    from pytest_tfdebug.scan.effects import Decorators, Effect
    from pytest_tfdebug.scan.facts import Binding
    from pytest_tfdebug.scan.runner import Runner
    from pytest_tfdebug.scan.values import Evaluator
    from pytest_tfdebug.scan.variants import Expansion, Slot
    from pytest_tfdebug.scan.workspace import Source, Workspace

#: Decorators whose result is no function, so that pytest does not collect it.
_NO_FUNCTION = re.compile(r"(?:\w+\.)*(?:property|cached_property|classproperty)|\w+\.(?:setter|deleter|getter)")
#: Which of ``SETUPS`` pytest calls where a class is no ``unittest.TestCase``.
_PLAIN_SETUPS = ("setup_class", "setup_method")
_NUMBER = re.compile(r"_\d+(?=_|$)")
#: Kinds of expression whose value is never a function.
_NO_CALLABLE = frozenset({"const", "tuple", "list", "set", "dict", "not", "compare", "join"})


class State(NamedTuple):
    """The state of a test in a class, and where and why; empty strings where that is not known or not so."""

    state: str
    form: str = ""
    reason: str = ""
    condition: Condition = UNCONDITIONAL
    file: str = ""
    line: int = 0


RAN = State("ran")


class Decided(NamedTuple):
    """The states of the tests of a class: ``base`` that of those which their definition leaves alone."""

    base: State
    left: AbstractSet[str]
    given: dict[str, State]

    @property
    def states(self) -> dict[str, State]:
        """The state of each test."""
        return {**dict.fromkeys(self.left, self.base), **self.given}


#: Stands for the class of a function that is defined outside any.
_MODULE = Class("", 0, (), (), (), {}, frozenset())


class _Applied(NamedTuple):
    """The skips of one kind that apply to a test, and the form to report them under."""

    form: str
    effects: tuple[Effect, ...]


_NOTHING = _Applied("decorator", ())
_NO_QUESTIONS: frozenset[Question] = frozenset()


class _Plan(NamedTuple):
    """What a definition does to a test in any class; ``states`` grows with the outcomes of its body."""

    definer: Linked
    states: dict[int, State | None]
    function: Function | None = None
    method: _Applied = _NOTHING
    vanished: State | None = None
    always: State | None = None
    state: State | None = None
    empty: State | None = None


class _Inherited(NamedTuple):
    """What the definitions that a class inherits give tests: a state each, or nothing (``free``)."""

    cls: Linked
    given: dict[str, State]
    free: dict[str, None]


class _Name(NamedTuple):
    """What definitions ask a class about a name, and among which other questions."""

    questions: dict[Question, None]
    among: dict[frozenset[Question], None]


#: What a class answers otherwise than one that binds nothing: a name and the answers about it.
_Told: TypeAlias = "frozenset[tuple[str, tuple[Hashable, ...]]]"


class _Kin(NamedTuple):
    """What classes with the same bases inherit.

    ``plain`` binds nothing of its own. ``hanging`` holds the tests that hang on the same questions, ``names`` these
    questions by the name that each is about: only a class that binds or sets the name may answer otherwise.
    ``outcomes`` holds what is inherited by classes that answer alike and have the same condition.
    """

    plain: Linked
    expanded: frozenset[str]
    hanging: dict[frozenset[Question], set[str]]
    names: dict[str, _Name]
    outcomes: dict[tuple[_Told, str], _Inherited]

    def note(self, test: str, questions: frozenset[Question]) -> None:
        """Note that a test hangs on questions."""
        if questions not in self.hanging:
            self.hanging[questions] = set()
            for question in questions:
                asked, among = self.names.get(question[-1]) or self.names.setdefault(question[-1], _Name({}, {}))
                asked[question] = among[questions] = None
        self.hanging[questions].add(test)

    def tests_of(self, name: str) -> set[str]:
        """Return the tests that hang on questions about a name."""
        return set().union(*map(self.hanging.__getitem__, self.names[name].among))


class States:
    """Decides states; what does not depend on the class is decided once."""

    def __init__(self, workspace: Workspace, evaluator: Evaluator, decorators: Decorators, runner: Runner) -> None:
        self._workspace, self._evaluator = workspace, evaluator
        self._decorators, self._runner = decorators, runner
        self._expansions: dict[int, Expansion | None] = {}
        self._bound: dict[Linked, set[str]] = {}
        self._kins: dict[Kin, _Kin] = {}
        self._on_kin: dict[Kin, list[Effect]] = {}
        self._plans: dict[tuple[Any, ...], _Plan] = {}
        self._joined: dict[tuple[int, str], State] = {}  # by identity: the plans keep the states alive
        self._slots: dict[tuple[str, tuple[Linked, ...]], list[tuple[Slot, Expansion | None]]] = {}

    def on_module(self, source: Source) -> tuple[_Applied, ...]:
        """Return the skips that a module applies to all tests that pytest collects in it, the nearest first."""
        mark = source.facts.names.get("pytestmark")
        calls = [Decorator(call.text, call.line) for call in source.facts.calls if "allow_module_level" in call.text]
        effects: list[Effect] = []
        if isinstance(mark, Value) and mark.text:
            effects.extend(self._decorators.of(source, Decorator(mark.text, mark.line)))
        effects.extend(effect for call in calls for effect in self._decorators.module_skip(source, call))
        setups = (self._workspace.lookup(source, name) for name in MODULE_SETUPS)
        setup = next((found for found in setups if isinstance(found, Found)), None)
        return _Applied("class-decorator", tuple(effects)), self._on_module_setup(setup)

    def _on_module_setup(self, setup: Found | None) -> _Applied:
        if setup is None or not isinstance(setup.binding, Function) or setup.binding.decorators:
            return _NOTHING
        return _on_body(*self._runner.function(setup.source, setup.binding))

    def _on_class(self, cls: Linked) -> _Applied:
        """Return the skips that the decorators and marks of a class and its bases apply to all its tests."""
        if cls.kin not in self._on_kin:
            self._on_kin[cls.kin] = [effect for base in cls.kin.mro for effect in self._on_one(base)]
        effects = [*self._on_one(cls), *self._on_kin[cls.kin]]
        kept = [effect for effect in effects if effect.kind == "pytest" or cls.kin.is_test_case]
        return _Applied("class-decorator", tuple(kept))

    def _on_one(self, cls: Linked) -> list[Effect]:
        decorators = list(cls.head.decorators)
        mark = cls.facts.members.get("pytestmark")
        if isinstance(mark, Value) and mark.text:
            decorators.append(Decorator(mark.text, mark.line))
        return [effect for decorator in decorators for effect in self._decorators.of(cls.source, decorator)]

    def of(self, cls: Linked, tests: frozenset[str], on_module: tuple[_Applied, ...]) -> Decided:
        """Return the states of some tests that a class has, in a module that applies skips to all of them."""
        base = self._base(cls, on_module)
        mine = tests & self._own(cls)
        if base.state == "skipped":
            return Decided(base, frozenset(), {test: self._state(cls, test, base)[0] for test in tests})
        inherited = self._inherited(cls, tests - mine, base)
        given = inherited.given.copy()
        for test in mine.union(tests.difference(given, inherited.free)):
            given[test] = self._state(cls, test, base)[0]
        return Decided(base, inherited.free.keys() - given.keys(), given)

    def _base(self, cls: Linked, on_module: tuple[_Applied, ...]) -> State:
        """Return the state of a test of a class that its definition leaves alone."""
        base = _judged([self._on_setup(cls), self._on_class(cls), *on_module]) or RAN
        return base._replace(reason=base.reason.replace(CLASS_NAME, cls.name)) if CLASS_NAME in base.reason else base

    def _inherited(self, cls: Linked, tests: frozenset[str], base: State) -> _Inherited:
        """Return what the definitions that a class inherits give some of its tests, where that is not its alone."""
        kin = self._kin(cls)
        key = self._told(cls, kin), base.condition
        found = kin.outcomes.get(key) or _nearest(cls, kin, *key)
        missing = tests.difference(found.given, found.free)
        if not missing:
            return found
        kin.outcomes[key] = found = _Inherited(cls, dict(found.given), dict(found.free))
        known = len(kin.names)
        for test in missing:
            state, questions = self._state(cls, test, base)
            if NAME in questions:
                continue
            if state is base:
                found.free[test] = None
            else:
                found.given[test] = state
            kin.note(test, questions)
        if len(kin.names) > known:  # classes that told the same until now may not do so of these
            kept = [(condition, table) for (_, condition), table in kin.outcomes.items()]
            kin.outcomes.clear()
            kin.outcomes.update({(self._told(table.cls, kin), condition): table for condition, table in kept})
        return found

    def _told(self, cls: Linked, kin: _Kin) -> _Told:
        told, found = self._evaluator.told, set()
        for name in kin.names.keys() & (cls.facts.members.keys() | cls.facts.writes):
            questions = tuple(kin.names[name].questions)
            answers = told(cls, questions)
            if answers != told(kin.plain, questions):
                found.add((name, answers))
        return frozenset(found)

    def _kin(self, cls: Linked) -> _Kin:
        if cls.kin not in self._kins:
            expanded = {
                name
                for linked in cls.kin.mro
                for name, member in linked.facts.members.items()
                if name.startswith("test_") and self._expansion(linked, member) is not None
            }
            plain = Linked(cls.source, _MODULE, self._workspace.filled)
            plain.inherit(cls.kin)
            self._kins[cls.kin] = _Kin(plain, frozenset(expanded), {}, {}, {})
        return self._kins[cls.kin]

    def _state(self, cls: Linked, test: str, base: State) -> tuple[State, frozenset[Question]]:
        """Return the state of a test of a class, and the questions about the class that it hangs on."""
        found = cls.find(test)
        if found is None or test in self._kin(cls).expanded or self._expansion(*found) is not None:
            return self._expanded(cls, test, base)
        return self._planned(cls, self._plan_of(test, *found, None), base)

    def _own(self, cls: Linked) -> set[str]:
        """Return the names of the tests that a class binds, also without the number that ``expand`` adds."""
        own = self._bound.get(cls)
        if own is None:
            names = [name for name in cls.facts.members if name.startswith("test_")]
            own = self._bound[cls] = set(names).union(*map(_bases, names))
        return own

    def _expanded(self, cls: Linked, test: str, base: State) -> tuple[State, frozenset[Question]]:
        """Return the state of a test of which some definition is expanded, and the questions that it hangs on."""
        mro = cls.mro if test in self._own(cls) else cls.kin.mro
        key = (test, mro)
        if key not in self._slots:
            involved = tuple(linked for linked in mro if test in self._own(linked))
            expansions = {
                id(binding): found
                for definer, binding in cls.definitions(test)
                if (found := self._expansion(definer, binding)) is not None
            }
            slots = variants.slots(involved, test, expansions)
            kept = [slot for slot in slots if not slot.is_leftover or self._is_function_again(slot)]
            self._slots[key] = [(slot, expansions.get(id(slot.binding))) for slot in kept]
        states: list[tuple[Slot, State]] = []
        asked: list[frozenset[Question]] = []
        for slot, expansion in self._slots[key]:
            decorators = expansion.inner if expansion is not None else None
            plan = self._plan_of(slot.name, slot.definer, slot.binding, decorators)
            state, questions = self._planned(cls, plan, base)
            states.append((slot, state))
            asked.append(questions)
        return _combined(states), _NO_QUESTIONS.union(*asked)

    def _planned(self, cls: Linked, plan: _Plan, base: State) -> tuple[State, frozenset[Question]]:
        """Return the state that one definition gives a test of a class, and the questions that it hangs on."""
        if base.state == "skipped":
            return plan.vanished or base, _NO_QUESTIONS
        state, questions = self._given(cls, plan)
        if state is None:
            if plan.empty is None:
                return base, questions
            return plan.empty._replace(condition=base.condition) if base.condition else plan.empty, questions
        state = self._joined_with(state, base)
        if CLASS_NAME in state.reason:
            return state._replace(reason=state.reason.replace(CLASS_NAME, cls.name)), questions | {NAME}
        return state, questions

    def _given(self, cls: Linked, plan: _Plan) -> tuple[State | None, frozenset[Question]]:
        """Return the state that one definition by itself gives a test of a class, and the questions it hangs on."""
        always = plan.vanished or plan.always
        if always is not None or plan.function is None or not plan.function.body:
            return always or plan.state, _NO_QUESTIONS
        effects, end, questions = self._runner.test(plan.definer, plan.function, cls)
        if not effects:
            return plan.state, questions
        state = plan.states.get(id(effects))
        if state is None:
            state = plan.states[id(effects)] = _judged([plan.method, _on_body(effects, end)])
        return state, questions

    def _joined_with(self, state: State, base: State) -> State:
        """Return a state to which the condition on the class is added, if it has one itself."""
        if not state.condition or not base.condition:
            return state
        key = (id(state), base.condition)
        if key not in self._joined:
            condition = Condition.of((*state.condition.ways, *base.condition.ways))
            self._joined[key] = state._replace(condition=condition)
        return self._joined[key]

    def _expansion(self, definer: Linked, binding: Binding) -> Expansion | None:
        if id(binding) not in self._expansions:
            self._expansions[id(binding)] = variants.expansion(
                binding, definer.source, self._workspace, self._evaluator
            )
        return self._expansions[id(binding)]

    def _is_function_again(self, leftover: Slot) -> bool:
        """Tell whether a decorator outside ``expand`` has made something callable of the ``None`` that it leaves.

        ``unittest.skip`` makes a function of it, and a mark of pytest is itself callable: both are then collected.
        """
        decorators = leftover.binding.decorators if isinstance(leftover.binding, Function) else ()
        source = leftover.definer.source
        is_marked = any(self._decorators.is_mark(source, decorator) for decorator in decorators)
        return is_marked or bool(self._on_method(leftover.definer, decorators, ()).effects)

    def _on_setup(self, cls: Linked) -> _Applied:
        """Return the skips of the methods that run before each test of a class."""
        effects: list[Effect] = []
        for name in SETUPS if cls.kin.is_test_case else _PLAIN_SETUPS:
            found = cls.find(name)
            if found is not None and isinstance(found[1], Function) and found[1].body:
                effects.extend(_on_body(*self._runner.test(found[0], found[1], cls)[:2]).effects)
        is_guarded = any(effect.guards or effect.is_guarded for effect in effects)
        return _Applied("guard" if is_guarded else "body", tuple(effects))

    def _plan_of(self, name: str, definer: Linked, binding: Binding, decorators: tuple[Decorator, ...] | None) -> _Plan:
        key = name, definer, id(binding), decorators
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self._plan(name, definer, binding, decorators)
        return plan

    def _plan(self, name: str, definer: Linked, binding: Binding, decorators: tuple[Decorator, ...] | None) -> _Plan:
        """Return what a definition does to a test in any class."""
        extra: tuple[Effect, ...] = ()
        while isinstance(binding, Value):
            target = self._function(definer, binding)
            if target is None:
                reason = f"{name} = {squeeze(binding.text)}" if binding.text else ""
                state = State("vanished", "vanished", reason, UNCONDITIONAL, definer.source.path, binding.line)
                return _Plan(definer, {}, vanished=state)
            effects, found = target
            extra += effects
            if found is None:
                return _planned(definer, None, _Applied("decorator", extra), None)
            definer, binding = found
        if not isinstance(binding, Function):
            return _Plan(definer, {})
        decorators = binding.decorators if decorators is None else decorators
        where = definer.source.path, binding.line
        for decorator in decorators:
            if _makes_no_function(decorator.text):
                return _Plan(definer, {}, vanished=State("vanished", "vanished", "", UNCONDITIONAL, *where))
        method = self._on_method(definer, decorators, extra)
        empty = State("empty", "empty", "", UNCONDITIONAL, *where) if binding.empty and not method.effects else None
        return _planned(definer, binding, method, empty)

    def _on_method(self, definer: Linked, decorators: Iterable[Decorator], extra: tuple[Effect, ...]) -> _Applied:
        effects = [
            effect
            for decorator in decorators
            for effect in self._decorators.of(definer.source, decorator, definer.facts)
        ]
        return _Applied("decorator", (*effects, *extra))

    def _function(
        self, definer: Linked, value: Value
    ) -> tuple[tuple[Effect, ...], tuple[Linked, Binding] | None] | None:
        """Return the function that a name is bound to by assignment and the skips put on it; None for no function."""
        if not value.text:
            return (), None
        expression = self._workspace.parser.expression(value.text)
        if expression[0] in _NO_CALLABLE:
            return None
        if expression[0] == "call" and expression[1][0] == "ref" and _makes_no_function(expression[1][1]):
            return None
        if expression[0] == "call":
            effects = self._decorators.effects(expression, Scope(definer.source))
            located = tuple(effect._replace(path=definer.source.path, line=value.line) for effect in effects)
            return located, None
        if expression[0] != "ref":
            return (), None
        return self._referred(definer, value, expression[1])

    def _referred(
        self, definer: Linked, value: Value, dotted: str
    ) -> tuple[tuple[Effect, ...], tuple[Linked, Binding] | None] | None:
        member = value.previous if value.previous is not None else definer.facts.members.get(dotted)
        if member is not None and member is not value:
            return (), (definer, member)
        head, _, name = dotted.rpartition(".")
        for base in definer.mro:
            if head and base.name == head.rpartition(".")[2] and name in base.facts.members:
                return (), (base, base.facts.members[name])
        symbol = self._workspace.resolve(definer.source, dotted)
        if isinstance(symbol, Found) and isinstance(symbol.binding, Value):
            known = self._evaluator.text(symbol.binding.text, Scope(symbol.source))
            return ((), None) if isinstance(known, Unknown) else None
        if isinstance(symbol, Found) and isinstance(symbol.binding, Function):
            return (), (Linked(symbol.source, _MODULE, self._workspace.filled), symbol.binding)
        return (), None


def _nearest(cls: Linked, kin: _Kin, told: _Told, condition: str) -> _Inherited:
    """Return what is known of a class from the one of its kin that answers most alike."""
    others = [(len(told ^ other), other) for other, state in kin.outcomes if state == condition]
    if not others:
        return _Inherited(cls, {}, {})
    other = min(others, key=itemgetter(0))[1]
    hanging = set().union(*(kin.tests_of(name) for name, _ in told ^ other))
    _, given, free = kin.outcomes[other, condition]
    return _Inherited(
        cls,
        {test: state for test, state in given.items() if test not in hanging},
        {test: None for test in free if test not in hanging},
    )


def _planned(definer: Linked, function: Function | None, method: _Applied, empty: State | None) -> _Plan:
    """Return a plan that knows whether its decorators always skip."""
    state = _judged([method])
    always = state if state is not None and state.state == "skipped" else None
    return _Plan(definer, {}, function, method, None, always, state, empty)


def _on_body(effects: list[Effect], end: End) -> _Applied:
    """Return the skips of a body; only the one that ends it every time, where there is one."""
    if end is End.SKIPPED:
        always = next((effect for effect in effects if not effect.guards), None)
        effects = [always or effects[0]._replace(guards=(), is_guarded=True)]
    is_guarded = any(effect.guards or effect.is_guarded for effect in effects)
    return _Applied("guard" if is_guarded else "body", tuple(effects))


def _judged(applied: list[_Applied]) -> State | None:
    """Return the state that the skips on a test give it, the nearest first; None where they leave it alone."""
    found = [(form, effect) for form, effects in applied for effect in effects]
    if not found:
        return None
    for form, effect in found:
        if not effect.guards:
            return State("skipped", form, effect.reason, UNCONDITIONAL, effect.path, effect.line)
    form, first = found[0]
    reason = next((effect.reason for _, effect in found if effect.reason), "")
    condition = Condition.of(effect.guards for _, effect in found)
    return State("conditional", form, reason, condition, first.path, first.line)


def _combined(states: list[tuple[Slot, State]]) -> State:
    """Return the state of a test of which a class has several variants."""
    by_state: dict[str, list[tuple[Slot, State]]] = {}
    for slot, state in states:
        by_state.setdefault(state.state, []).append((slot, state))
    stopped = [*by_state.get("skipped", ()), *by_state.get("vanished", ())]
    if stopped:
        first: State = stopped[0][1]
        names = ", ".join(slot.name for slot, _ in stopped)
        is_all = len(stopped) == len(states)
        return first if is_all else first._replace(state="conditional", condition=Condition.of([(f"only {names}",)]))
    return next((by_state[kind][0][1] for kind in ("conditional", "ran", "empty") if kind in by_state), RAN)


@cache
def _bases(test: str) -> tuple[str, ...]:
    """Return the names that ``expand`` may have made a test's name of."""
    return tuple(test[: found.start()] for found in _NUMBER.finditer(test))


@cache
def _makes_no_function(decorator: str) -> bool:
    return _NO_FUNCTION.fullmatch(decorator) is not None


def is_test(binding: Binding | None) -> bool:
    """Tell whether a definition in a mixin is a test: a function, and nothing that turns it into an attribute."""
    if isinstance(binding, Function):
        return not any(_makes_no_function(decorator.text) for decorator in binding.decorators)
    return False

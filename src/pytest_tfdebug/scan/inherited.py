"""The states that classes with the same bases inherit, decided once for all that answer alike.

What a test inherited from a mixin does hangs on a few questions about the class: whether it has attentions, which
helper it overrides. Classes that give the same answers share the states, which is ten times as fast.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from pytest_tfdebug.scan.bindings import Class
from pytest_tfdebug.scan.classes import Linked
from pytest_tfdebug.scan.values import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from pytest_tfdebug.scan.classes import Kin, Question
    from pytest_tfdebug.scan.states import State
    from pytest_tfdebug.scan.values import Evaluator

    #: Decides the state of a test of a class, and returns it with the questions that it hangs on.
    Decide: TypeAlias = Callable[[str], tuple[State, frozenset[Question]]]

#: What a class answers otherwise than one that binds nothing: a name and the answers about it.
_Told: TypeAlias = "frozenset[tuple[str, tuple[Hashable, ...]]]"


class Inherited(NamedTuple):
    """What the definitions that a class inherits give tests: a state each, or nothing (``free``)."""

    cls: Linked
    given: dict[str, State]
    free: dict[str, None]


class _Name(NamedTuple):
    """What definitions ask a class about a name, and among which other questions."""

    questions: dict[Question, None]
    among: dict[frozenset[Question], None]


class _Shared(NamedTuple):
    """What classes with the same bases share.

    ``plain`` binds nothing of its own. ``hanging`` holds the tests that hang on the same questions, ``names`` these
    questions by the name that each is about: only a class that binds or sets the name may answer otherwise.
    ``outcomes`` holds what is inherited by classes that answer alike and have the same condition.
    """

    plain: Linked
    hanging: dict[frozenset[Question], set[str]]
    names: dict[str, _Name]
    outcomes: dict[tuple[_Told, str], Inherited]

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


class InheritedStates:
    """Finds what classes inherit."""

    def __init__(self, evaluator: Evaluator) -> None:
        self._evaluator = evaluator
        self._shared: dict[Kin, _Shared] = {}

    def of(self, cls: Linked, tests: frozenset[str], base: State, decide: Decide) -> Inherited:
        """Return what the definitions that a class inherits give some of its tests, where that is not its alone.

        Args:
            cls: The class.
            tests: Tests that it does not bind itself.
            base: The state that the class gives a test which its definition leaves alone.
            decide: Decides a test that no class of its answers has been asked for.
        """
        shared = self._of_kin(cls)
        key = self._told(cls, shared), base.condition
        found = shared.outcomes.get(key) or _nearest(cls, shared, *key)
        missing = tests.difference(found.given, found.free)
        if not missing:
            return found
        shared.outcomes[key] = found = Inherited(cls, dict(found.given), dict(found.free))
        known = len(shared.names)
        for test in sorted(missing):
            state, questions = decide(test)
            if NAME in questions:
                continue
            if state is base:
                found.free[test] = None
            else:
                found.given[test] = state
            shared.note(test, questions)
        if len(shared.names) > known:  # classes that told the same until now may not do so of these
            kept = [(condition, each) for (_, condition), each in shared.outcomes.items()]
            shared.outcomes.clear()
            shared.outcomes.update({(self._told(each.cls, shared), condition): each for condition, each in kept})
        return found

    def _told(self, cls: Linked, shared: _Shared) -> _Told:
        told, found = self._evaluator.told, set()
        for name in shared.names.keys() & (cls.facts.members.keys() | cls.facts.writes):
            questions = tuple(shared.names[name].questions)
            answers = told(cls, questions)
            if answers != told(shared.plain, questions):
                found.add((name, answers))
        return frozenset(found)

    def _of_kin(self, cls: Linked) -> _Shared:
        if cls.kin not in self._shared:
            plain = Linked(cls.file, Class.nothing())
            plain.inherit(cls.kin)
            self._shared[cls.kin] = _Shared(plain, {}, {}, {})
        return self._shared[cls.kin]


def _nearest(cls: Linked, shared: _Shared, told: _Told, condition: str) -> Inherited:
    """Return what is known of a class from the one of its kin that answers most alike."""
    others = [(len(told ^ other), other) for other, state in shared.outcomes if state == condition]
    if not others:
        return Inherited(cls, {}, {})
    other = min(others, key=itemgetter(0))[1]
    hanging = set().union(*(shared.tests_of(name) for name, _ in told ^ other))
    _, given, free = shared.outcomes[other, condition]
    return Inherited(
        cls,
        {test: state for test, state in given.items() if test not in hanging},
        {test: None for test in free if test not in hanging},
    )

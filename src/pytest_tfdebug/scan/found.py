"""What a scan found of each model: the report that it makes, and rows that JSON can hold."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.conditions import Condition
from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.report import Case, CommonTest, ScanResult
from pytest_tfdebug.scan.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_tfdebug.scan.tree import Record

#: Mixins that the report calls by another name.
ORIGINS = {"ModelTesterMixin": "common", "GenerationTesterMixin": "GenerationMixin"}


#: The types of the fields of a state.
_STATE = (str, str, str, str, str, int)


class ClassTests(NamedTuple):
    """A test class that pytest collects for a model, and the states of the common tests that it has."""

    model: str
    name: str
    path: str
    states: dict[str, State]


class Mixin(NamedTuple):
    """A class that defines tests for others to inherit: what the report calls it, the length of its MRO, its tests."""

    origin: str
    size: int
    tests: frozenset[str]


class Unresolved(NamedTuple):
    """A base class that is neither in the repository nor known by name."""

    base: str
    cls: str
    path: str
    line: int


class ModelScan(NamedTuple):
    """What a scan found of one model.

    Attributes:
        model: The model.
        classes: Its test classes.
        mixins: The classes that its classes inherit tests from.
        unresolved: The bases of its test classes that are not known.
        uses: The files of models, its own included, that this depends on; None where that is not known.
    """

    model: str
    classes: list[ClassTests]
    mixins: list[Mixin]
    unresolved: list[Unresolved]
    uses: list[str] | None


class Part(NamedTuple):
    """What a scan found in some models.

    Attributes:
        models: What it found of each.
        bad: The files that it left out, with the reason.
        record: What it read.
        shared: The files of models that files of no model import, so that all models may depend on them.
    """

    models: list[ModelScan]
    bad: dict[str, str]
    record: Record
    shared: list[str]


def result(models: Sequence[ModelScan], bad: dict[str, str], test: str | None) -> ScanResult:
    """Return the report of a scan.

    Args:
        models: What it found of each model.
        bad: The files that it left out.
        test: The one test that was scanned; all where it is None.

    Raises:
        ScanError: If there is nothing to report.
    """
    cases: dict[str, list[Case]] = {}
    for cls in sorted((cls for model in models for cls in model.classes), key=attrgetter("model", "name")):
        for name, state in cls.states.items():
            cases.setdefault(name, []).append(Case(cls.model, cls.name, state))
    names = sorted(cases)
    mixins = {mixin for model in models for mixin in model.mixins}
    _check(names, {name for mixin in mixins for name in mixin.tests}, len(models), test)
    tests = {name: CommonTest(name, _origin(name, mixins), tuple(cases[name])) for name in names}
    unresolved = sorted({base for model in models for base in model.unresolved}, key=attrgetter("path", "line"))
    bases = [f"{base.path}:{base.line}: {base.base}, a base of {base.cls}" for base in unresolved]
    return ScanResult(tests, sorted(model.model for model in models), bad, bases)


def _origin(test: str, mixins: Iterable[Mixin]) -> str:
    """Return where a test comes from: the mixin at the root of those that define it."""
    found = [(mixin.size, mixin.origin) for mixin in mixins if test in mixin.tests]
    names = {origin for _, origin in found}
    return next((name for name in ORIGINS.values() if name in names), min(found)[1])


def _check(names: list[str], common: set[str], models: int, test: str | None) -> None:
    """Check that a scan found a common test, and the one that was asked for.

    Raises:
        ScanError: If it did not.
    """
    if not common:
        raise ScanError(
            f"No common tests: no class of the {models} models inherits a test_* method from a mixin "
            "outside the models directory; check that the mixins' files are in the repository."
        )
    if test is not None and test not in names:
        import difflib

        near = difflib.get_close_matches(test, common, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "run without --test_method_name to list all."
        raise ScanError(f"{test!r} is not one of the {len(common)} common tests; {hint}")


def to_rows(models: Iterable[ModelScan], shared: list[str]) -> dict[str, Any]:
    """Return what a scan found as lists, texts and numbers; each state and test is stored once and has a number.

    Args:
        models: What it found of each model.
        shared: The files of models that all models may depend on.
    """
    tests: dict[str, int] = {}
    states: list[State] = []
    numbers: dict[int, int] = {}  # by identity, which the models keep
    found = {}
    for model in models:
        classes = []
        for cls in model.classes:
            given: dict[int, list[int]] = {}
            for test, state in cls.states.items():
                number = numbers.setdefault(id(state), len(states))
                if number == len(states):
                    states.append(state)
                given.setdefault(number, []).append(tests.setdefault(test, len(tests)))
            classes.append([cls.name, cls.path, list(given.items())])
        mixins = [
            [mixin.origin, mixin.size, [tests.setdefault(test, len(tests)) for test in sorted(mixin.tests)]]
            for mixin in model.mixins
        ]
        found[model.model] = [classes, mixins, model.unresolved, model.uses]
    return {"tests": list(tests), "states": states, "models": found, "shared": shared}


def from_rows(rows: Any) -> tuple[list[ModelScan], list[str]]:
    """Return the models that rows hold, and the files of models that all models may depend on.

    Raises:
        ValueError: If the rows are not such as :func:`to_rows` makes, or another of the cache's ``MISTAKES``.
    """
    tests = [_text(test) for test in rows["tests"]]
    states = [_state(fields) for fields in rows["states"]]
    models = [_model(_text(model), fields, tests, states) for model, fields in rows["models"].items()]
    return models, [_text(path) for path in rows["shared"]]


def _model(name: str, fields: Any, tests: list[str], states: list[State]) -> ModelScan:
    classes, mixins, unresolved, uses = fields
    return ModelScan(
        name,
        [_class(name, cls, tests, states) for cls in classes],
        [Mixin(_text(origin), int(size), frozenset(_picked(tests, numbers))) for origin, size, numbers in mixins],
        [Unresolved(_text(base), _text(cls), _text(path), int(line)) for base, cls, path, line in unresolved],
        None if uses is None else [_text(path) for path in uses],
    )


def _class(model: str, fields: Any, tests: list[str], states: list[State]) -> ClassTests:
    name, path, given = fields
    found = {test: states[number] for number, some in given if number >= 0 for test in _picked(tests, some)}
    return ClassTests(model, _text(name), _text(path), found)


def _picked(items: list[Any], numbers: Any) -> list[Any]:
    """Return the items at some places.

    Raises:
        ValueError: If a place is not a number from 0.
    """
    if numbers and min(numbers) < 0:
        raise ValueError("not a place")
    return [items[number] for number in numbers]


def _state(fields: Any) -> State:
    if len(fields) != len(_STATE) or not all(map(isinstance, fields, _STATE)):
        raise ValueError("not a state")
    state, form, reason, condition, file, line = fields
    return State(state, form, reason, Condition(condition), file, line)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")  # noqa: TRY004 - what is wrong is the file that it comes from
    return value

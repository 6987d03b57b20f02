"""What a scan found of each model, as rows that JSON can hold, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_tfdebug.scan.conditions import Condition
from pytest_tfdebug.scan.found import ClassTests, Mixin, ModelScan, Unresolved
from pytest_tfdebug.scan.states import State

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The types of the fields of a state.
_STATE = (str, str, str, str, str, int)


def to_rows(models: Iterable[ModelScan], shared: list[str]) -> dict[str, Any]:
    """Return what a scan found as lists, texts and numbers; states and names of tests stand once and are pointed to.

    Args:
        models: What it found of each model.
        shared: The files of models that all models may rest on.
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
                number = numbers.get(id(state))
                if number is None:
                    number = numbers[id(state)] = len(states)
                    states.append(state)
                given.setdefault(number, []).append(tests.setdefault(test, len(tests)))
            classes.append([cls.name, cls.path, list(given.items())])
        mixins = [
            [mixin.origin, mixin.size, [tests.setdefault(test, len(tests)) for test in sorted(mixin.tests)]]
            for mixin in model.mixins
        ]
        found[model.model] = [classes, mixins, model.unresolved, model.uses]
    return {"tests": list(tests), "states": states, "models": found, "shared": shared}


def from_rows(rows: Any) -> tuple[list[ModelScan], list[str]]:  # noqa: ANN401 - whatever JSON holds
    """Return the models that rows hold, and the files of models that all may rest on.

    Raises:
        ValueError: If the rows are not such as :func:`to_rows` makes, or another of the cache's ``MISTAKES``.
    """
    tests = [_text(test) for test in rows["tests"]]
    states = [_state(fields) for fields in rows["states"]]
    models = [_model(_text(model), fields, tests, states) for model, fields in rows["models"].items()]
    return models, [_text(path) for path in rows["shared"]]


def _model(name: str, fields: Any, tests: list[str], states: list[State]) -> ModelScan:  # noqa: ANN401
    classes, mixins, unresolved, uses = fields
    return ModelScan(
        name,
        [_class(name, cls, tests, states) for cls in classes],
        [Mixin(_text(origin), int(size), frozenset(_picked(tests, numbers))) for origin, size, numbers in mixins],
        [Unresolved(_text(base), _text(cls), _text(path), int(line)) for base, cls, path, line in unresolved],
        None if uses is None else [_text(path) for path in uses],
    )


def _class(model: str, fields: Any, tests: list[str], states: list[State]) -> ClassTests:  # noqa: ANN401
    name, path, given = fields
    found = {test: states[number] for number, some in given if number >= 0 for test in _picked(tests, some)}
    return ClassTests(model, _text(name), _text(path), found)


def _picked(items: list[Any], numbers: Any) -> list[Any]:  # noqa: ANN401
    """Return the items at some places.

    Raises:
        ValueError: If a place is not a number from 0.
    """
    if numbers and min(numbers) < 0:
        raise ValueError("not a place")
    return [items[number] for number in numbers]


def _state(fields: Any) -> State:  # noqa: ANN401
    if len(fields) != len(_STATE) or not all(map(isinstance, fields, _STATE)):
        raise ValueError("not a state")
    state, form, reason, condition, file, line = fields
    return State(state, form, reason, Condition(condition), file, line)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("not a text")  # noqa: TRY004 - what is wrong is the file that it comes from
    return value

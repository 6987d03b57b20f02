"""What a scan found of each model, and the report that it makes."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache, cached_property
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.redaction import leaving
from pytest_tfdebug.scan.errors import ScanError, Unresolved
from pytest_tfdebug.scan.read.files import replace
from pytest_tfdebug.scan.resolve.conditions import Condition, State

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    import pandas as pd

    from pytest_tfdebug.scan.read.tree import Record


#: Mixins that the report calls by another name.
ORIGINS = {"ModelTesterMixin": "common", "GenerationTesterMixin": "GenerationMixin"}


class ClassTests(NamedTuple):
    """A test class that pytest collects for a model, and the states of the common tests that it has."""

    model: str
    name: str
    states: dict[str, State]


class Mixin(NamedTuple):
    """A class that defines tests for others to inherit: what the report calls it, the length of its MRO, its tests."""

    origin: str
    size: int
    tests: frozenset[str]


class ModelScan(NamedTuple):
    """What a scan found of one model: its test classes, what they inherit tests from, and the bases not known."""

    model: str
    classes: list[ClassTests]
    mixins: list[Mixin]
    unresolved: list[Unresolved]
    unread: list[str]  # ``file:line: source`` of what makes or leaves out tests when it runs


class PartialScan(NamedTuple):
    """What a scan found in some models, what it left out and why, and what it read."""

    models: list[ModelScan]
    bad: dict[str, str]
    record: Record

    @classmethod
    def union(cls, parts: Sequence[PartialScan]) -> PartialScan:
        """Return what several parts of a scan found."""
        return cls(
            [model for part in parts for model in part.models],
            {path: reason for part in parts for path, reason in part.bad.items()},
            {path: said for part in parts for path, said in part.record.items()},
        )


def result(part: PartialScan, test: str | None) -> ScanResult:
    """Return the report of a scan of all tests, or of one; ScanError if there is nothing to report."""
    models, cases = part.models, dict[str, list[Case]]()
    for cls in sorted((cls for model in models for cls in model.classes), key=attrgetter("model", "name")):
        for name, state in cls.states.items():
            cases.setdefault(name, []).append(Case(cls.model, cls.name, _shown(state)))
    names = sorted(cases)
    mixins = {mixin for model in models for mixin in model.mixins}
    unresolved = sorted({base for model in models for base in model.unresolved}, key=attrgetter("path", "line"))
    bases = [f"{base.path}:{base.line}: {base.base}, a base of {base.cls}" for base in unresolved]
    left_out = [f"{path}: {reason}" for path, reason in sorted(part.bad.items())]
    unknown = _first("left out", left_out) + _first("not found", bases)
    _check(names, {name for mixin in mixins for name in mixin.tests}, len(models), test, unknown)
    tests = {}
    for name in names:
        roots = [(mixin.size, mixin.origin) for mixin in mixins if name in mixin.tests]
        named = {origin for _, origin in roots}
        origin = next((known for known in ORIGINS.values() if known in named), min(roots)[1])
        tests[name] = CommonTest(name, origin, tuple(cases[name]))
    unread = sorted({line for model in models for line in model.unread})
    return ScanResult(tests, sorted(model.model for model in models), part.bad, bases, unread)


@cache
def _shown(state: State) -> State:
    """Return a state whose texts may be shown: they are a repository's, and may hold its secrets."""
    if not (state.reason or state.condition):
        return state
    ways = tuple(tuple(map(leaving, way)) for way in state.condition.ways)
    return state._replace(reason=leaving(state.reason, keep="\n\t"), condition=Condition.of(ways))


def _first(what: str, lines: Sequence[str]) -> str:
    return f"\n  {what}: {lines[0]} (of {len(lines)})" if lines else ""


def _check(names: list[str], common: set[str], models: int, test: str | None, unknown: str) -> None:
    """Raise if a scan found no common test, or not the one asked for; ``unknown`` says what it could not read."""
    if not common:
        raise ScanError(
            f"No common tests: no class of the {models} models inherits a test_* method from a mixin "
            f"outside the models directory; check that the mixins' files are in the repository.{unknown}"
        )
    if not names and test is None:
        raise ScanError(
            f"No common tests: no class of the {models} models is known to have one of the {len(common)} tests that "
            f"their mixins define; check that the files of their base classes are in the repository.{unknown}"
        )
    if test is not None and test not in names:
        import difflib

        near = difflib.get_close_matches(test, common, n=3, cutoff=0.5)
        hint = f"did you mean {', '.join(near)}?" if near else "run without --test_method_name to list all."
        raise ScanError(f"{test!r} is not one of the {len(common)} common tests; {hint}")


#: The states in which a class does not run a test.
STOPPED = frozenset({"skipped", "vanished"})
_RUNNING = frozenset({"ran", "empty", "conditional", "partial"})
#: The lists of models in the JSON report -> whether a model is in it whose classes have these states. A test that is
#: skipped for a part of its parameters is ``partial``, and ``collected`` is what a run of pytest did not reach.
_MODELS: dict[str, Callable[[frozenset[str]], bool]] = {
    "models_ran": lambda states: bool(states & _RUNNING),
    "models_skipped": lambda states: not states & (_RUNNING | {"collected"}),
    "models_partially_skipped": lambda states: bool(states & _RUNNING and states & (STOPPED | {"partial"})),
    "models_conditional": lambda states: bool(states & {"conditional", "partial"}),
    "models_vanished": lambda states: "vanished" in states,
    "models_empty": lambda states: "empty" in states,
}
#: The keys of an entry, in the order of the JSON report.
_SUMMARY = (
    "origin", "models_ran", "models_skipped", "skipped_proportion", "reasons_skipped", "models_partially_skipped",
    "models_conditional", "models_vanished", "models_empty",
)  # fmt: skip
_encode = json.JSONEncoder(ensure_ascii=False).encode
_quoted = cache(_encode)  # of texts alone, as 1 and 1.0 are the same key


class Case(NamedTuple):
    """A test in a test class of a model."""

    model: str
    cls: str
    state: State


@dataclass(eq=False, repr=False)
class CommonTest:
    """A common test: the mixin that it comes from, and the classes that have it, by model."""

    name: str
    origin: str
    cases: tuple[Case, ...]

    @property
    def models_skipped(self) -> list[str]:
        """Models that have the test and run it in no class."""
        return self.lists["models_skipped"]

    @property
    def models_ran(self) -> list[str]:
        """Models of which a class collects the test and does not always skip it."""
        return self.lists["models_ran"]

    @property
    def skipped_proportion(self) -> float:
        """Share of the models that skip the test among those that have it."""
        ran, skipped = len(self.models_ran), len(self.models_skipped)
        return round(skipped / (skipped + ran), 4) if skipped or ran else 0.0

    @cached_property
    def lists(self) -> dict[str, list[str]]:
        """The lists of the JSON report: models by what they do, and the reasons of those that skip the test."""
        states: dict[str, set[str]] = {}
        reasons: dict[str, dict[str, None]] = {}
        for model, _, state in self.cases:
            word = "partial" if state.is_partial else state.state
            states.setdefault(model, set()).add(word)
            if word == "partial" or word in STOPPED:
                reasons.setdefault(model, {})[f"{model}: {state.reason}"] = None
        found: dict[str, list[str]] = {key: [] for key in _MODELS}
        for model, words in sorted(states.items()):
            for key in _keys(frozenset(words)):
                found[key].append(model)
        return {**found, "reasons_skipped": [reason for model in found["models_skipped"] for reason in reasons[model]]}

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the JSON report."""
        return {**_summary(self), "tests": [entry(case) for case in self.cases if case.state.state != "ran"]}


def _summary(test: CommonTest) -> dict[str, Any]:
    values = {"origin": test.origin, "skipped_proportion": test.skipped_proportion, **test.lists}
    return {key: values[key] for key in _SUMMARY}


@cache
def _keys(states: frozenset[str]) -> list[str]:
    return [key for key, is_in in _MODELS.items() if is_in(states)]


def entry(case: Case) -> dict[str, Any]:
    """Return the JSON entry of a test in a class."""
    return {"model": case.model, "class": case.cls, **case.state._asdict()}


@dataclass(eq=False, repr=False)
class ScanResult:
    """What a scan found, by test.

    Attributes:
        tests: The common tests, by name.
        models: Every model that has test files.
        skipped_files: Files that could not be read, with the reason.
        unresolved_bases: Base classes that were neither found nor known by name.
        unread: What makes or leaves out tests when it runs, ``file:line: source``.
    """

    tests: dict[str, CommonTest]
    models: list[str]
    skipped_files: dict[str, str]
    unresolved_bases: list[str]
    unread: list[str] = field(default_factory=list)

    def __getitem__(self, test: str) -> CommonTest:
        return self.tests[test]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tests)

    def __len__(self) -> int:
        return len(self.tests)

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Return the JSON report as dictionaries: test name to entry."""
        return {name: test.to_dict() for name, test in self.tests.items()}

    def to_dataframe(self, by: str = "test") -> pd.DataFrame:
        """Return the result as a table.

        Args:
            by: ``"test"`` for a row per test with the columns of the JSON report, or ``"class"`` for a row per test
                and class that has it, those that run included.

        Raises:
            ValueError: If ``by`` is neither.
        """
        import pandas as pd

        if by == "test":
            table: pd.DataFrame = pd.DataFrame.from_dict(self.to_dict(), orient="index").rename_axis("test")
            return table
        if by == "class":
            rows = [{"test": name, **entry(case)} for name, test in self.tests.items() for case in test.cases]
            cases: pd.DataFrame = pd.DataFrame(rows, columns=["test", "model", "class", *State._fields])
            return cases
        raise ValueError(f"by={by!r} is not one of 'test', 'class'")

    def to_json(self, path: str | os.PathLike[str]) -> Path:
        """Write the JSON report, atomically, and return where it is.

        Raises:
            ScanError: If the file cannot be written.
        """
        write(path, chunks(self.tests))
        return Path(path)

    def dumps(self) -> str:
        """Return the JSON report as text: two spaces of indentation, a line for each class."""
        return "".join(chunks(self.tests))


def chunks(tests: Mapping[str, CommonTest]) -> Iterator[str]:
    """Yield the JSON report of tests piece by piece: two spaces of indentation, a line for each class."""
    start = "{\n"
    for name, test in tests.items():
        told = [(case, text) for case in test.cases if (text := _text(case.state))]
        cases = [f'{{"model": {_quoted(it.model)}, "class": {_quoted(it.cls)}, {text}' for it, text in told]
        values = {
            key: _listed([*map(_quoted, value)]) if isinstance(value, list) else _encode(value)
            for key, value in _summary(test).items()
        }
        lines = ",\n".join([f'    "{key}": {text}' for key, text in (values | {"tests": _listed(cases)}).items()])
        yield f"{start}  {_encode(name)}: {{\n{lines}\n  }}"
        start = ",\n"
    yield "\n}\n" if tests else "{\n\n}\n"


def _listed(items: list[str]) -> str:
    return "[\n      " + ",\n      ".join(items) + "\n    ]" if items else "[]"


@cache
def _text(state: State) -> str:
    """Return the JSON of a state after that of its class; nothing for a test that just runs."""
    return "" if state.state == "ran" else _encode(state._asdict())[1:]


def write(path: str | os.PathLike[str], texts: Iterable[str]) -> tuple[int, int]:
    """Write a text piece by piece, so that the file is either all there or as it was, and return its stamp.

    Half of a surrogate pair, which UTF-8 does not have, is written as an escape, as JSON does.

    Raises:
        ScanError: If it cannot be written.
    """
    try:
        return replace(path, (text.encode(errors="backslashreplace") for text in texts))
    except OSError as error:
        raise ScanError(
            f"Cannot write {path}: {error.strerror or error}; name a writable directory with --output_dir."
        ) from error

"""What a scan found of each model: the report that it makes, and rows that JSON can hold."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

from pytest_tfdebug.scan.errors import ScanError, Unresolved
from pytest_tfdebug.scan.read.layout import is_owned
from pytest_tfdebug.scan.report.result import Case, CommonTest, ScanResult
from pytest_tfdebug.scan.state.states import State  # noqa: TC001 - msgspec reads the types of ``Rows``

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_tfdebug.scan.read.layout import Work
    from pytest_tfdebug.scan.read.tree import Record

#: Mixins that the report calls by another name.
ORIGINS = {"ModelTesterMixin": "common", "GenerationTesterMixin": "GenerationMixin"}


_T = TypeVar("_T")


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
    """What a scan found of one model: its test classes, what they inherit tests from, and the bases that are not known.

    ``uses`` are the files of models, its own included, that this depends on; None where that is not known.
    """

    model: str
    classes: list[ClassTests]
    mixins: list[Mixin]
    unresolved: list[Unresolved]
    uses: list[str] | None


class PartialScan(NamedTuple):
    """What a scan found in some models, what it left out and why, and what it read.

    ``shared`` are the files of models that files of no model import, so that all models may depend on them.
    """

    models: list[ModelScan]
    bad: dict[str, str]
    record: Record
    shared: list[str]

    @classmethod
    def union(cls, parts: Sequence[PartialScan]) -> PartialScan:
        """Return what several parts of a scan found."""
        return cls(
            [model for part in parts for model in part.models],
            {path: reason for part in parts for path, reason in part.bad.items()},
            {path: said for part in parts for path, said in part.record.items()},
            sorted({path for part in parts for path in part.shared}),
        )

    def without(self, work: Work, changed: set[str]) -> PartialScan | None:
        """Return what still stands after some files have changed; None if all models have to be scanned."""
        owned = frozenset(where.owned for where in work.places)
        if not {"", *changed}.isdisjoint(self.shared) or not all(is_owned(path, owned) for path in changed):
            return None
        by_model = work.by_model()
        stand = {each.model for each in self.models if each.uses is not None and changed.isdisjoint(each.uses)}
        gone = frozenset(where.owned for where in work.places if where.model not in stand)
        models = [each for each in self.models if each.model in stand and each.model in by_model]
        bad = {path: why for path, why in self.bad.items() if not is_owned(path, gone)}
        return self._replace(models=models, bad=bad)


def result(part: PartialScan, test: str | None) -> ScanResult:
    """Return the report of a scan of all tests, or of one; ScanError if there is nothing to report."""
    models, cases = part.models, dict[str, list[Case]]()
    for cls in sorted((cls for model in models for cls in model.classes), key=attrgetter("model", "name")):
        for name, state in cls.states.items():
            cases.setdefault(name, []).append(Case(cls.model, cls.name, state))
    names = sorted(cases)
    mixins = {mixin for model in models for mixin in model.mixins}
    _check(names, {name for mixin in mixins for name in mixin.tests}, len(models), test)
    tests = {}
    for name in names:
        roots = [(mixin.size, mixin.origin) for mixin in mixins if name in mixin.tests]
        named = {origin for _, origin in roots}
        origin = next((known for known in ORIGINS.values() if known in named), min(roots)[1])
        tests[name] = CommonTest(name, origin, tuple(cases[name]))
    unresolved = sorted({base for model in models for base in model.unresolved}, key=attrgetter("path", "line"))
    bases = [f"{base.path}:{base.line}: {base.base}, a base of {base.cls}" for base in unresolved]
    return ScanResult(tests, sorted(model.model for model in models), part.bad, bases)


def _check(names: list[str], common: set[str], models: int, test: str | None) -> None:
    """Raise if a scan found no common test, or not the one that was asked for."""
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


class Rows(TypedDict):
    """What a scan found as JSON holds it: tests, states and mixins stand once, and elsewhere by their number."""

    tests: list[str]
    states: list[State]
    mixins: list[tuple[str, int, list[int]]]
    models: list[tuple[str, list[tuple[str, list[int], list[int]]], list[int], list[Unresolved], list[str] | None]]
    shared: list[str]


def to_rows(part: PartialScan) -> Rows:
    """Return what a scan found as lists, texts and numbers."""
    tests: dict[str, int] = {}
    states: dict[State, int] = {}
    mixins: dict[Mixin, int] = {}

    def numbered(numbers: dict[_T, int], items: Iterable[_T]) -> list[int]:
        return [numbers.setdefault(item, len(numbers)) for item in items]

    models: Any = [
        (
            model,
            [(name, numbered(tests, each), numbered(states, each.values())) for _, name, each in classes],
            numbered(mixins, own),
            unresolved,
            uses,
        )
        for model, classes, own, unresolved, uses in part.models
    ]
    kept = [(mixin.origin, mixin.size, numbered(tests, sorted(mixin.tests))) for mixin in mixins]
    return Rows(tests=list(tests), states=list(states), mixins=kept, models=models, shared=part.shared)


def from_rows(rows: Any, bad: dict[str, str], record: Record) -> PartialScan:
    """Return what rows hold, with what was left out and read; one of the cache's ``MISTAKES`` if they are no such."""
    from msgspec import convert

    kept = convert(rows, Rows, dec_hook=lambda kind, text: kind(text))
    test, state = kept["tests"].__getitem__, kept["states"].__getitem__
    mixins = [Mixin(origin, size, frozenset(map(test, own))) for origin, size, own in kept["mixins"]]
    models = []
    for model, classes, own, unresolved, uses in kept["models"]:
        found = [
            ClassTests(model, name, dict(zip(map(test, names), map(state, states), strict=True)))
            for name, names, states in classes
        ]
        inherited = [mixins[number] for number in own]
        if not set().union(*(cls.states for cls in found)) <= set().union(*(mixin.tests for mixin in inherited)):
            raise ValueError("a test of no mixin")
        models.append(ModelScan(model, found, inherited, unresolved, uses))
    return PartialScan(models, bad, record, kept["shared"])

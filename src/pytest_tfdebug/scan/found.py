"""What a scan found of each model, and the report that it makes."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.report import Case, CommonTest, ScanResult

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pytest_tfdebug.scan.states import State

#: Mixins that the report calls by another name.
ORIGINS = {"ModelTesterMixin": "common", "GenerationTesterMixin": "GenerationMixin"}


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
        uses: The files of models, its own included, that this rests on; None where that is not known.
    """

    model: str
    classes: list[ClassTests]
    mixins: list[Mixin]
    unresolved: list[Unresolved]
    uses: list[str] | None


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

"""What a scan found of each model, and the report that it makes."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.scan.errors import ScanError, Unresolved
from pytest_tfdebug.scan.report.result import Case, CommonTest, ScanResult
from pytest_tfdebug.scan.state.states import State  # noqa: TC001 - msgspec reads the types of ``Rows``

if TYPE_CHECKING:
    from collections.abc import Sequence

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

"""The answer of a scan: one entry a test, in the form that the transformers script made known, and more."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.errors import ScanError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pandas as pd

    from pytest_tfdebug.scan.states import State

#: The states in which a class does not run a test.
STOPPED = frozenset({"skipped", "vanished"})
#: Those and the state of a test that a run of pytest collected and did not reach.
_NOT_RUN = STOPPED | {"collected"}
ALL_TESTS = "all_tests_scan_result"


class Case(NamedTuple):
    """A test in a test class of a model."""

    model: str
    cls: str
    state: State


class CommonTest(NamedTuple):
    """A common test: where it comes from and what each model does with it."""

    name: str
    origin: str
    cases: tuple[Case, ...]

    @property
    def by_model(self) -> dict[str, list[Case]]:
        """The cases of each model."""
        models: dict[str, list[Case]] = {}
        for case in self.cases:
            models.setdefault(case.model, []).append(case)
        return dict(sorted(models.items()))

    @property
    def models_skipped(self) -> list[str]:
        """Models that have the test and run it in no class."""
        return self.summary()["models_skipped"]  # type: ignore[no-any-return]

    @property
    def models_ran(self) -> list[str]:
        """Models of which a class collects the test and does not always skip it."""
        return self.summary()["models_ran"]  # type: ignore[no-any-return]

    @property
    def skipped_proportion(self) -> float:
        """Share of the models that skip the test among those that have it."""
        return self.summary()["skipped_proportion"]  # type: ignore[no-any-return]

    def summary(self) -> dict[str, Any]:
        """Return the entry of the JSON report without its classes."""
        by_model = self.by_model
        ran, skipped, partial, reasons = [], [], [], []
        models: dict[str, list[str]] = {"conditional": [], "vanished": [], "empty": []}
        for model, cases in by_model.items():
            states = {case.state.state for case in cases}
            if states <= STOPPED:
                skipped.append(model)
                reasons += [f"{model}: {reason}" for reason in dict.fromkeys(case.state.reason for case in cases)]
            elif not states <= _NOT_RUN:
                ran.append(model)
                if any(_is_partial(case.state) for case in cases):
                    partial.append(model)
            for state in states & models.keys():
                models[state].append(model)
        return {
            "origin": self.origin,
            "models_ran": ran,
            "models_skipped": skipped,
            "skipped_proportion": round(len(skipped) / (len(skipped) + len(ran)), 4) if skipped or ran else 0.0,
            "reasons_skipped": reasons,
            "models_partially_skipped": partial,
            "models_conditional": models["conditional"],
            "models_vanished": models["vanished"],
            "models_empty": models["empty"],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the JSON report."""
        return {**self.summary(), "tests": [entry(case) for case in self.cases if case.state.state != "ran"]}


def _is_partial(state: State) -> bool:
    return state.state in STOPPED or (state.state == "conditional" and state.condition.startswith("only "))


def entry(case: Case) -> dict[str, Any]:
    """Return the JSON entry of a test in a class."""
    state = case.state
    return {
        "model": case.model,
        "class": case.cls,
        "state": state.state,
        "form": state.form,
        "reason": state.reason,
        "condition": state.condition,
        "file": state.file,
        "line": state.line,
    }


class ScanResult:
    """What a scan found, by test.

    Attributes:
        tests: The common tests, by name.
        models: Every model that has test files.
        skipped_files: Files that could not be read, with the reason.
        unresolved_bases: Base classes that were neither found nor known by name.
    """

    def __init__(
        self,
        tests: dict[str, CommonTest],
        models: list[str],
        skipped_files: dict[str, str],
        unresolved_bases: list[str],
    ) -> None:
        self.tests, self.models = tests, models
        self.skipped_files, self.unresolved_bases = skipped_files, unresolved_bases

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
            rows = self.to_dict()
            table: pd.DataFrame = pd.DataFrame.from_dict(rows, orient="index").rename_axis("test")
            return table
        if by == "class":
            cases: pd.DataFrame = pd.DataFrame(
                [{"test": name, **entry(case)} for name, test in self.tests.items() for case in test.cases],
                columns=["test", "model", "class", "state", "form", "reason", "condition", "file", "line"],
            )
            return cases
        raise ValueError(f"by={by!r} is not one of 'test', 'class'")

    def to_json(self, path: str | os.PathLike[str]) -> Path:
        """Write the JSON report, atomically, and return where it is.

        Raises:
            ScanError: If the file cannot be written.
        """
        return write_text(Path(path), self.dumps)

    def dumps(self) -> str:
        """Return the JSON report as text: two spaces of indentation, a line for each class."""
        encoder = _Encoder()
        return encoder.report((name, test.summary(), test.cases) for name, test in self.tests.items())


class _Encoder:
    """Writes a report as JSON; what many classes share is encoded once."""

    def __init__(self) -> None:
        self._encode = json.JSONEncoder(ensure_ascii=False).encode
        self._classes: dict[tuple[str, str], str] = {}
        self._states: dict[int, str] = {}  # by identity: the cases keep the states alive

    def report(self, tests: Iterable[tuple[str, dict[str, Any], tuple[Case, ...]]]) -> str:
        """Return the text of a report."""
        bodies = (f"  {self._encode(name)}: {{\n{self._test(summary, cases)}\n  }}" for name, summary, cases in tests)
        return "{\n" + ",\n".join(bodies) + "\n}\n"

    def _test(self, summary: dict[str, Any], cases: tuple[Case, ...]) -> str:
        lines = [f"    {self._encode(key)}: {self._value(value)}" for key, value in summary.items()]
        entries = [self._case(case) for case in cases if case.state.state != "ran"]
        lines.insert(9, f'    "tests": {self._listed(entries)}')
        return ",\n".join(lines)

    def _value(self, value: Any) -> str:  # noqa: ANN401 - values of JSON
        return self._listed(list(map(self._encode, value))) if isinstance(value, list) else self._encode(value)

    def _listed(self, items: list[str]) -> str:
        return "[\n      " + ",\n      ".join(items) + "\n    ]" if items else "[]"

    def _case(self, case: Case) -> str:
        cls = self._classes.get(case[:2])
        if cls is None:
            cls = self._classes[case[:2]] = self._encode({"model": case.model, "class": case.cls})[:-1]
        state = self._states.get(id(case.state))
        if state is None:
            state = self._states[id(case.state)] = f", {self._encode(case.state._asdict())[1:]}"
        return cls + state


def dumps(tests: Mapping[str, CommonTest], extra: Mapping[str, dict[str, Any]]) -> str:
    """Return the JSON report of tests, each with further keys."""
    return _Encoder().report((name, {**test.summary(), **extra[name]}, test.cases) for name, test in tests.items())


def write_text(path: Path, text: Callable[[], str | bytes]) -> Path:
    """Write a file so that it is either all there or as it was.

    Raises:
        ScanError: If it cannot be written.
    """
    temporary = ""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        content = text()
        with os.fdopen(handle, "wb") as file:
            file.write(content if isinstance(content, bytes) else content.encode())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except OSError as error:
        if temporary:
            Path(temporary).unlink(missing_ok=True)
        raise ScanError(
            f"Cannot write {path}: {error.strerror or error}; name a writable directory with --output_dir."
        ) from error
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask

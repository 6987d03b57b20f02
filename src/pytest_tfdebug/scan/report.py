"""The answer of a scan: one entry a test, in the form that the transformers script made known, and more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.files import replace

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping

    import pandas as pd
    from typing_extensions import Buffer

    from pytest_tfdebug.scan.states import State

#: The states in which a class does not run a test.
STOPPED = frozenset({"skipped", "vanished"})
_RAN, _SKIPPED, _VANISHED, _EMPTY, _CONDITIONAL, _PARTIAL, _COLLECTED = (1 << bit for bit in range(7))
_RUNNING = _RAN | _EMPTY | _CONDITIONAL | _PARTIAL
_STOPPING, _DEPENDING = _SKIPPED | _VANISHED | _PARTIAL, _CONDITIONAL | _PARTIAL
#: The bit of each state; a test that is skipped for a part of its parameters is conditional and has one of its own, and
#: ``collected`` is what a run of pytest did not reach.
_FLAGS = {
    "ran": _RAN,
    "skipped": _SKIPPED,
    "vanished": _VANISHED,
    "empty": _EMPTY,
    "conditional": _CONDITIONAL,
    "collected": _COLLECTED,
}
_SEPARATOR = ",\n      "


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
        found: dict[str, int] = {}
        flags: dict[int, int] = {}
        for model, _, state in self.cases:
            if id(state) not in flags:
                is_partial = state.state == "conditional" and state.condition.startswith("only ")
                flags[id(state)] = _PARTIAL if is_partial else _FLAGS[state.state]
            found[model] = found.get(model, 0) | flags[id(state)]
        models = sorted(found.items())
        ran = [model for model, flag in models if flag & _RUNNING]
        skipped = [model for model, flag in models if not flag & (_RUNNING | _COLLECTED)]
        reasons = {model: dict[str, None]() for model in skipped}
        for model, _, state in self.cases if skipped else ():
            if model in reasons:
                reasons[model][state.reason] = None
        return {
            "origin": self.origin,
            "models_ran": ran,
            "models_skipped": skipped,
            "skipped_proportion": round(len(skipped) / (len(skipped) + len(ran)), 4) if skipped or ran else 0.0,
            "reasons_skipped": [f"{model}: {reason}" for model in skipped for reason in reasons[model]],
            "models_partially_skipped": [model for model, flag in models if flag & _RUNNING and flag & _STOPPING],
            "models_conditional": [model for model, flag in models if flag & _DEPENDING],
            "models_vanished": [model for model, flag in models if flag & _VANISHED],
            "models_empty": [model for model, flag in models if flag & _EMPTY],
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the entry of the JSON report."""
        return {**self.summary(), "tests": [entry(case) for case in self.cases if case.state.state != "ran"]}


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
        return dumps(self.tests, {})


def dumps(tests: Mapping[str, CommonTest], extra: Mapping[str, dict[str, Any]]) -> str:
    """Return the JSON report of tests, each with further keys."""
    summaries = {name: {**test.summary(), **extra.get(name, {})} for name, test in tests.items()}
    return b"".join(encode(tests, summaries)).decode()


def encode(tests: Mapping[str, CommonTest], summaries: Mapping[str, dict[str, Any]]) -> Iterator[bytes]:
    """Yield the JSON report of tests in pieces, from the summary of each."""
    encoder = _Encoder()
    start = "{\n"
    for name, test in tests.items():
        yield encoder.test(start, name, summaries[name], test.cases)
        start = ",\n"
    yield b"\n}\n"


class _Encoder:
    """Writes a report as JSON; what many classes share is encoded once."""

    def __init__(self) -> None:
        self._encode = json.JSONEncoder(ensure_ascii=False).encode
        self._encode_lines = json.JSONEncoder(ensure_ascii=False, separators=(_SEPARATOR, ": ")).encode
        self._classes: dict[tuple[str, str], bytes] = {}
        self._states: dict[int, bytes] = {}  # by identity: the cases keep the states alive

    def test(self, start: str, name: str, summary: dict[str, Any], cases: tuple[Case, ...]) -> bytes:
        """Return the text of a test, after ``start``: its summary, the classes after what every report has of it."""
        lines = [f"    {self._encode(key)}: {self._value(value)}" for key, value in summary.items()]
        head = f"{start}  {self._encode(name)}: {{\n" + ",\n".join(lines[:9]) + ',\n    "tests": ['
        tail = "".join(f",\n{line}" for line in lines[9:]) + "\n  }"
        return b"".join([head.encode(), *self._cases(cases), b"]", tail.encode()])

    def _value(self, value: Any) -> str:  # noqa: ANN401 - values of JSON
        if not isinstance(value, list) or not value:
            return self._encode(value)
        return f"[\n      {self._encode_lines(value)[1:-1]}\n    ]"

    def _cases(self, cases: tuple[Case, ...]) -> list[bytes]:
        """Return what stands in the brackets around the classes that do not just run a test, in pieces."""
        pieces: list[bytes] = []
        classes, states = self._classes, self._states
        for model, cls, state in cases:
            text = states.get(id(state))
            if text is None:
                text = states[id(state)] = self._state(state)
            if text:
                if (model, cls) not in classes:
                    start = f"{_SEPARATOR}{self._encode({'model': model, 'class': cls})[:-1]}, "
                    classes[model, cls] = start.encode()
                pieces += (classes[model, cls], text)
        if pieces:
            pieces[0] = pieces[0][1:]
            pieces.append(b"\n    ")
        return pieces

    def _state(self, state: State) -> bytes:
        return self._encode(state._asdict())[1:].encode() if state.state != "ran" else b""


def write_text(path: Path, text: Callable[[], str | Iterable[Buffer]]) -> Path:
    """Write a file so that it is either all there or as it was.

    Raises:
        ScanError: If it cannot be written.
    """
    content = text()
    try:
        replace(path, [content.encode()] if isinstance(content, str) else content)
    except OSError as error:
        raise ScanError(
            f"Cannot write {path}: {error.strerror or error}; name a writable directory with --output_dir."
        ) from error
    return path

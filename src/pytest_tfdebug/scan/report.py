"""The answer of a scan: one entry a test, in the form that the transformers script made known, and more."""

from __future__ import annotations

import json
from collections import defaultdict
from itertools import chain
from json.encoder import encode_basestring
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, SupportsIndex, TypeAlias

from pytest_tfdebug.scan.errors import ScanError
from pytest_tfdebug.scan.files import replace

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    import pandas as pd
    from typing_extensions import Buffer

    from pytest_tfdebug.scan.states import State

    #: The states of the tests of a class, as ``states.Decided`` holds them.
    _Decided: TypeAlias = tuple[State, AbstractSet[str], Mapping[str, State]]
    #: What a class does with a test: the JSON of its model, the flag and reason of the state, and the JSON of both.
    _Cell: TypeAlias = tuple[str, int, str, bytes, bytes]

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
#: The lists of models in the JSON report -> whether a model whose classes have these flags is in it.
_MODELS: dict[str, Callable[[int], int | bool]] = {
    "models_ran": lambda flag: flag & _RUNNING,
    "models_skipped": lambda flag: not flag & (_RUNNING | _COLLECTED),
    "models_partially_skipped": lambda flag: flag & _RUNNING and flag & _STOPPING,
    "models_conditional": lambda flag: flag & _DEPENDING,
    "models_vanished": lambda flag: flag & _VANISHED,
    "models_empty": lambda flag: flag & _EMPTY,
}
_LISTS = (*_MODELS, "reasons_skipped")
#: The keys of an entry, in the order of the JSON report.
_SUMMARY = (
    "origin", "models_ran", "models_skipped", "skipped_proportion", "reasons_skipped", "models_partially_skipped",
    "models_conditional", "models_vanished", "models_empty",
)  # fmt: skip
_SEPARATOR = ",\n      "
#: The JSON of a state after that of its class, up to the end.
_STATE = '"state": %s, "form": %s, "reason": %s, "condition": %s, "file": %s, "line": %d}'
_encode = json.JSONEncoder(ensure_ascii=False).encode


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
        column = self.column()
        lists = {key: json.loads(b"".join(_listed(column.lists.get(key, [])))) for key in _LISTS}
        values = {"origin": self.origin, "skipped_proportion": column.share, **lists}
        return {key: values[key] for key in _SUMMARY}

    def column(self) -> Column:
        """Return what the models do with the test."""
        cases = sorted(self.cases, key=itemgetter(0))
        found = columns((model, cls, (state, {self.name}, {})) for model, cls, state in cases)
        return found.get(self.name, Column({}, {}, []))

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
        from pathlib import Path

        write_text(path, self.dumps)
        return Path(path)

    def dumps(self) -> str:
        """Return the JSON report as text: two spaces of indentation, a line for each class."""
        return dumps(self.tests, {})


def dumps(tests: Mapping[str, CommonTest], extra: Mapping[str, dict[str, Any]]) -> str:
    """Return the JSON report of tests, each with further keys."""
    entries = ((name, test.origin, test.column(), extra.get(name, {})) for name, test in tests.items())
    return b"".join(encode(entries)).decode()


class Column(NamedTuple):
    """What some models do with one test, as JSON in pieces, with the lengths of the lists."""

    counts: dict[str, int]
    lists: dict[str, list[bytes]]
    classes: Sequence[Buffer]

    def __reduce_ex__(self, protocol: SupportsIndex) -> tuple[Any, ...]:
        """Give pickle the long pieces as buffers, which need not be copied."""
        from pickle import PickleBuffer

        return Column, (self.counts, self.lists, [PickleBuffer(piece) for piece in self.classes])

    def __add__(self, after: Column) -> Column:  # type: ignore[override]
        """Return what these models and others that follow them do."""
        return Column(
            {key: self.counts.get(key, 0) + after.counts.get(key, 0) for key in _LISTS},
            {key: self.lists.get(key, []) + after.lists.get(key, []) for key in _LISTS},
            [*self.classes, *after.classes],
        )

    @property
    def share(self) -> float:
        """Share of the models that skip the test among those that have it."""
        ran, skipped = self.counts.get("models_ran", 0), self.counts.get("models_skipped", 0)
        return round(skipped / (skipped + ran), 4) if skipped or ran else 0.0


def columns(classes: Iterable[tuple[str, str, _Decided]]) -> dict[str, Column]:
    """Return what models do with each test, from the model, name and states of each of their test classes.

    The classes of a model must follow each other.
    """
    cells: defaultdict[str, list[_Cell]] = defaultdict(list)
    known: dict[int, tuple[int, bytes, State]] = {}  # by identity, which the state in it keeps alive
    for model, cls, (base, left, given) in classes:
        name = encode_basestring(model)
        head = f'{_SEPARATOR}{{"model": {name}, "class": {encode_basestring(cls)}, '.encode()
        text = _text(base)
        cell = name, _flag(base), base.reason, head if text else b"", text
        for test in left:
            cells[test].append(cell)
        for test, state in given.items():
            flag, text, _ = known.get(id(state)) or known.setdefault(id(state), (_flag(state), _text(state), state))
            cells[test].append((name, flag, state.reason, head if text else b"", text))
    return {test: _column(column) for test, column in cells.items()}


def _column(cells: list[_Cell]) -> Column:
    models, kinds, reasons, *texts = zip(*cells, strict=True)
    flags = dict(zip(models, kinds, strict=True))
    if len(flags) < len(models):  # a model has several classes
        flags = dict.fromkeys(models, 0)
        for model, kind in zip(models, kinds, strict=True):
            flags[model] |= kind
    why: dict[str, dict[str, None]] = {}
    if any(kind & _STOPPING for kind in set(kinds)):
        for model, kind, reason in zip(models, kinds, reasons, strict=True):
            if kind & _STOPPING:
                why.setdefault(model, {})[reason] = None
    lists = _lists(flags, why)
    return Column(
        {key: len(items) for key, items in lists.items()},
        {key: [_items(items)] for key, items in lists.items()},
        [b"".join(chain.from_iterable(zip(*texts, strict=True)))],
    )


def _lists(flags: dict[str, int], reasons: dict[str, dict[str, None]]) -> dict[str, list[str]]:
    """Return the items of the lists of the JSON report, from the flags and the reasons of each model."""
    kinds = set(flags.values())
    chosen = {key: [kind for kind in kinds if is_in(kind)] for key, is_in in _MODELS.items()}
    lists = {
        key: list(flags) if len(some) == len(kinds) else [model for model, flag in flags.items() if flag in some]
        for key, some in chosen.items()
        if some
    }
    skipped = lists.get("models_skipped", ())
    told = [f"{model[:-1]}: {encode_basestring(reason)[1:]}" for model in skipped for reason in reasons[model]]
    return {**lists, "reasons_skipped": told}


def _flag(state: State) -> int:
    is_partial = state.state == "conditional" and state.condition.startswith("only ")
    return _PARTIAL if is_partial else _FLAGS[state.state]


def _text(state: State) -> bytes:
    """Return the JSON of a state after that of its class; nothing for a test that just runs."""
    if state.state == "ran":
        return b""
    *texts, line = state
    return _encoded(_STATE % (*map(encode_basestring, texts), line))


def _encoded(text: str) -> bytes:
    """Return text in UTF-8, which has half of a surrogate pair only as an escape, as JSON does."""
    return text.encode(errors="backslashreplace")


def encode(tests: Iterable[tuple[str, str, Column, dict[str, Any]]]) -> Iterator[Buffer]:
    """Yield the JSON report of tests in pieces, from the name, origin, column and further keys of each."""
    start = "{\n"
    for name, origin, column, extra in tests:
        yield f"{start}  {_encode(name)}: {{\n".encode()
        single = {"origin": origin, "skipped_proportion": column.share}
        for key in _SUMMARY:
            yield f"    {_encode(key)}: ".encode()
            yield from [_encode(single[key]).encode()] if key in single else _listed(column.lists.get(key, []))
            yield b",\n"
        yield b'    "tests": '
        yield from _listed(column.classes)
        for key, value in extra.items():
            yield f",\n    {_encode(key)}: ".encode()
            yield from _listed([_items(map(_encode, value))]) if isinstance(value, list) else [_encode(value).encode()]
        yield b"\n  }"
        start = ",\n"
    yield b"\n}\n"


def _items(values: Iterable[str]) -> bytes:
    """Return the items of a JSON list, each after a separator, from their JSON."""
    return _encoded(_SEPARATOR.join(["", *values]))


def _listed(parts: Iterable[Buffer]) -> Iterator[Buffer]:
    """Yield a JSON list from its items in pieces, each after a separator."""
    filled = [view for part in parts if (view := memoryview(part))]
    yield b"["
    if filled:
        yield filled[0][1:]  # but for the comma
        yield from filled[1:]
        yield b"\n    "
    yield b"]"


def write_text(path: str | os.PathLike[str], text: Callable[[], str | Iterable[Buffer]]) -> None:
    """Write a file so that it is either all there or as it was.

    Raises:
        ScanError: If it cannot be written.
    """
    content = text()
    try:
        replace(path, [_encoded(content)] if isinstance(content, str) else content)
    except OSError as error:
        raise ScanError(
            f"Cannot write {path}: {error.strerror or error}; name a writable directory with --output_dir."
        ) from error

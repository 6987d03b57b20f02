"""What a run has collected, what runs now, and what its processes tell each other; loaded in every run of pytest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pytest_tfdebug.generators import States

_T = TypeVar("_T")


class Running:
    """What runs now; the one global state of the package."""

    item: pytest.Item | None = None  # pytest runs one test at a time, whatever threads that starts
    random: States | None = None  # what generators of random numbers held before that test and its fixtures


RUNNING = Running()


#: Options with which a collected file may not show all of its tests.
_NARROWING = ("lf", "collectonly")


class Collected:
    """What this process's run has collected."""

    def __init__(self) -> None:
        self.items: tuple[pytest.Item, ...] = ()
        self.seen: dict[Path, str] = {}
        self.broken: set[Path] = set()

    @classmethod
    def of(cls, config: pytest.Config) -> Collected:
        """Return the run's one object."""
        return config.stash.setdefault(_COLLECTED, cls())

    def note(self, collector: pytest.Collector, report: pytest.CollectReport) -> None:
        """Note that a file or class was asked for its tests."""
        if not isinstance(collector, (pytest.File, pytest.Class)) or type(collector).__name__.startswith("Doctest"):
            return
        if not report.passed:
            self.broken.add(collector.path)
        elif isinstance(collector, pytest.File):
            self.seen[collector.path] = collector.nodeid

    def whole(self, config: pytest.Config) -> dict[Path, str]:
        """Return the test files, with their node ids, of which this run knows every test.

        There are none where it was asked for single tests, or need not have seen all of them.
        """
        narrowed = any(config.getoption(name, default=False) for name in _NARROWING)
        overridden: Sequence[str] = config.getoption("override_ini", default=None) or ()
        if narrowed or any("::" in argument for argument in config.args):
            return {}
        if any(text.startswith("python_") for text in overridden):  # which functions and classes are tests
            return {}
        return {file: nodeid for file, nodeid in self.seen.items() if file not in self.broken}


_COLLECTED: pytest.StashKey[Collected] = pytest.StashKey()


def told(config: pytest.Config, key: str) -> Any:  # noqa: ANN401 - a JSON value
    """Return what the process that prints told this worker; None in that process itself."""
    return getattr(config, "workerinput", {}).get(key)


def hand_over(config: pytest.Config, key: str, record: object) -> bool:
    """Leave a record for the process that prints when the run ends; return False in that process itself."""
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output[key] = as_text(record)
    return output is not None


def handed_over(node: Any, key: str, kind: type[_T]) -> _T | None:  # noqa: ANN401 - a worker, and xdist is not typed
    """Return the record that a worker has left; None of one that left none, or died."""
    text = getattr(node, "workeroutput", {}).get(key)
    return None if text is None else read(text, kind)


def as_text(record: object) -> str:
    """Return a dataclass or a named tuple as JSON."""
    import msgspec

    return msgspec.json.encode(record).decode()


def read(text: str, kind: type[_T]) -> _T:
    """Return the record that a JSON text holds."""
    import msgspec

    return msgspec.json.decode(text, type=kind)

"""What a run has collected: which test files as a whole, and which of their tests.

It is loaded in every run of pytest, and imports pytest alone.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: Options with which a collected file may not show all of its tests.
_NARROWING = ("lf", "collectonly")
#: Names within a file or class, and those among them that some file systems cannot tell apart.
_CHILDREN: pytest.StashKey[list[str]] = pytest.StashKey()
_TWINS: pytest.StashKey[frozenset[str]] = pytest.StashKey()


class Collected:
    """What this process's run has collected."""

    def __init__(self) -> None:
        self.items: tuple[pytest.Item, ...] = ()
        self.seen: dict[Path, str] = {}
        self.broken: set[Path] = set()

    @classmethod
    def of(cls, config: pytest.Config) -> Collected:
        """Return the run's one object."""
        if _COLLECTED not in config.stash:
            config.stash[_COLLECTED] = cls()
        return config.stash[_COLLECTED]

    def note(self, collector: pytest.Collector, report: pytest.CollectReport) -> None:
        """Note that a collector was asked for its tests."""
        if not isinstance(collector, (pytest.File, pytest.Class)) or type(collector).__name__.startswith("Doctest"):
            return
        if not report.passed:
            self.broken.add(collector.path)
            return
        collector.stash[_CHILDREN] = [child.name for child in report.result]
        if isinstance(collector, pytest.File):
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


def has_twin(item: pytest.Item) -> bool:
    """Tell whether another test of the file has a name that differs in case alone: some file systems see no difference.

    All tests of the file count, also those that this run leaves out.
    """
    return any(node.parent is not None and node.name in _twins(node.parent) for node in item.listchain())


def _twins(collector: pytest.Collector) -> frozenset[str]:
    """Return the names within a file or class that differ from another one in case alone."""
    if _TWINS not in collector.stash:
        children: list[str] = collector.stash.get(_CHILDREN, [])
        names = set(children)
        count = Counter(name.casefold() for name in names)
        collector.stash[_TWINS] = frozenset(name for name in names if count[name.casefold()] > 1)
    return collector.stash[_TWINS]

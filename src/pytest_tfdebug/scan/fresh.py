"""A scan for the command line: of everything, or of the models whose files have changed since an earlier one."""

from __future__ import annotations

import gc
import sys
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.scan.found import result
from pytest_tfdebug.scan.layout import is_owned, model_files
from pytest_tfdebug.scan.rows import MISTAKES, from_rows, to_rows
from pytest_tfdebug.scan.tree import DiskTree, Record
from pytest_tfdebug.scan.workers import Part, Work, scan_here, scan_shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_tfdebug.scan.report import ScanResult


class Fresh:
    """A scan of a work tree.

    Args:
        repo: Its root.
        models_dir: Where its models are, if that was told.
        test: The one test to scan, or None for all.
        is_strict: Read every file whole.

    Raises:
        ScanError: If there are no model tests.
    """

    def __init__(self, repo: str, models_dir: str, test: str | None, *, is_strict: bool) -> None:
        self._tree = DiskTree(repo)
        places = tuple(model_files(self._tree, models_dir))
        self._work = Work(repo, places, test, is_strict)
        self._part = Part([], {}, Record({}, {}), [])

    def scan(self) -> None:
        """Scan every model."""
        self._tell(len(self._work.places))
        with _uncollected():
            self._part = scan_shown(self._work, self._tree)

    def update(self, rows: Any, record: Record, bad: dict[str, str], changed: set[str]) -> bool:  # noqa: ANN401
        """Scan the models that rest on changed files, and take what an earlier scan found of the others.

        Args:
            rows: What it found, as JSON held it.
            record: What it read.
            bad: The files that it left out.
            changed: The files that have changed since.

        Returns:
            Whether that can be told: where a file has changed that belongs to no model, every model has to be scanned.
        """
        owned = frozenset(where.owned for where in self._work.places)
        if not all(is_owned(path, owned) for path in changed):
            return False
        try:
            models = {model.model: model for model in from_rows(rows)}
            shared = set(rows["shared"])
        except MISTAKES:
            return False
        by_model = self._work.by_model()
        if models.keys() != by_model.keys() or not changed.isdisjoint(shared) or "" in shared:
            return False
        hit = [model.model for model in models.values() if model.uses is None or not changed.isdisjoint(model.uses)]
        self._tell(sum(len(by_model[model]) for model in hit))
        with _uncollected():
            part = scan_here(self._work, self._tree, hit)
        models.update((model.model, model) for model in part.models)
        gone = frozenset(where.owned for model in hit for where in by_model[model])
        kept = {path: why for path, why in bad.items() if not is_owned(path, gone)}
        self._part = Part(
            list(models.values()),
            kept | part.bad,
            Record.union([record, part.record]),
            sorted(shared.union(part.shared)),
        )
        return True

    @staticmethod
    def _tell(files: int) -> None:
        sys.stderr.write(f"🔬 Parsing {files} model test files once each...\n")
        sys.stderr.flush()

    @property
    def record(self) -> Record:
        """What the scan read of the work tree."""
        return Record.union([self._part.record, self._tree.record])

    @cached_property
    def result(self) -> ScanResult:
        """The report."""
        return result(self._part.models, self._part.bad, self._work.test)

    def rows(self) -> dict[str, Any]:
        """Return what the next scan may use."""
        return {**to_rows(self._part.models), "shared": self._part.shared}


@contextmanager
def _uncollected() -> Iterator[None]:
    """Keep Python from looking for garbage: a scan makes much and drops little until it ends."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()

"""A scan's work: model by model, in several processes where that pays."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from pytest_tfdebug.scan.read.layout import Work, is_owned
from pytest_tfdebug.scan.read.tree import DiskTree, Record, Tree
from pytest_tfdebug.scan.report.found import Part
from pytest_tfdebug.scan.scanner import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable


_T = TypeVar("_T")

#: The fewest model test files for which more processes pay, and the most processes.
SHARED, _PROCESSES = 48, 4
#: How many models are scanned before more processes start, and in how many parts each process takes the others.
_FIRST, _PARTS = 4, 6


def hit(work: Work, earlier: Part, changed: set[str]) -> list[str] | None:
    """Return the models that have to be scanned after some files have changed; None if all have to be."""
    owned = frozenset(where.owned for where in work.places)
    is_of_models = all(is_owned(path, owned) for path in changed)
    if not is_of_models or "" in earlier.shared or not changed.isdisjoint(earlier.shared):
        return None
    found = {model.model: model.uses for model in earlier.models}
    return [each for each in work.by_model() if (uses := found.get(each)) is None or not changed.isdisjoint(uses)]


def scan_changed(work: Work, tree: Tree, earlier: Part, models: list[str]) -> Part:
    """Scan some models, and take what an earlier scan found of the others."""
    part, by_model = Scanner(work, tree).scan(models), work.by_model()
    found = {model.model: model for model in (*earlier.models, *part.models) if model.model in by_model}
    gone = frozenset(where.owned for model in models for where in by_model[model])
    kept = {path: why for path, why in earlier.bad.items() if not is_owned(path, gone)}
    record = Record.union([earlier.record, part.record, tree.record])
    return Part(list(found.values()), kept | part.bad, record, sorted({*earlier.shared, *part.shared}))


def scan_shown(work: Work, tree: DiskTree) -> Part:
    """Scan every model with a progress bar, in several processes where there are many and processors for them."""
    models, processes = list(work.by_model()), min(os.cpu_count() or 1, _PROCESSES)
    if len(work.places) >= SHARED and processes > 1 and sys.platform == "linux":
        from concurrent.futures.process import BrokenProcessPool

        with suppress(OSError, BrokenProcessPool):  # if no more processes can be started, this one scans everything
            return _in_processes(work, models, processes)
    return Scanner(work, tree).scan(_progress(models, len(models)))


def _in_processes(work: Work, models: list[str], processes: int) -> Part:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    first = _scanner(work).scan(models[:_FIRST])  # reads the mixins, which the other processes then have too
    size = -(-len(models[_FIRST:]) // (processes * _PARTS))
    parts = [tuple(models[at : at + size]) for at in range(_FIRST, len(models), size)]
    context = get_context("fork")  # the processes then have what is imported and read here
    with ProcessPoolExecutor(processes, mp_context=context, initializer=gc.disable) as pool:
        futures = [pool.submit(_scan_part, work, part) for part in parts]
        found = [first, *(future.result() for future in _progress(futures, len(futures)))]
    _scanner.cache_clear()
    return Part(
        [model for part in found for model in part.models],
        {path: reason for part in found for path, reason in part.bad.items()},
        Record.union(part.record for part in found),
        sorted({path for part in found for path in part.shared}),
    )


def _scan_part(work: Work, models: tuple[str, ...]) -> Part:
    return _scanner(work).scan(models)


@cache
def _scanner(work: Work) -> Scanner:
    return Scanner(work, DiskTree(work.root))


def _progress(items: Iterable[_T], count: int) -> Iterable[_T]:
    """Show a progress bar on a terminal, and nothing in a pipe."""
    if not sys.stderr.isatty():
        return items
    from tqdm import tqdm

    bar: Iterable[_T] = tqdm(items, total=count, leave=False, bar_format="{percentage:3.0f}%|{bar}| {elapsed}")
    return bar

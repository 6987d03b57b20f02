"""A scan's work: model by model, in several processes where that pays."""

from __future__ import annotations

import gc
import os
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from pytest_tfdebug.scan.read.tree import DiskTree
from pytest_tfdebug.scan.report.found import PartialScan
from pytest_tfdebug.scan.scanner import Scanner

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pytest_tfdebug.scan.read.layout import Work


_T = TypeVar("_T")

#: The fewest models for which more processes pay, and the most processes.
SHARED, _PROCESSES = 48, 4
#: How many models are scanned before more processes start, and in how many parts each process takes the others.
_FIRST, _PARTS = 4, 6


def scan_all(work: Work, tree: DiskTree) -> PartialScan:
    """Scan with a progress bar, in several processes where there are many models and processors for them."""
    models = list(work.by_model())
    processes = min(os.cpu_count() or 1, _PROCESSES)
    if len(models) >= SHARED and processes > 1 and sys.platform == "linux":
        from concurrent.futures.process import BrokenProcessPool

        with suppress(OSError, BrokenProcessPool):  # if no more processes can be started, this one scans everything
            return PartialScan.union([*_in_processes(work, models, processes), PartialScan([], {}, tree.record)])
    return Scanner(work, tree).scan(_progress(models, len(models)))


def _in_processes(work: Work, models: list[str], processes: int) -> list[PartialScan]:
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    first = _scan_part(work, models[:_FIRST])  # reads the mixins, which the other processes then have too
    size = -(-len(models[_FIRST:]) // (processes * _PARTS))
    parts = [models[at : at + size] for at in range(_FIRST, len(models), size)]
    context = get_context("fork")  # the processes then have what is imported and read here
    with ProcessPoolExecutor(processes, mp_context=context, initializer=gc.disable) as pool:
        futures = [pool.submit(_scan_part, work, part) for part in parts]
        found = [first, *(future.result() for future in _progress(futures, len(futures)))]
    _scanner.cache_clear()
    return found


def _scan_part(work: Work, models: list[str]) -> PartialScan:
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

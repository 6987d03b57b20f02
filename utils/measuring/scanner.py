"""Time the scanner as whole processes, beside a regex script, a parse, and pytest collecting."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measuring.alternate import alternate
from measuring.figures import LINEAR, MEGABYTES, OF_PARSE, OF_SCRIPT, OF_SCRIPT_FOR_ONE, Figure, of_rounds
from measuring.processes import Python
from scan_tree import generate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.figures import Settings

COLD, WARM, FILLING = "scan, cold (--no_cache)", "scan, warm", "scan, cold (fills the cache)"
#: After a change to the test file of one model, and for one test, beside the script for that test.
EDITED, ONE = "scan after one edited file", "scan of one test, cold (--no_cache)"
SIZES = (50, 100, 200, 400)
#: pytest takes its time: it collects one of these trees.
_COLLECTED = 100
_SCRIPT_NAME, _PARSE_NAME = "transformers' regex script", "ast.parse of the same files"
_STAND_IN_NAME, _STAND_IN = (
    "a regex script of our own in its place",
    Path(__file__).resolve().parents[1] / "regex_scan.py",
)
_PARSE = (
    "import ast, pathlib\n"
    "for file in pathlib.Path('tests/models').rglob('test_modeling_*.py'):\n"
    "    ast.parse(file.read_text(encoding='utf-8'))"
)
#: A scan is a process: it gets so much more time than others. The tree is as large as transformers' own.
_MORE, _MODELS = 5, 394


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield the scanner's time and memory as ratios to the regex script, and how they grow with the tree."""
    with tempfile.TemporaryDirectory() as directory:
        tree = settings.tree
        if tree is None:
            tree = Path(directory) / "tree"
            generate(tree, _MODELS)
        yield from _side_by_side(tree, settings)
        if settings.names is None:
            yield from _growth(Path(directory))


def _side_by_side(tree: Path, settings: Settings) -> Iterator[Figure]:
    regex = script(settings)
    files = sum(1 for _ in (tree / "tests" / "models").rglob("test_modeling_*.py"))
    work = f"{files} files of {'a checkout' if settings.tree else 'a generated tree'}"
    name = _STAND_IN_NAME if regex == _STAND_IN else _SCRIPT_NAME
    with _ways(tree) as ways:
        base = ways.python(str(regex), "--output_dir", str(ways.other))
        everything: dict[str, Python | _Edited] = {
            name: base,
            **ways.scans(),
            EDITED: ways.edited(),
            _PARSE_NAME: ways.parse(),
        }
        candidates = {name: run for name, run in everything.items() if settings.wants(name)}
        patience = _MORE * settings.patience
        timed = alternate(base, candidates, settings.rounds, settle=ways.settle, patience=patience)
        for name, times in timed.items():
            yield of_rounds("scanner", work, name, times.ratios, OF_SCRIPT, seconds=times.seconds)
            ways.settle()
            yield Figure("scanner", work, f"{name}: memory", candidates[name].megabytes(), MEGABYTES)
        if settings.wants(ONE):
            test = ("--test_method_name", _one_of(json.loads(ways.report().read_text(encoding="utf-8"))))
            script_for_it = ways.python(str(regex), "--output_dir", str(ways.other), *test)
            run = {ONE: ways.cold(*test)}
            times = alternate(script_for_it, run, settings.rounds, settle=ways.settle, patience=patience)[ONE]
            yield of_rounds("scanner", work, ONE, times.ratios, OF_SCRIPT_FOR_ONE, seconds=times.seconds)


def _one_of(report: dict[str, dict[str, list[str]]]) -> str:
    """Return the test that most classes do not just run, as a user would ask about."""
    return max(report, key=lambda test: len(report[test]["tests"]))


def _growth(directory: Path) -> Iterator[Figure]:
    medians: dict[str, list[float]] = {COLD: [], WARM: []}
    for size in SIZES:
        tree = directory / f"tree of {size}"
        generate(tree, size)
        with _ways(tree) as ways:
            candidates = {name: run for name, run in ways.scans().items() if name in medians}
            timed = alternate(ways.parse(), candidates, 3, settle=ways.settle)
            for name, times in timed.items():
                medians[name].append(statistics.median(times.seconds))
                yield _of_size(size, name, times.ratios, times.seconds)
            if size == _COLLECTED:
                collect = ways.python("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/models")
                collected = alternate(ways.parse(), {"": collect}, 1, settle=ways.settle)[""]
                yield _of_size(size, "pytest --collect-only", collected.ratios, collected.seconds)
    for name, seconds in medians.items():
        growth = seconds[-1] / seconds[0] / (SIZES[-1] / SIZES[0])
        yield Figure("scanner, growth", f"{SIZES[-1]} files over {SIZES[0]}", name, growth, LINEAR)


def _of_size(size: int, name: str, ratios: list[float], seconds: list[float]) -> Figure:
    return of_rounds("scanner, growth", f"{size} files", name, ratios, OF_PARSE, seconds=seconds)


def script(settings: Settings) -> Path:
    """Return the regex script: the one given, else the one of the tree, else one of our own in its place."""
    if settings.scan_script is not None:
        return settings.scan_script.resolve()
    own = settings.tree / "utils" / "scan_skipped_tests.py" if settings.tree is not None else _STAND_IN
    return (own if own.is_file() else _STAND_IN).resolve()


@dataclass(frozen=True)
class _Edited:
    """A scan after one file has been changed, which is then put back as it was.

    Args:
        scan: The scan, with a cache of its own.
        file: The file.
    """

    scan: Python
    file: Path

    def __call__(self) -> str:
        """Change the file, as it never was before, and scan."""
        content = self.file.read_bytes()
        self.file.write_bytes(content + f"# changed at {time.time_ns()}\n".encode())
        try:
            return self.scan()
        finally:
            self.file.write_bytes(content)

    def megabytes(self) -> float:
        """Return the peak memory of a scan of the unchanged file, after one of the changed."""
        return self.scan.megabytes()


@dataclass(frozen=True)
class _Ways:
    """The ways to read a tree of tests.

    Args:
        tree: Where they run.
        empty: A cache that is empty before every run.
        filled: A cache that an earlier run has filled.
        changing: A cache that every run of a changed tree fills.
        output: Where the scanner writes.
        other: Where others write.
    """

    tree: Path
    empty: Path
    filled: Path
    changing: Path
    output: Path
    other: Path

    def settle(self) -> None:
        """Empty the one cache, and make sure that the other is full."""
        shutil.rmtree(self.empty, ignore_errors=True)
        for cache in (self.filled, self.changing):
            if not cache.exists():
                self._scan(cache)()

    def scans(self) -> dict[str, Python]:
        """Return each way to scan."""
        return {COLD: self.cold(), FILLING: self._scan(self.empty), WARM: self._scan(self.filled)}

    def edited(self) -> _Edited:
        """Return a scan after a change to one file."""
        first = min((self.tree / "tests" / "models").rglob("test_modeling_*.py"))
        return _Edited(self._scan(self.changing), first)

    def _scan(self, cache: Path) -> Python:
        return Python(("-m", "pytest_tfdebug.scan", "--output_dir", str(self.output)), self.tree, cache)

    def cold(self, *options: str) -> Python:
        """Return a scan without a cache."""
        return self.python("-m", "pytest_tfdebug.scan", "--output_dir", str(self.output), "--no_cache", *options)

    def report(self) -> Path:
        """Return the report of a scan of all tests, which is made where no scan has been timed."""
        path = self.output / "all_tests_scan_result.json"
        if not path.is_file():
            self.cold()()
        return path

    def parse(self) -> Python:
        """Return a run that builds Python's own syntax trees and does nothing with them."""
        return self.python("-c", _PARSE)

    def python(self, *arguments: str) -> Python:
        """Return a run in the tree."""
        return Python(arguments, self.tree, self.empty)


@contextmanager
def _ways(tree: Path) -> Iterator[_Ways]:
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)
        yield _Ways(tree, place / "empty", place / "filled", place / "changing", place / "out", place / "other")

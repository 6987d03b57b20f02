"""Time the scanner as whole processes, beside a regex script."""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measuring.alternate import alternate, stopwatch
from measuring.figures import LINEAR, MEGABYTES, OF_SCRIPT, OF_SCRIPT_FOR_ONE, Figure, of_rounds
from measuring.processes import Python
from scan_tree import generate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.figures import Settings

COLD, WARM, FILLING = "scan, cold (--no_cache)", "scan, warm", "scan, cold (fills the cache)"
#: For one test, beside the script for that test.
ONE = "scan of one test, cold (--no_cache)"
SIZES = (50, 400)
_STAND_IN = Path(__file__).resolve().parents[1] / "regex_scan.py"
#: A scan is a process: it gets so much more time than others. The tree is as large as transformers' own.
_MORE, _MODELS = 5, 394


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield the scanner's time as a ratio to the regex script's, its memory, and how its time grows with the tree."""
    with tempfile.TemporaryDirectory() as directory:
        tree = settings.tree or Path(directory) / "tree"
        if settings.tree is None:
            generate(tree, _MODELS)
        yield from _side_by_side(_Ways(tree, Path(directory)), settings)
        if settings.names is None:
            yield from _growth(Path(directory))


def _side_by_side(ways: _Ways, settings: Settings) -> Iterator[Figure]:
    regex = script(settings)
    files = sum(1 for _ in (ways.tree / "tests" / "models").rglob("test_modeling_*.py"))
    work = f"{files} files of {'a checkout' if settings.tree else 'a generated tree'}"
    name = "a regex script of our own in its place" if regex == _STAND_IN else "transformers' regex script"
    base = ways.python(str(regex), "--output_dir", str(ways.place / "other"))
    everything = {name: base, COLD: ways.scan("--no_cache"), **ways.cached()}
    candidates = {each: run for each, run in everything.items() if settings.wants(each)}
    patience = _MORE * settings.patience
    for each, times in alternate(base, candidates, settings.rounds, settle=ways.settle, patience=patience).items():
        yield of_rounds("scanner", work, each, times.ratios, OF_SCRIPT, seconds=times.seconds)
        ways.settle()
        yield Figure("scanner", work, f"{each}: memory", candidates[each].megabytes(), MEGABYTES)
    if settings.wants(ONE):
        test = ("--test_method_name", _one_of(ways))
        run = {ONE: ways.scan("--no_cache", *test)}
        script_for_it = ways.python(*base.arguments, *test)
        times = alternate(script_for_it, run, settings.rounds, settle=ways.settle, patience=patience)[ONE]
        yield of_rounds("scanner", work, ONE, times.ratios, OF_SCRIPT_FOR_ONE, seconds=times.seconds)


def _one_of(ways: _Ways) -> str:
    """Return the test that most classes do not just run, as a user would ask about."""
    ways.scan("--no_cache")()
    written = (ways.place / "out" / "all_tests_scan_result.json").read_text(encoding="utf-8")
    report: dict[str, dict[str, list[object]]] = json.loads(written)
    return max(report, key=lambda test: len(report[test]["tests"]))


def _growth(directory: Path) -> Iterator[Figure]:
    medians: dict[str, list[float]] = {COLD: [], WARM: []}
    for size in SIZES:
        place = directory / str(size)
        ways = _Ways(place / "tree", place)
        generate(ways.tree, size)
        ways.settle()
        for name, run in {COLD: ways.scan("--no_cache"), WARM: ways.cached()[WARM]}.items():
            medians[name].append(statistics.median(stopwatch(run) for _ in range(3)))
    for name, (small, large) in medians.items():
        growth = large / small / (SIZES[1] / SIZES[0])
        yield Figure("scanner, growth", f"{SIZES[1]} files over {SIZES[0]}", name, growth, LINEAR)


def script(settings: Settings) -> Path:
    """Return the regex script: the one given, else the one of the tree, else one of our own in its place."""
    if settings.scan_script is not None:
        return settings.scan_script.resolve()
    own = settings.tree / "utils" / "scan_skipped_tests.py" if settings.tree is not None else _STAND_IN
    return (own if own.is_file() else _STAND_IN).resolve()


@dataclass(frozen=True)
class _Ways:
    """The ways to scan a tree of tests.

    Args:
        tree: Where they run.
        place: Where reports and caches are written.
    """

    tree: Path
    place: Path

    def settle(self) -> None:
        """Empty the one cache, and make sure that the other is full."""
        shutil.rmtree(self.place / "empty", ignore_errors=True)
        if not (self.place / "filled").exists():
            self.scan(cache="filled")()

    def cached(self) -> dict[str, Python]:
        """Return each scan that has a cache."""
        return {FILLING: self.scan(), WARM: self.scan(cache="filled")}

    def scan(self, *options: str, cache: str = "empty") -> Python:
        """Return a scan."""
        return self.python("-m", "pytest_tfdebug.scan", "--output_dir", str(self.place / "out"), *options, cache=cache)

    def python(self, *arguments: str, cache: str = "empty") -> Python:
        """Return a run in the tree."""
        return Python(arguments, self.tree, self.place / cache)

"""Time the scanner as whole processes, beside the regex script of transformers, a mere parse, and pytest collecting."""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from measuring.alternate import alternate
from measuring.figures import OF_PARSE, OF_SCRIPT, Figure, of_rounds
from scan_tree import generate

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measuring.figures import Settings

COLD, WARM, FILLING = "scan, cold (--no_cache)", "scan, warm", "scan, cold (fills the cache)"
SIZES = (50, 100, 200, 400)
_SCRIPT_NAME = "transformers' regex script"
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
            if settings.tree is None:
                yield _collection(tree)
            yield from _growth(Path(directory))


def _side_by_side(tree: Path, settings: Settings) -> Iterator[Figure]:
    script = _script(settings)
    files = sum(1 for _ in (tree / "tests" / "models").rglob("test_modeling_*.py"))
    work = f"{files} files of {'a checkout' if settings.tree else 'a generated tree'}"
    with _processes(tree) as processes:
        parse = processes.python("-c", _PARSE)
        base, unit = (parse, OF_PARSE) if script is None else (processes.script(script), OF_SCRIPT)
        candidates = {name: run for name, run in processes.scans().items() if settings.wants(name)}
        if settings.names is None:
            candidates["ast.parse of the same files"] = parse
        rounds = max(3, settings.rounds // 2)
        timed = alternate(base, candidates, rounds, settle=processes.settle, patience=_MORE * settings.patience)
        if script is None:
            yield Figure("scanner", work, _SCRIPT_NAME, None, OF_SCRIPT, note="not here: --scan-script or --tree")
        else:
            seconds = [second for times in timed.values() for second in times.base]
            yield of_rounds("scanner", work, _SCRIPT_NAME, [1.0] * len(seconds), unit, seconds=seconds)
            yield Figure("scanner", work, f"{_SCRIPT_NAME}: memory", processes.megabytes[base], "MB")
        for name, times in timed.items():
            yield of_rounds("scanner", work, name, times.ratios, unit, seconds=times.seconds)
            yield Figure("scanner", work, f"{name}: memory", processes.megabytes[candidates[name]], "MB")


def _growth(directory: Path) -> Iterator[Figure]:
    medians: dict[str, list[float]] = {COLD: [], WARM: []}
    for size in SIZES:
        tree = directory / f"tree of {size}"
        generate(tree, size)
        with _processes(tree) as processes:
            candidates = {name: run for name, run in processes.scans().items() if name in medians}
            parse = processes.python("-c", _PARSE)
            timed = alternate(parse, candidates, 3, settle=processes.settle)
        for name, times in timed.items():
            medians[name].append(statistics.median(times.seconds))
            yield of_rounds("scanner", f"{size} files", name, times.ratios, OF_PARSE, seconds=times.seconds)
    for name, seconds in medians.items():
        times_larger = SIZES[-1] / SIZES[0]
        work = f"{SIZES[-1]} files over {SIZES[0]}"
        yield Figure(
            "scanner", work, name, seconds[-1] / seconds[0] / times_larger, f"x {times_larger:.0f} times the time"
        )


def _collection(tree: Path) -> Figure:
    """Return how long pytest takes to collect the same tests, which imports every file of them."""
    with _processes(tree) as processes:
        collect = processes.python("-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/models")
        timed = alternate(processes.scans()[COLD], {"pytest": collect}, 1)["pytest"]
    return of_rounds(
        "scanner",
        f"{_MODELS} files of a generated tree",
        "pytest --collect-only",
        timed.ratios,
        f"x {COLD}",
        seconds=timed.seconds,
    )


def _script(settings: Settings) -> Path | None:
    """Return the regex script: the one given, else the one of the tree."""
    if settings.scan_script is not None:
        return settings.scan_script.resolve()
    own = settings.tree / "utils" / "scan_skipped_tests.py" if settings.tree is not None else None
    return own.resolve() if own is not None and own.is_file() else None


class _Processes:
    """Runs commands in a tree, with caches and outputs of their own.

    Args:
        tree: Where they run.
        directory: For caches and outputs.
    """

    def __init__(self, tree: Path, directory: Path) -> None:
        self._tree = tree
        self._cache, self._filled, self._output = directory / "cache", directory / "filled", directory / "out"
        self.megabytes: dict[Callable[[], object], float] = {}

    def settle(self) -> None:
        """Empty the cache, and make sure that the other one is full."""
        shutil.rmtree(self._cache, ignore_errors=True)
        if not self._filled.exists():
            self._run(self._scan(), self._filled)

    def scans(self) -> dict[str, Callable[[], object]]:
        """Return each way to scan."""
        return {
            COLD: self._candidate([*self._scan(), "--no_cache"], self._cache),
            FILLING: self._candidate(self._scan(), self._cache),
            WARM: self._candidate(self._scan(), self._filled),
        }

    def script(self, path: Path) -> Callable[[], object]:
        """Return a run of the regex script."""
        return self.python(str(path), "--output_dir", str(self._output))

    def python(self, *arguments: str) -> Callable[[], object]:
        """Return a run of Python."""
        return self._candidate([sys.executable, *arguments], self._cache)

    def _scan(self) -> list[str]:
        return [sys.executable, "-m", "pytest_tfdebug.scan", "--output_dir", str(self._output)]

    def _candidate(self, command: list[str], cache: Path) -> Callable[[], object]:
        def run() -> None:
            self.megabytes[run] = max(self.megabytes.get(run, 0.0), self._run(command, cache))

        return run

    def _run(self, command: list[str], cache: Path) -> float:
        """Run a command and return its peak memory in MB."""
        process = subprocess.Popen(  # noqa: S603 - commands of this script
            command,
            cwd=self._tree,
            env={**os.environ, "XDG_CACHE_HOME": str(cache)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != 0:
            raise SystemExit(f"{' '.join(command)} exited with {process.returncode}")
        return usage.ru_maxrss / 1024


@contextmanager
def _processes(tree: Path) -> Iterator[_Processes]:
    with tempfile.TemporaryDirectory() as directory:
        yield _Processes(tree, Path(directory))

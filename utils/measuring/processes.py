"""Whole processes: what one of pytest pays for a plugin that it does not use; the scanner beside a regex script."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median

from measuring.figures import Figure, alternate, stopwatch
from scan_tree import generate

#: A run of this Python, to which ``partial`` gives more arguments.
Run = partial[str]
_PEAK = (
    "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
    "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
)
HEAVY = frozenset(("torch", "transformers", "numpy", "pandas", "safetensors", "libcst", "huggingface_hub"))
_IMPORT = (
    "import sys, time; began = time.process_time(); import pytest, logging; before = set(sys.modules);"
    "half = time.process_time(); import pytest_tfdebug.plugin; ended = time.process_time();"
    "print(ended - half, half - began, *{name.partition('.')[0] for name in set(sys.modules) - before})"
)
SCRIPT = Path(__file__).resolve().parents[1] / "regex_scan.py"
#: The tree is as large as transformers' own.
_MODELS, _SIZES = 394, (50, 400)
#: What a scan may cost beside the script, and what is read.
_LIMITS = {
    "scan, cold": (8.0, "each different text is read by libcst once, and only if it may skip"),
    "scan, warm": (0.3, "an answer whose files have not changed is not looked into"),
    "scan of one test, cold": (6.0, "what another test asks is not read"),
}


def python(*arguments: str, at: Path, cache: Path) -> str:
    """Run this Python at a place, with a directory for the user's cache, and return what it prints.

    A run that fails ends the benchmark.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    environment["XDG_CACHE_HOME"] = str(cache)
    command = [sys.executable, *arguments]
    done = subprocess.run(command, cwd=at, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(f"{arguments} exited with {done.returncode}:\n{done.stdout}{done.stderr[-2000:]}")
    return done.stdout


def megabytes(run: Run) -> float:
    """Run a Python again and return its peak memory.

    A small process starts it: the memory that a process had before it became another counts as the other's.
    """
    return float(python("-c", _PEAK, sys.executable, *run.args, **run.keywords).split()[-1]) / 1024


def measure_idle(rounds: int) -> Iterator[Figure]:
    """Yield the time of the import beside that of pytest, and the heavy modules that it brings."""
    with tempfile.TemporaryDirectory() as name:
        outputs = [python("-c", _IMPORT, at=Path(name), cache=Path(name)).split() for _ in range(3 * rounds + 1)]
    pairs = [(float(own), float(pytests)) for own, pytests, *_ in outputs[1:]]  # the first may write the bytecode
    heavy = sorted(HEAVY & set(outputs[0][2:]))
    share, note = median(100 * own / other for own, other in pairs), f"{median(own for own, _ in pairs) * 1e3:.1f} ms"
    reason = "every run of pytest pays it: 5 ms of 110"
    yield Figure("idle", "pytest", "import", share, "% of import pytest", 4.5, reason, note)
    reason = f"torch alone takes a second to import ({', '.join(heavy)})"
    yield Figure("idle", "pytest", "heavy modules", len(heavy), "modules", 0, reason)


def measure_scanner(rounds: int) -> Iterator[Figure]:
    """Yield the scanner's time as a ratio to the regex script's, its memory, and how its time grows with the tree."""
    with tempfile.TemporaryDirectory() as directory:
        folder = Path(directory)
        generate(folder / "tree", _MODELS)
        yield from _beside_the_script(folder / "tree", folder, rounds)
        medians = []
        for size in _SIZES:
            generate(folder / str(size), size)
            ways = _ways(folder / str(size), folder / f"of {size}")
            medians.append([median(stopwatch(run) for _ in range(3)) for run in ways.values()])
        for name, small, large in zip(ways, *medians, strict=True):
            work, grown = f"{_SIZES[1]} files over {_SIZES[0]}", large / small / (_SIZES[1] / _SIZES[0])
            reason = "a file is read once, whatever came before"
            yield Figure("scanner, growth", work, name, grown, "x linear growth", 1.25, reason)


def _ways(tree: Path, folder: Path) -> dict[str, Run]:
    """Return a scan without a cache and one with; both ran once, so that the cache is full."""
    warm = partial(python, "-m", "pytest_tfdebug.scan", "--output_dir", str(folder), at=tree, cache=folder / "cache")
    ways = {"scan, cold": partial(warm, "--no_cache"), "scan, warm": warm}
    for run in ways.values():
        run()
    return ways


def _beside_the_script(tree: Path, folder: Path, rounds: int) -> Iterator[Figure]:
    ways = _ways(tree, folder)
    base = partial(python, str(SCRIPT), "--output_dir", str(folder / "other"), at=tree, cache=folder)
    base()
    report = json.loads((folder / "all_tests_scan_result.json").read_text(encoding="utf-8"))
    one = ("--test_method_name", max(report, key=lambda test: len(report[test]["tests"])))  # as a user would ask about
    pairs = [(base, {"regex script": base, **ways})]
    pairs += [(partial(base, *one), {"scan of one test, cold": partial(ways["scan, cold"], *one)})]
    for script, candidates in pairs:
        for name, times in alternate(script, candidates, rounds).items():
            limit, reason = _LIMITS.get(name, (None, ""))
            yield Figure("scanner", f"{_MODELS} files", name, times.ratio, "x regex script", limit, reason, times.note)
            limit, reason = (300.0, "a process keeps what it has read of its models") if limit else (None, "")
            memory = f"{name}: memory", megabytes(candidates[name]), "MB"
            yield Figure("scanner", f"{_MODELS} files", *memory, limit, reason)

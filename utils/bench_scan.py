"""Time the scanner as whole processes against the regex script of transformers, in alternation.

    python utils/bench_scan.py [--tree DIR] [--peer utils/scan_skipped_tests.py] [--rounds N]

Without ``--tree`` a tree of the size and forms of transformers' own tests is generated. ``--peer`` is a copy of that
script (https://github.com/huggingface/transformers, utils/scan_skipped_tests.py); without it no ratios are printed.
Each round runs every way once, so that what else the machine does meets all of them alike.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from scan_tree import generate

_SCAN = (sys.executable, "-m", "pytest_tfdebug.scan")


def measure(command: list[str], tree: Path, cache: Path) -> tuple[float, float]:
    """Return the seconds and the peak memory, in MB, of a process."""
    started = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603 - commands of this script
        command,
        cwd=tree,
        env={**os.environ, "XDG_CACHE_HOME": str(cache)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} exited with {process.returncode}")
    return time.perf_counter() - started, usage.ru_maxrss / 1024


def commands(peer: Path | None, output: Path) -> dict[str, list[str]]:
    """Return each way to scan and its command."""
    base = [*_SCAN, "--output_dir", str(output)]
    ways = {"cold, --no_cache": [*base, "--no_cache"], "cold, fills the cache": base, "warm": base}
    if peer is not None:
        ways["regex script"] = [sys.executable, str(peer.resolve()), "--output_dir", str(output)]
    return ways


def run(tree: Path, peer: Path | None, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the seconds and memory of each way in each round."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory) / "out"
        ways = commands(peer, output)
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
        for number in range(rounds):
            cache = Path(directory) / f"cache{number}"  # empty at first: the second way fills it, the third finds it
            for way, command in ways.items():
                found[way].append(measure(command, tree, cache))
        return found


def report(found: dict[str, list[tuple[float, float]]]) -> None:
    """Print medians, and medians of the ratios of each round."""
    peer = found.get("regex script")
    for way, runs in found.items():
        seconds = statistics.median(run[0] for run in runs)
        memory = max(run[1] for run in runs)
        line = f"{way:<22} {seconds:6.3f} s  {memory:5.0f} MB"
        if peer is not None and runs is not peer:
            ratio = statistics.median(mine[0] / theirs[0] for mine, theirs in zip(runs, peer, strict=True))
            line += f"  {ratio:5.2f}x of the regex script"
        print(line)


def main() -> None:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tree", type=Path, help="a repository; generated where it is not given")
    parser.add_argument("--peer", type=Path, help="a copy of the regex script")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--models", type=int, default=394, help="models of the generated tree")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        tree = options.tree
        if tree is None:
            tree = Path(directory)
            generate(tree, options.models)
        files = list((tree / "tests" / "models").rglob("test_modeling_*.py"))
        size = sum(file.stat().st_size for file in files) / 1e6
        print(f"{len(files)} model test files, {size:.1f} MB, {os.cpu_count()} CPUs, Python {sys.version.split()[0]}")
        report(run(tree, options.peer, options.rounds))


if __name__ == "__main__":
    main()

"""Several processes that write the same goldens, and a run with very many of them."""

from __future__ import annotations

import os
import subprocess
import sys
from statistics import median
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug import GoldenError
from pytest_tfdebug.goldens.store.golden_file import load

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_SUITE = """
import pytest
import torch

@pytest.mark.parametrize("number", range({tests}))
def test_it(tf_golden, number):
    torch.manual_seed(0)
    tf_golden.check(torch.nn.Linear(4, 4), torch.full((2, 4), float(number)))
"""
#: Prints the time that each test has taken of the processor.
_CONFTEST = """
import time
import pytest

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    started = time.process_time()
    result = yield
    with open("times", "a") as file:
        file.write(f"{time.process_time() - started}\\n")
    return result
"""


def play_two_updates(folder: Path, tests: int, workers: int = 0) -> list[str]:
    """Update the same goldens in two runs at once, and return what went wrong, a line each.

    Args:
        folder: An empty directory.
        tests: Number of tests.
        workers: Processes of pytest-xdist in each run.
    """
    (folder / "test_it.py").write_text(_SUITE.format(tests=tests))
    spread = ("-n", str(workers)) if workers else ()
    runs = [_start(folder, "--tf-golden=update", *spread) for _ in range(2)]
    printed = [run.communicate()[0] for run in runs]
    checked = _start(folder, *spread).communicate()[0]
    problems = [f"run {number}: {text[-600:]}" for number, text in enumerate(printed) if f"{tests} passed" not in text]
    problems += [] if f"{tests} passed" in checked else [f"check: {checked[-600:]}"]
    return [*problems, *_what_is_left(folder, tests)]


def play_workers(folder: Path, tests: int, workers: int) -> list[str]:
    """Record and check with so many workers, and return what went wrong, a line each."""
    (folder / "test_it.py").write_text(_SUITE.format(tests=tests))
    problems = []
    for mode in ("missing", "check", "update"):
        printed = _start(folder, f"--tf-golden={mode}", "-n", str(workers)).communicate()[0]
        if f"{tests} passed" not in printed:
            problems.append(f"{mode}: {printed[-600:]}")
    return [*problems, *_what_is_left(folder, tests)]


def growth(folder: Path, tests: int) -> tuple[float, float]:
    """Return the median processor seconds of a golden in the first and in the last tenth of a recording run."""
    (folder / "test_it.py").write_text(_SUITE.format(tests=tests))
    (folder / "conftest.py").write_text(_CONFTEST)
    printed = _start(folder, "--tf-golden=update").communicate()[0]
    if f"{tests} passed" not in printed:
        raise RuntimeError(printed[-2000:])
    times = [float(line) for line in (folder / "times").read_text().splitlines()]
    tenth = max(1, len(times) // 10)
    return median(times[1 : 1 + tenth]), median(times[-tenth:])  # the first one imports


def _start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    command: Sequence[str] = (
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest"),
        *arguments,
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def _what_is_left(folder: Path, tests: int) -> list[str]:
    files = sorted((folder / "goldens/test_it").iterdir())
    problems = [] if len(files) == tests else [f"{len(files)} files of {tests}"]
    return problems + [f"{file.name}: {problem}" for file in files for problem in _problems(file)]


def _problems(file: Path) -> list[str]:
    try:
        value = float(file.name.partition("[")[2].partition("]")[0])
        (record,) = load(file).trace.calls[0].inputs
    except (GoldenError, ValueError) as error:
        return [str(error)]
    is_its_own = record.tensor is not None and torch.equal(record.tensor, torch.full((2, 4), value))
    return [] if is_its_own else ["it holds another test's tensors"]

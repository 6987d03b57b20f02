"""``tf_ranks``: a test in several processes has one report, and leaves none of them behind."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import pytest_tfdebug.ranks.hooks  # noqa: F401 - loaded once for all runs

SUM = """
import unittest
import pytest
import torch
import torch.distributed as dist

def total():
    tensor = torch.tensor([dist.get_rank() + 1.0])
    dist.all_reduce(tensor)
    return tensor.item()
"""


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    def run(source, *arguments):
        pytester.makepyfile(test_group=source)
        return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:randomly", *arguments)

    return run


@pytest.mark.nightly
def test_parametrized_tests_and_test_cases_run_in_a_group_with_their_fixtures(run):
    source = f"""{SUM}
@pytest.fixture(scope="module")
def expected():
    yield 3.0

@pytest.mark.tf_ranks(2, timeout=900)
class TestCase(unittest.TestCase):
    def setUp(self):
        self.expected = 3.0

    def test_sum(self):
        self.assertEqual(total(), self.expected)

def test_alone(expected):
    assert not dist.is_initialized()

@pytest.mark.tf_ranks(2, timeout=900)
@pytest.mark.parametrize("name", ["a/b::c[d]"])
def test_sum(name, expected, tmp_path, recwarn):
    assert (name, total()) == ("a/b::c[d]", expected)
    assert dist.get_rank() != 1, "the one that fails"
"""

    result = run(source, "-v")

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        ["*::TestCase::test_sum PASSED*", "*::test_alone PASSED*", "*test_sum[[]a/b::c*FAILED*"]
    )
    result.stdout.fnmatch_lines(["E*AssertionError: the one that fails", "rank 1 failed"])
    assert result.stdout.str().count("the one that fails") == 3  # the line, its error, the summary


def test_rank_that_dies_ends_the_test_at_once_and_says_how(run):
    source = f"""{SUM}
import faulthandler, os

@pytest.mark.tf_ranks(2, timeout=900)
def test_it():
    if dist.get_rank() == 1:
        print("the last words", flush=True)
        os._exit(7)
    total()
"""

    result = run(source, "-s")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["test_group.py::test_it: rank 1 died with exit code 7.", "Rank 1 printed:", "*the last words*"]
    )


class Clock:
    """Time as it is, until a file exists: then much has passed."""

    sleep = staticmethod(time.sleep)

    def __init__(self, file):
        self._file = file

    def monotonic(self):
        return time.monotonic() + (10_000 if self._file.exists() else 0)


def test_hanging_rank_ends_the_test_with_its_traceback_and_no_process_left(run, pytester, monkeypatch):
    source = f"""{SUM}
import os, subprocess, sys, threading, time
from pathlib import Path

@pytest.mark.tf_ranks(2, timeout=9000)
def test_it():
    if dist.get_rank() == 1:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        Path("part").write_text(f"{{os.getpid()}} {{child.pid}}")
        threading.Timer(2, lambda: Path("part").replace("hangs")).start()
        time.sleep(1000)  # hangs
    total()
"""
    (line,) = (number for number, text in enumerate(source.lstrip().splitlines(), 1) if "# hangs" in text)
    monkeypatch.setattr("pytest_tfdebug.ranks.launch.time", Clock(pytester.path / "hangs"))

    result = run(source)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["test_group.py::test_it: ranks 0, 1 did not end within timeout=9000 s."])
    result.stdout.fnmatch_lines(["Rank 1 was at:", f'*test_group.py", line {line} in test_it'])
    started = [int(number) for number in (pytester.path / "hangs").read_text().split()]
    assert len(started) == 2
    assert not _alive(started)


def _alive(numbers):
    """Return which of these processes still run; killed ones may take a moment."""
    for _ in range(200):
        running = [number for number in numbers if _state(number) not in ("", "Z", "X")]
        if not running:
            break
        time.sleep(0.05)
    return running


def _state(number):
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def test_torchrun_runs_marked_tests_in_its_own_processes(pytester):
    pytester.makepyfile(
        test_group=f"""{SUM}
@pytest.mark.tf_ranks(2, timeout=900)
def test_two():
    assert total() == 3

@pytest.mark.tf_ranks(3)
def test_three():
    assert total() == 6
"""
    )
    torchrun = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node=2",
        "--local-ranks-filter=0",
    ]
    ended = subprocess.run(
        [*torchrun, "-m", "pytest", "-p", "no:cacheprovider", "-rs"],
        cwd=pytester.path,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "1 passed, 1 skipped" in ended.stdout
    assert "tf_ranks(3): torchrun started 2 processes" in ended.stdout


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("", "tf_ranks(None) is not a number of ranks (2 or more)."),
        ("1", "tf_ranks(1) is not a number of ranks (2 or more)."),
        ("2, timeout=0", "tf_ranks: timeout=0 is not a number of seconds above 0."),
        ("2, time=3", "tf_ranks has no argument time=3; it takes timeout. Did you mean timeout?"),
    ],
)
def test_arguments_that_make_no_sense_are_refused(run, given, told):
    result = run(f"import pytest\n@pytest.mark.tf_ranks({given})\ndef test_it(): pass\ndef test_other(): pass")

    result.assert_outcomes(passed=1, errors=1)
    result.stdout.fnmatch_lines([f"E *UsageError: test_group.py::test_it: {told}"])


@pytest.mark.nightly
def test_numbers_and_texts_that_a_model_returns_are_compared_on_ranks(run):
    source = """
import pytest
import torch

class Counted(torch.nn.Module):
    def forward(self, x):
        return {"x": x * 2, "count": COUNT, "kind": "a"}

@pytest.mark.tf_ranks(2, timeout=900)
def test_it(tf_golden):
    tf_golden.check(Counted(), torch.arange(8.0))
"""
    run(source.replace("COUNT", "3"), "--tf-golden=update").assert_outcomes(passed=1)

    wrong = run(source.replace("COUNT", "4"))

    wrong.assert_outcomes(failed=1)
    wrong.stdout.fnmatch_lines(["*Counted (Counted) on every rank: gives another output for the same inputs"])

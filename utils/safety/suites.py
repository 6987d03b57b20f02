"""Runs of pytest: two that write the same goldens, several workers, thousands of goldens, and Ctrl-C at any moment."""

from __future__ import annotations

import os
import pty
import random
import re
import signal
import subprocess
import sys
import termios
import time
from collections import deque
from contextlib import suppress
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug import GoldenError
from pytest_tfdebug.goldens.store.golden_file import load
from pytest_tfdebug.tracing.record.replacing import PARTIAL, sweep
from safety.long_run import Growth, Sample, growth, told_growth

if TYPE_CHECKING:
    from pathlib import Path

#: Exit statuses: all passed, pytest was interrupted in its session, or before or after it.
_ENDS = (0, 2, -signal.SIGINT)
#: A frame of a traceback.
_FRAME = re.compile(rb'File "([^"]+)", line')
_SUITE = """
import pytest
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
MODEL = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))

@pytest.mark.parametrize("number", range({tests}))
@pytest.mark.overflow_free(dtype="float16")
def test_it(tf_golden, number):
    tf_golden.check(MODEL, torch.full((2, 4), float(number)))
"""
#: Writes what each test leaves of the process, to a file for each worker.
_CONFTEST = """
import os
import time
import pytest
from safety.long_run import sample

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    started = time.process_time()
    result = yield
    with open(f"samples.{os.environ.get('PYTEST_XDIST_WORKER', 'own')}", "a") as file:
        print(*sample(started), file=file)
    return result
"""
#: Runs pytest for ever in children that it forks, so that a Ctrl-C costs no import of torch.
_RUNNER = """
import os, sys, signal, warnings
import pytest, torch
import pytest_tfdebug.goldens.check.golden_check
warnings.simplefilter("ignore")
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        class Told:
            def pytest_sessionstart(self):
                os.write(int(sys.argv[1]), f"{os.getpid()}\\n".encode())
        os._exit(pytest.main(["-q", "-p", "no:cacheprovider", "--tf-golden=update"], plugins=[Told()]))
    os.write(int(sys.argv[1]), f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\\n".encode())
"""


def play_two_updates(folder: Path, tests: int) -> list[str]:
    """Update the same goldens in two runs at once, and return what went wrong, a line each."""
    _write(folder, tests)
    runs = [_start(folder, "--tf-golden=update") for _ in range(2)]
    problems = [problem for run in runs for problem in _failed(run, tests)]
    return [*problems, *_failed(_start(folder), tests), *_left(folder, tests)]


def play_workers(folder: Path, tests: int, workers: int = 4) -> list[str]:
    """Record, check and update on several workers, and return what went wrong or grew in one of them."""
    _write(folder, tests)
    problems = []
    for mode in ("missing", "check", "update"):
        problems += _failed(_start(folder, f"--tf-golden={mode}", "-n", str(workers)), tests)
        for file in sorted(folder.glob("samples.*")):
            problems += [f"{mode}, {file.name}: {problem}" for problem in told_growth(_samples(file))]
            file.unlink()
    return [*problems, *_left(folder, tests)]


def growth_of_run(folder: Path, tests: int) -> Growth:
    """Return what grew in a process that records so many goldens."""
    _write(folder, tests)
    problems = _failed(_start(folder, "--tf-golden=update"), tests)
    if problems:
        raise RuntimeError(problems[0])
    return growth(_samples(next(folder.glob("samples.*"))))  # named after the worker, where one plays it


def play_interrupts(folder: Path, times: int, seed: int = 0) -> list[str]:
    """Press Ctrl-C so often in a run that updates goldens, and return what was left in disorder."""
    tests, moments, problems = 50, random.Random(seed), []
    _write(folder, tests)
    _start(folder, "--tf-golden=update").communicate()
    master, terminal = pty.openpty()
    shown: deque[bytes] = deque(maxlen=50)
    Thread(target=lambda: shown.extend(iter(partial(os.read, master, 1 << 12), b"")), daemon=True).start()
    attributes = termios.tcgetattr(terminal)
    told, tell = os.pipe()
    command = [sys.executable, "-c", _RUNNER, str(tell)]
    with (
        os.fdopen(told, encoding="ascii") as answers,
        subprocess.Popen(
            command,
            cwd=folder,
            env=_environment(),
            text=True,
            pass_fds=[tell],
            stdin=subprocess.PIPE,
            stdout=terminal,
            stderr=terminal,
        ) as runner,
    ):
        os.close(tell)
        if runner.stdin is None:
            raise RuntimeError("there is no pipe")
        for number in range(times):
            shown.clear()
            runner.stdin.write("go\n")
            runner.stdin.flush()
            child = int(answers.readline())
            time.sleep(moments.uniform(0, 1.5))
            with suppress(ProcessLookupError):  # it is done
                os.kill(child, signal.SIGINT)
            code = int(answers.readline())
            time.sleep(0.05)  # for what it wrote
            printed = b"".join(shown)
            is_own = code in _ENDS or _raised_by_pytest(printed)
            found = [] if is_own else [f"exit status {code}: {printed[-300:].decode(errors='replace')}"]
            found += [] if not printed or printed.endswith(b"\n") else ["its last line is not ended"]
            found += [] if termios.tcgetattr(terminal) == attributes else ["the terminal has other settings"]
            problems += [f"Ctrl-C {number}: {problem}" for problem in [*found, *_left(folder, tests)]]
        runner.stdin.close()
    return problems


def _raised_by_pytest(printed: bytes) -> bool:
    """Tell whether pytest itself failed: under Python 3.11 it reads the line of a frame that has none.

    A frame that is interrupted between two lines has no number. The run ends with status 1 then, and what matters, that
    everything is in order, is looked at all the same.
    """
    frames = _FRAME.findall(printed)
    return bool(frames) and b"/_pytest/" in frames[-1]


def _write(folder: Path, tests: int) -> None:
    (folder / "test_it.py").write_text(_SUITE.format(tests=tests))
    (folder / "conftest.py").write_text(_CONFTEST)


def _environment() -> dict[str, str]:
    paths = os.pathsep.join(path for path in sys.path if path)
    return {**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}


def _start(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options]
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    return subprocess.Popen(command, cwd=folder, env=_environment(), text=True, stdout=pipe, stderr=both)


def _failed(run: subprocess.Popen[str], tests: int) -> list[str]:
    printed = run.communicate()[0]
    return [] if f"{tests} passed" in printed else [printed[-600:]]


def _left(folder: Path, tests: int) -> list[str]:
    """Return which goldens are gone, cannot be read or hold another test's tensors, and what lies beside them."""
    goldens = folder / "goldens" / "test_it"
    sweep(goldens)
    files = sorted(goldens.iterdir()) if goldens.exists() else []
    problems = [] if len(files) == tests else [f"{len(files)} goldens of {tests}"]
    problems += [f"left behind: {file.name}" for file in files if file.name.endswith(PARTIAL)]
    return [*problems, *(problem for file in files for problem in _problems(file))]


def _problems(file: Path) -> list[str]:
    try:
        value = float(file.name.partition("[")[2].partition("]")[0])
        (record,) = load(file).trace.calls[0].inputs
    except (GoldenError, ValueError) as error:
        return [f"{file.name}: {error}"]
    is_its_own = record.tensor is not None and torch.equal(record.tensor, torch.full((2, 4), value))
    return [] if is_its_own else [f"{file.name}: it holds another test's tensors"]


def _samples(file: Path) -> list[Sample]:
    values = (line.split() for line in file.read_text().splitlines())
    return [Sample(float(seconds), int(kilobytes), int(handles)) for seconds, kilobytes, handles in values]

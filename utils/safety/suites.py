"""Runs of pytest with thousands of checks on several workers, and runs that Ctrl-C ends at any moment."""

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

from pytest_tfdebug import GoldenError, Trace
from pytest_tfdebug.tracing.record.replacing import PARTIAL, sweep
from safety.long_run import Sample, told_growth

if TYPE_CHECKING:
    from pathlib import Path

_WORKERS = 4
#: Exit statuses: all passed, pytest was interrupted in its session, or before or after it.
_ENDS = (0, 2, -signal.SIGINT)
#: A frame of a traceback.
_FRAME = re.compile(rb'File "([^"]+)", line')
#: A test that is repeated as pytest-repeat does it for ``--count``, by a parameter.
_SUITE = """
import pytest
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
MODEL, X = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)), torch.ones(2, 8)

@pytest.mark.parametrize("count", range({count}))
@pytest.mark.overflow_free(dtype="float16")
def test_it(tf_golden, count):
    tf_golden.check(MODEL, X)
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


def play_workers_and_repeats(folder: Path, count: int) -> list[str]:
    """Repeat a test so often, on several workers, and return what grew in one of them.

    Args:
        folder: An empty directory.
        count: How often the test is repeated.
    """
    (folder / "test_it.py").write_text(_SUITE.format(count=count))
    (folder / "conftest.py").write_text(_CONFTEST)
    problems = []
    for mode in ("missing", "check"):
        printed = _pytest(folder, f"--tf-golden={mode}", "-n", str(_WORKERS))
        problems += [] if f"{count} passed" in printed else [f"{mode}: {printed[-600:]}"]
        for file in sorted(folder.glob("samples.*")):
            samples = [_sample(line) for line in file.read_text().splitlines()]
            problems += [f"{mode}, {file.name}: {problem}" for problem in told_growth(samples)]
            file.unlink()
    return problems


def play_interrupts(folder: Path, times: int, seed: int = 0) -> list[str]:
    """Press Ctrl-C so often in a run that updates goldens, and return what was left in disorder.

    Args:
        folder: An empty directory.
        times: Number of runs.
        seed: Of the moments.
    """
    tests, moments, problems = 50, random.Random(seed), []
    (folder / "test_it.py").write_text(_SUITE.format(count=tests))
    _pytest(folder, "--tf-golden=update")
    master, terminal = pty.openpty()
    shown: deque[bytes] = deque(maxlen=50)
    Thread(target=lambda: shown.extend(iter(partial(os.read, master, 1 << 12), b"")), daemon=True).start()
    attributes = termios.tcgetattr(terminal)
    told, tell = os.pipe()
    with (
        os.fdopen(told, encoding="ascii") as answers,
        subprocess.Popen(
            [sys.executable, "-c", _RUNNER, str(tell)],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=terminal,
            stderr=terminal,
            text=True,
            pass_fds=[tell],
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


def _left(folder: Path, tests: int) -> list[str]:
    """Return which goldens cannot be read, or are gone, and what lies beside them."""
    goldens = folder / "goldens" / "test_it"
    sweep(goldens)
    files = sorted(goldens.iterdir())
    problems = [] if len(files) == tests else [f"{len(files)} goldens of {tests}"]
    problems += [f"left behind: {file.name}" for file in files if file.name.endswith(PARTIAL)]
    return [*problems, *filter(None, map(_unreadable, files))]


def _unreadable(file: Path) -> str:
    try:
        Trace.load(file)
    except GoldenError as error:
        return str(error)
    return ""


def _pytest(folder: Path, *options: str) -> str:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    paths = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False).stdout


def _sample(line: str) -> Sample:
    seconds, kilobytes, handles = line.split()
    return Sample(float(seconds), int(kilobytes), int(handles))

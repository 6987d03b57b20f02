"""Processes that write goldens: killed or interrupted at any moment, two at once, several workers, many tests."""

from __future__ import annotations

import os
import pty
import random
import signal
import subprocess
import sys
import termios
import time
from contextlib import suppress
from itertools import cycle
from pathlib import Path

import numpy as np
import torch

from pytest_tfdebug import GoldenError, Trace
from pytest_tfdebug.goldens.golden_file import load
from pytest_tfdebug.tracing.record.replacing import PARTIAL

#: Kilobytes and handles that a run may grow by after its first tenth, and how much longer a test may take.
KILOBYTES, HANDLES, SLOWER = 20_000, 5, 1.5
#: The exit status of a run of pytest that was interrupted.
_INTERRUPTED = 2
#: Writes two goldens in turn for ever, in children that it forks, so that a kill costs no import of torch.
_WRITER = """
import os, sys
import torch
from pytest_tfdebug import trace
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
traces = [trace(model, torch.full((64, 64), float(value))) for value in (1, 2)]
traces[0].save(sys.argv[1])
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        print(os.getpid(), flush=True)
        while True:
            for each in traces:
                each.save(sys.argv[1])
    os.waitpid(child, 0)
    print("dead", flush=True)
"""
_SUITE = """
import os
import pytest
import torch

torch.set_num_threads(1)
torch.manual_seed(0)
MODEL = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 4))
SCALE = float(os.environ.get("SCALE", "1"))
MODEL[2].register_forward_hook(lambda module, args, output: output * SCALE)

@pytest.mark.parametrize("number", range({tests}))
@pytest.mark.overflow_free(dtype="float16")
def test_it(tf_golden, number):
    tf_golden.check(MODEL, torch.full((2, 4), float(number)))
"""
#: Writes what each test takes of the processor, and the kilobytes and handles of the process after it, to a file for
#: each worker. Presses Ctrl-C at the n-th call of functions of a file, of files in a folder, or of one function.
_CONFTEST = """
import os, resource, signal, sys, time
from pathlib import Path
import pytest

PROCESS, COUNT = Path("/proc/self"), int(os.environ.get("COUNT", "0"))

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    started = time.process_time()
    result = yield
    seconds, pages = time.process_time() - started, int((PROCESS / "statm").read_text().split()[1])
    with open(f"samples.{os.environ.get('PYTEST_XDIST_WORKER', 'own')}", "a") as file:
        print(seconds, pages * resource.getpagesize() // 1024, len(list((PROCESS / "fd").iterdir())), file=file)
    return result

def press(frame, event, _):
    global COUNT
    if event == "call" and os.environ["PLACE"] in f"{frame.f_code.co_filename}:{frame.f_code.co_name}":
        COUNT -= 1
        if not COUNT:
            sys.setprofile(None)
            Path("pressed").touch()
            os.kill(os.getpid(), signal.SIGINT)

def pytest_sessionstart():
    if COUNT:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        sys.setprofile(press)
"""
#: Where Ctrl-C is pressed -> whose code runs then, and the arguments of the run; its model is another one each time.
_PHASES = {
    "collection": ("/_pytest/python.py", "--tf-golden=update"),
    "trace": ("/pytest_tfdebug/tracing/record/", "--tf-golden=check"),
    "compare": ("/pytest_tfdebug/parity/tensors/", "--tf-golden=check"),
    "explain": ("/pytest_tfdebug/parity/proof/", "--tf-golden=check"),
    "report": ("/pytest_tfdebug/report/", "--tf-golden=check"),
    "write": ("/pytest_tfdebug/tracing/file/", "--tf-golden=update"),
    "replace": ("/pytest_tfdebug/tracing/record/replacing.py", "--tf-golden=update"),
    "terminal summary": ("/pytest_tfdebug/goldens/session.py:summary", "--tf-golden=update"),
}


def growth(file: Path) -> list[str]:
    """Return what of a process has grown from after a tenth of the tests to the end."""
    seconds, kilobytes, handles = np.loadtxt(file, ndmin=2).T
    part = max(1, len(seconds) // 10)
    more, left = (each[-1] - each[part] for each in (kilobytes, handles))
    slower = np.median(seconds[-part:]) / np.median(seconds[1 : 1 + part])
    found = [f"the process grew by {more:,.0f} kB"] if more > KILOBYTES else []
    found += [f"{left:.0f} handles are left open"] if left > HANDLES else []
    return found + ([f"a test takes {slower:.2f} times as long at the end"] if slower > SLOWER else [])


def play_many(
    folder: Path, tests: int, options: tuple[str, ...] = (), modes: tuple[str, ...] = ("missing", "check", "update")
) -> list[str]:
    """Record, check and update the goldens of many tests, and return what went wrong or grew in a process."""
    _write(folder, tests)
    problems = []
    for mode in modes:
        problems += _failed(_start(folder, f"--tf-golden={mode}", *options), tests)
        for file in sorted(folder.glob("samples.*")):
            problems += [f"{mode}, {file.name}: {problem}" for problem in growth(file)]
            file.unlink()
    return [*problems, *_left(folder, tests)]


def play_two_updates(folder: Path, tests: int) -> list[str]:
    """Update the same goldens in two runs at once, and return what went wrong, a line each."""
    _write(folder, tests)
    runs = [_start(folder, "--tf-golden=update") for _ in range(2)]
    problems = [problem for run in runs for problem in _failed(run, tests)]
    return [*problems, *_failed(_start(folder), tests), *_left(folder, tests)]


def play_kills(folder: Path, times: int, seed: int = 0) -> list[str]:
    """Kill a writing process so often, at seeded moments: the golden is the old one or the new one, whole."""
    moments, path, problems = random.Random(seed), folder / "test.safetensors", []
    command, pipe = [sys.executable, "-c", _WRITER, str(path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as writer:
        assert writer.stdin is not None
        assert writer.stdout is not None
        for number in range(times):
            writer.stdin.write("go\n")
            child = int(writer.stdout.readline())
            time.sleep(moments.expovariate(1 / 0.003))
            os.kill(child, signal.SIGKILL)
            writer.stdout.readline()
            problems += [f"kill {number}: {problem}" for problem in _torn(path)]
        writer.stdin.close()
    return problems


def _torn(path: Path) -> list[str]:
    try:
        recorded = Trace.load(path)
    except GoldenError as error:
        return [str(error)]
    values = {float(record.tensor.max()) for record in recorded.calls[0].inputs if record.tensor is not None}
    foreign = [entry.name for entry in path.parent.iterdir() if entry != path and not entry.name.endswith(PARTIAL)]
    problems = [] if values in ({1.0}, {2.0}) else [f"it holds {values}"]
    return problems + [f"foreign file {name}" for name in foreign]


def play_interrupts(folder: Path, times: int, seed: int = 0) -> list[str]:
    """Press Ctrl-C so often, in each phase of a run in turn, and return what was left in disorder."""
    tests, moments, problems, pressed = 2, random.Random(seed), [], folder / "pressed"
    _write(folder, tests)
    _start(folder, "--tf-golden=update").communicate()
    for number, (phase, (place, mode)) in zip(range(times), cycle(_PHASES.items()), strict=False):
        found: list[str] = []
        for moment in range(moments.randint(1, 8), 0, -1):  # earlier, where the run has fewer such calls
            found = _interrupted(folder, mode, PLACE=place, COUNT=str(moment), SCALE=str(2 + number))
            if pressed.exists():
                break
        found += [] if pressed.exists() else ["the run has no such call"]
        pressed.unlink(missing_ok=True)
        problems += [f"Ctrl-C in {phase}: {problem}" for problem in [*found, *_left(folder, tests)]]
    return problems


def _interrupted(folder: Path, mode: str, **variables: str) -> list[str]:
    """Run a test on a terminal, and return what is wrong with how it was interrupted."""
    master, terminal = pty.openpty()
    attributes, printed = termios.tcgetattr(master), b""
    run = _start(folder, "-x", "-k", "it[1]", mode, output=terminal, **variables)
    os.close(terminal)
    with suppress(OSError):  # it has ended
        while True:
            printed += os.read(master, 1 << 12)
    code = run.wait()
    is_told = code == _INTERRUPTED and b"Traceback" not in printed
    problems = [] if is_told else [f"exit status {code}: {printed[-1500:].decode(errors='replace')}"]
    problems += [] if not printed or printed.endswith(b"\n") else ["its last line is not ended"]
    problems += [] if termios.tcgetattr(master) == attributes else ["the terminal has other settings"]
    os.close(master)
    return problems


def _write(folder: Path, tests: int) -> None:
    (folder / "test_it.py").write_text(_SUITE.format(tests=tests))
    (folder / "conftest.py").write_text(_CONFTEST)


def _start(folder: Path, *options: str, output: int = subprocess.PIPE, **variables: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *options]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, cwd=folder, env=environment | variables, text=True, stdout=output, stderr=subprocess.STDOUT
    )


def _failed(run: subprocess.Popen[str], tests: int) -> list[str]:
    printed = run.communicate()[0]
    return [] if f"{tests} passed" in printed else [printed[-600:]]


def _left(folder: Path, tests: int) -> list[str]:
    """Return which goldens are gone, cannot be read or hold another test's tensors, and what lies beside them."""
    goldens = folder / "goldens" / "test_it"
    files = sorted(goldens.glob("*.safetensors")) if goldens.exists() else []
    problems = [] if len(files) == tests else [f"{len(files)} goldens of {tests}"]
    for file in files:
        try:
            (record,) = load(file).trace.calls[0].inputs
        except (GoldenError, ValueError) as error:  # noqa: PERF203 - each file is told of
            problems.append(f"{file.name}: {error}")
        else:
            value = torch.full((2, 4), float(file.name.partition("[")[2].partition("]")[0]))
            if record.tensor is None or not torch.equal(record.tensor, value):
                problems.append(f"{file.name}: it holds another test's tensors")
    return problems

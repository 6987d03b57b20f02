"""Processes that write goldens: killed or interrupted at any moment, two at once, several workers, many tests."""

from __future__ import annotations

import json
import os
import pty
import random
import resource
import signal
import subprocess
import sys
import termios
import time
from collections import deque
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from threading import Thread
from typing import NamedTuple

import torch

from pytest_tfdebug import GoldenError, Trace
from pytest_tfdebug.goldens.store.golden_file import load
from pytest_tfdebug.tracing.record.replacing import PARTIAL

#: Kilobytes and handles that a run may grow by after its first tenth, and how much longer a test may take.
KILOBYTES, HANDLES, SLOWER = 20_000, 5, 1.5
#: The exit status of a run of pytest that was interrupted, and of one that ended before Ctrl-C was pressed.
_INTERRUPTED, _TOO_LATE = 2, 77
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
#: Writes what each test leaves of the process, to a file for each worker.
_CONFTEST = """
import os
import time
import pytest
from safety.goldens import sample

@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item, nextitem):
    started = time.process_time()
    result = yield
    with open(f"samples.{os.environ.get('PYTEST_XDIST_WORKER', 'own')}", "a") as file:
        print(*sample(started), file=file)
    return result
"""
#: Where Ctrl-C is pressed -> whose code runs then, and the arguments of the run; its model is another one each time.
_PHASES = {
    "collection": ("/_pytest/python.py", "--tf-golden=update"),
    "trace": ("/pytest_tfdebug/tracing/record/", "--tf-golden=check"),
    "compare": ("/pytest_tfdebug/parity/tensors/", "--tf-golden=check"),
    "explain": ("/pytest_tfdebug/parity/explain/", "--tf-golden=check"),
    "report": ("/pytest_tfdebug/report/", "--tf-golden=check"),
    "write": ("/pytest_tfdebug/tracing/file/", "--tf-golden=update"),
    "replace": ("/pytest_tfdebug/tracing/record/replacing.py", "--tf-golden=update"),
    "terminal summary": ("/pytest_tfdebug/goldens/session.py:summary", "--tf-golden=update"),
}
#: Runs pytest for ever in children that it forks, so that a Ctrl-C costs no import of torch. It is pressed at so many
#: calls of functions of a file, of files in a folder, or of one function.
_RUNNER = """
import json, os, sys, signal, warnings
import pytest, torch
import pytest_tfdebug.goldens.check.golden_check
warnings.simplefilter("ignore")
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        place, count, mode, os.environ["SCALE"] = json.loads(line)
        def press(frame, event, _):
            global count
            if event == "call" and place in f"{frame.f_code.co_filename}:{frame.f_code.co_name}":
                count -= 1
                if not count:
                    sys.setprofile(None)
                    os.kill(os.getpid(), signal.SIGINT)
        class Pressing:
            def pytest_sessionstart(self):
                sys.setprofile(press)
        code = pytest.main(["-q", "-x", "-p", "no:cacheprovider", "-k", "it[1]", mode], plugins=[Pressing()])
        os._exit(TOO_LATE if count > 0 else code)
    os.write(int(sys.argv[1]), f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\\n".encode())
"""


class Sample(NamedTuple):
    """What one test took of the processor, and the size and the handles of the process after it."""

    seconds: float
    kilobytes: int
    handles: int


def sample(started: float) -> Sample:
    """Return what a test leaves that began at this processor time; the most memory so far where no more is told."""
    seconds, system = time.process_time() - started, Path("/proc/self")
    if not system.exists():
        return Sample(seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, 0)
    pages = int((system / "statm").read_text(encoding="ascii").split()[1])
    return Sample(seconds, pages * resource.getpagesize() // 1024, len(list((system / "fd").iterdir())))


def growth(file: Path) -> Sample:
    """Return how much longer a test takes at the end than after a tenth of them, and what the process has more."""
    lines = (line.split() for line in file.read_text().splitlines())
    found = [Sample(float(seconds), int(kilobytes), int(handles)) for seconds, kilobytes, handles in lines]
    seconds, part = [each.seconds for each in found], max(1, len(found) // 10)
    slower = median(seconds[-part:]) / median(seconds[1 : 1 + part])
    return Sample(slower, found[-1].kilobytes - found[part].kilobytes, found[-1].handles - found[part].handles)


def play_many(
    folder: Path, tests: int, options: tuple[str, ...] = (), modes: tuple[str, ...] = ("missing", "check", "update")
) -> list[str]:
    """Record, check and update the goldens of many tests, and return what went wrong or grew in a process."""
    _write(folder, tests)
    problems = []
    for mode in modes:
        problems += _failed(_start(folder, f"--tf-golden={mode}", *options), tests)
        for file in sorted(folder.glob("samples.*")):
            slower, kilobytes, handles = growth(file)
            found = [f"the process grew by {kilobytes:,} kB"] if kilobytes > KILOBYTES else []
            found += [f"{handles} handles are left open"] if handles > HANDLES else []
            found += [f"a test takes {slower:.2f} times as long at the end"] if slower > SLOWER else []
            problems += [f"{mode}, {file.name}: {problem}" for problem in found]
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
    tests, moments, problems = 2, random.Random(seed), []
    _write(folder, tests)
    _start(folder, "--tf-golden=update").communicate()
    master, terminal = pty.openpty()
    shown: deque[bytes] = deque(maxlen=50)
    Thread(target=lambda: shown.extend(iter(partial(os.read, master, 1 << 12), b"")), daemon=True).start()
    attributes = termios.tcgetattr(terminal)
    told, tell = os.pipe()
    command = [sys.executable, "-c", f"TOO_LATE = {_TOO_LATE}\n{_RUNNER}", str(tell)]
    start = partial(subprocess.Popen[str], stdin=subprocess.PIPE, stdout=terminal, stderr=terminal, text=True)
    with (
        os.fdopen(told, encoding="ascii") as answers,
        start(command, cwd=folder, env=_environment(), pass_fds=[tell]) as runner,
    ):
        os.close(tell)
        assert runner.stdin is not None
        for number, (phase, (place, mode)) in zip(range(times), cycle(_PHASES.items()), strict=False):
            code = _TOO_LATE
            for moment in range(moments.randint(1, 8), 0, -1):  # earlier, where the run has fewer such calls
                if code == _TOO_LATE:
                    shown.clear()
                    runner.stdin.write(json.dumps([place, moment, mode, str(2 + number)]) + "\n")
                    runner.stdin.flush()
                    code = int(answers.readline())
            time.sleep(0.05)  # for what it wrote
            printed = b"".join(shown)
            is_told = code == _INTERRUPTED and b"Traceback" not in printed
            found = [] if is_told else [f"exit status {code}: {printed[-1500:].decode(errors='replace')}"]
            found += [] if not printed or printed.endswith(b"\n") else ["its last line is not ended"]
            found += [] if termios.tcgetattr(terminal) == attributes else ["the terminal has other settings"]
            problems += [f"Ctrl-C in {phase}: {problem}" for problem in [*found, *_left(folder, tests)]]
        runner.stdin.close()
    return problems


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

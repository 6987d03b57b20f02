"""A process that writes goldens is killed at any moment: the golden is the old one or the new one, whole."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from pytest_tfdebug import GoldenError, Trace
from pytest_tfdebug.tracing.record.replacing import PARTIAL, sweep

if TYPE_CHECKING:
    from pathlib import Path

#: Writes two goldens in turn for ever, in children that it forks, so that a kill costs no import of torch.
_WRITER = """
import os, sys, signal
import torch
from pytest_tfdebug import trace
torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
traces = [trace(model, torch.full((64, 64), float(value))) for value in (1, 2)]
traces[0].save(sys.argv[1])
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        print(os.getpid(), flush=True)
        while True:
            for each in traces:
                each.save(sys.argv[1])
    os.waitpid(child, 0)
    print("dead", flush=True)
"""


def play_kills(folder: Path, times: int, seed: int = 0) -> list[str]:
    """Kill a writing process so often, at seeded moments, and return what went wrong, a line each."""
    moments, path, problems = random.Random(seed), folder / "test.safetensors", []
    command, pipe = [sys.executable, "-c", _WRITER, str(path)], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as writer:
        if writer.stdin is None or writer.stdout is None:
            raise RuntimeError("there are no pipes")
        for number in range(times):
            writer.stdin.write("go\n")
            child = int(writer.stdout.readline())
            time.sleep(moments.expovariate(1 / 0.003))
            os.kill(child, signal.SIGKILL)
            writer.stdout.readline()
            problems += [f"kill {number}: {problem}" for problem in _problems(path)]
        writer.stdin.close()
    sweep(folder)
    left = [entry.name for entry in folder.iterdir() if entry != path]
    return [*problems, *([f"left behind: {', '.join(left)}"] if left else [])]


def _problems(path: Path) -> list[str]:
    try:
        recorded = Trace.load(path)
    except GoldenError as error:
        return [str(error)]
    values = {float(record.tensor.max()) for record in recorded.calls[0].inputs if record.tensor is not None}
    foreign = [entry.name for entry in path.parent.iterdir() if entry != path and not entry.name.endswith(PARTIAL)]
    problems = [] if values in ({1.0}, {2.0}) else [f"it holds {values}"]
    return problems + [f"foreign file {name}" for name in foreign]

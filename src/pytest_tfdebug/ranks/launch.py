"""The processes of one test: started, waited for, ended with all that they started; and the group that they form."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

if TYPE_CHECKING:
    from typing_extensions import Self


#: Seconds between two looks at the processes.
_PAUSE = 0.02
#: Seconds that the other ranks have once one has failed: they may fail for the same reason, or wait for it for ever.
_GRACE = 5.0
#: Seconds within which a rank that hangs writes where it is.
_TRACEBACK = 10.0
#: Where a traceback leaves the test for the code that runs it.
_BELOW = f"{os.sep}_pytest{os.sep}python.py"
#: Lines of what a rank printed that are shown of one that gave no report.
_LINES = 40


@dataclass
class Rank:
    """One process."""

    number: int  # its rank
    folder: Path  # where it and its log are
    process: subprocess.Popen[bytes]  # the process; its standard input stays open until it may end
    result: dict[str, Any] | None = None  # what it did with the test; None until it has
    lost: str = field(default="")  # why there is no result; empty where there is one

    @property
    def has_failed(self) -> bool:
        """Whether it died, or a phase of its test failed."""
        return bool(self.lost) or (self.result is not None and bool(self.result["has_failed"]))

    def look(self) -> bool:
        """Tell whether it has ended, well or not."""
        if self.result is None and not self.lost:
            ended = self.process.poll()
            file = self.folder / f"{self.number}.json"
            if file.exists():
                self.result = json.loads(file.read_text(encoding="utf-8"))
            elif ended is not None:
                self.lost = f"died with {_exit(ended)}"
        return self.result is not None or bool(self.lost)

    def ask_where(self) -> None:
        """Have it write the lines that it is at."""
        if hasattr(signal, "SIGUSR1") and self.process.poll() is None:
            self.process.send_signal(signal.SIGUSR1)

    def log(self) -> str:
        """Return the last of what it printed."""
        text = (self.folder / f"{self.number}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-_LINES:])

    def traceback(self) -> str:
        """Return the lines that it was at when it was asked; empty where it did not say."""
        file = self.folder / f"{self.number}.traceback"
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        main = next(
            (part for part in reversed(text.split("\n\n")) if part.strip()), ""
        )  # the last thread is the main one
        return "\n".join(main.splitlines()[1:]).partition(_BELOW)[0].rpartition("\n")[0]

    def kill(self) -> None:
        """End it, and all that it started."""
        try:
            if hasattr(os, "killpg"):
                os.killpg(self.process.pid, signal.SIGKILL)
            else:
                self.process.kill()
        except ProcessLookupError:
            pass
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


class Ranks:
    """The processes of a test, from the first to the last line of a ``with`` block."""

    def __init__(self, count: int, task: dict[str, Any]) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="tfdebug-ranks-"))
        self._task = {**task, "world_size": count, "rendezvous": (self._folder / "rendezvous").as_uri()}
        self.ranks: list[Rank] = []

    def __enter__(self) -> Self:
        (self._folder / "task.json").write_text(json.dumps(self._task), encoding="utf-8")
        try:
            for number in range(self._task["world_size"]):
                self.ranks.append(self._start(number))
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        for rank in self.ranks:
            rank.kill()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _start(self, number: int) -> Rank:
        count = str(self._task["world_size"])
        environment = {
            "OMP_NUM_THREADS": "1",  # as torchrun: the ranks share the cores
            **os.environ,
            "RANK": str(number),
            "LOCAL_RANK": str(number),
            "WORLD_SIZE": count,
            "LOCAL_WORLD_SIZE": count,
        }
        with (self._folder / f"{number}.log").open("wb") as log:
            process = subprocess.Popen(  # noqa: S603 - this package's own module
                [sys.executable, str(Path(__file__).with_name("worker.py")), str(self._folder), str(number)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        return Rank(number, self._folder, process)

    def wait(self, timeout: float) -> None:
        """Wait until every rank has a result, or one has failed and the rest can be given up, or the time is over."""
        end = time.monotonic() + timeout
        is_final = False
        while [rank for rank in self.ranks if not rank.look()]:
            if not is_final and any(rank.has_failed for rank in self.ranks):
                end, is_final = min(end, time.monotonic() + _GRACE), True
            if time.monotonic() > end:
                self._give_up(f"did not end within timeout={timeout:g} s" if not is_final else "was still waiting")
                return
            time.sleep(_PAUSE)

    def _give_up(self, why: str) -> None:
        stuck = [rank for rank in self.ranks if not rank.look()]
        for rank in stuck:
            rank.ask_where()
        end = time.monotonic() + _TRACEBACK
        while time.monotonic() < end and not all(rank.traceback() for rank in stuck):
            time.sleep(_PAUSE)
        for rank in stuck:
            if not rank.look():
                rank.lost = why


def _exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"


class Launched(NamedTuple):
    """What whoever started this process has told it."""

    rank: int  # number of this process
    world_size: int  # number of processes
    rendezvous: str  # URL by which they find each other


#: Who this process is, in a process that was started for one test.
GROUP: pytest.StashKey[Launched] = pytest.StashKey()


def by_torchrun() -> Launched | None:
    """Return what ``torchrun`` told this process; None where it did not start it."""
    if "TORCHELASTIC_RUN_ID" not in os.environ:
        return None
    return Launched(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), "env://")


def start_group(launched: Launched, timeout: float) -> None:
    """Join the default process group, once: nccl where each rank has a device, and gloo for what is on the CPU."""
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return
    backend = "gloo"
    if torch.cuda.is_available() and torch.cuda.device_count() >= launched.world_size:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    dist.init_process_group(
        backend,
        init_method=launched.rendezvous,
        rank=launched.rank,
        world_size=launched.world_size,
        timeout=timedelta(seconds=timeout),
    )


def stop_group() -> None:
    """Leave the default process group, if there is one."""
    import torch.distributed as dist

    if dist.is_initialized():
        dist.destroy_process_group()

"""The processes of one test: started, waited for, ended with all that they started; and the group that they form."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


#: URL by which torchrun's processes find each other, and the variable with that of the ranks of one test.
BY_TORCHRUN, _RENDEZVOUS = "env://", "TFDEBUG_RENDEZVOUS"
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
    lost: str = ""  # why there is no result; empty where there is one

    @property
    def has_failed(self) -> bool:
        """Whether it died, or a phase of its test failed."""
        return bool(self.lost) or (self.result is not None and bool(self.result["has_failed"]))

    @property
    def has_died(self) -> bool:
        """Whether it ended without a result."""
        return self.lost.startswith("died")

    @property
    def problem(self) -> str:
        """Why it could not run the test; empty where it could."""
        return "" if self.result is None else str(self.result["problem"])

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

    def log(self) -> str:
        """Return the last of what it printed."""
        text = (self.folder / f"{self.number}.log").read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-_LINES:])

    def traceback(self) -> str:
        """Return the lines that it was at when it was asked; empty where it did not say."""
        file = self.folder / f"{self.number}.traceback"
        text = file.read_text(encoding="utf-8", errors="replace") if file.exists() else ""
        main = text.strip().rpartition("\n\n")[2]  # the last thread is the main one
        return "\n".join(main.splitlines()[1:]).partition(_BELOW)[0].rpartition("\n")[0]

    def kill(self) -> None:
        """End it, and all that it started."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if self.process.stdin is not None:
            self.process.stdin.close()


@contextmanager
def started(count: int, task: dict[str, Any]) -> Iterator[list[Rank]]:
    """Start the processes of a test, which run from the first to the last line of the block."""
    with tempfile.TemporaryDirectory(prefix="tfdebug-ranks-", ignore_cleanup_errors=True) as name:
        folder, ranks = Path(name), list[Rank]()
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        try:
            for number in range(count):
                ranks.append(_start(folder, number, str(count)))
            yield ranks
        finally:
            for rank in ranks:
                rank.kill()


def _start(folder: Path, number: int, count: str) -> Rank:
    environment = {
        "OMP_NUM_THREADS": "1",  # as torchrun: the ranks share the cores
        **os.environ,
        **dict.fromkeys(("RANK", "LOCAL_RANK"), str(number)),
        **dict.fromkeys(("WORLD_SIZE", "LOCAL_WORLD_SIZE"), count),
        _RENDEZVOUS: (folder / "rendezvous").as_uri(),
    }
    with (folder / f"{number}.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603 - this package's own module
            [sys.executable, str(Path(__file__).with_name("worker.py")), str(folder), str(number)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    return Rank(number, folder, process)


def wait(ranks: list[Rank], timeout: float) -> None:
    """Wait until every rank has a result, or one has failed and the rest can be given up, or the time is over."""
    end, why, is_final = time.monotonic() + timeout, f"did not end within timeout={timeout:g} s", False
    while waiting := [rank for rank in ranks if not rank.look()]:
        if not is_final and any(rank.has_failed for rank in ranks):
            end, why, is_final = min(end, time.monotonic() + _GRACE), "was still waiting", True
        if time.monotonic() > end:
            _give_up(waiting, why)
            return
        time.sleep(_PAUSE)


def _give_up(stuck: list[Rank], why: str) -> None:
    """Have ranks that are still under way write the lines that they are at."""
    for rank in stuck:
        if rank.process.poll() is None:
            rank.process.send_signal(signal.SIGUSR1)
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


def launched() -> Launched | None:
    """Return what ``torchrun`` has told this process, or who started it for one test; None where neither did."""
    rendezvous = BY_TORCHRUN if "TORCHELASTIC_RUN_ID" in os.environ else os.environ.get(_RENDEZVOUS)
    if rendezvous is None:
        return None
    return Launched(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), rendezvous)


def start_group(launched: Launched, timeout: float) -> None:
    """Join the default process group, once: nccl where each rank has a device, and gloo for what is on the CPU."""
    import torch
    import torch.distributed as dist

    if dist.is_initialized():
        return
    has_devices = torch.cuda.is_available() and torch.cuda.device_count() >= launched.world_size
    if has_devices:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group(
        "cpu:gloo,cuda:nccl" if has_devices else "gloo",
        init_method=launched.rendezvous,
        rank=launched.rank,
        world_size=launched.world_size,
        timeout=timedelta(seconds=timeout),
    )

"""One rank: pytest, for one test, told by the process that started it what to do.

It sees the command line of that process, as a worker of pytest-xdist does, and like one it writes no report of its own.
It is run as a script, and imports no other file of the package before pytest has loaded that as a plugin.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator
    from warnings import WarningMessage

#: What the run around it decides and a rank does not: which tests run, where, how often, and what is written.
_OFF: dict[str, Any] = {
    **dict.fromkeys(("lf", "failedfirst", "newfirst", "stepwise", "usepdb", "trace", "looponfail"), False),
    "maxfail": 0,
    "xmlpath": None,
    "dist": "no",
    "numprocesses": None,
    "tx": [],
}


class Worker:
    """The hooks of a rank."""

    _config: pytest.Config

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self._rank = folder, rank
        self.task: dict[str, Any] = json.loads((folder / "task.json").read_text(encoding="utf-8"))
        self._result: dict[str, Any] = {"has_failed": False, "reports": [], "warnings": [], "problem": ""}

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_parse(self) -> Generator[None, pytest.Config, pytest.Config]:
        """Collect the file of the one test, and be as quiet as a worker."""
        config = yield
        for name, value in _OFF.items():
            if hasattr(config.option, name):
                setattr(config.option, name, value)
        config.option.basetemp = str(self._folder / f"{self._rank}.tmp")
        config.args[:] = [self.task["file"]]
        config.workerinput = {"workerid": f"rank{self._rank}", **self.task["input"]}  # type: ignore[attr-defined] # as xdist
        config.workeroutput = {}  # type: ignore[attr-defined] # likewise
        self._config = config
        return config

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Leave the one test."""
        items[:] = [item for item in items if item.nodeid == self.task["test"]]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note why the file could not be collected."""
        if report.failed:
            self._result.update(has_failed=True, problem=report.longreprtext)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the report of a phase."""
        self._result["has_failed"] |= report.failed
        kept = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._result["reports"].append(kept)

    def pytest_warning_recorded(self, warning_message: WarningMessage, when: str, nodeid: str) -> None:
        """Keep a warning of the test; the process that started this one has those of the collection."""
        if when != "runtest":
            return
        kind, at = warning_message.category, [warning_message.filename, warning_message.lineno]
        told = {"kind": [kind.__module__, kind.__name__], "text": str(warning_message.message), "at": at}
        self._result["warnings"].append({**told, "nodeid": nodeid})

    def leave(self, status: int) -> None:
        """Leave the result where the process that started this one looks for it, whole or not at all."""
        self._result["output"] = getattr(getattr(self, "_config", None), "workeroutput", {})
        if not self._result["reports"] and not self._result["problem"]:
            self._result.update(has_failed=True, problem=f"The test was not found there (exit status {status}).")
        file = self._folder / f"{self._rank}.json"
        part = file.with_suffix(".part")
        part.write_text(json.dumps(self._result, default=str), encoding="utf-8")
        part.replace(file)


def _end_with_parent(lifeline: int) -> None:
    """End this process, and what it started, when the one that started it lets its end of a pipe go."""
    os.read(lifeline, 1)
    os.killpg(0, signal.SIGKILL)


def main(folder: Path, rank: int) -> None:
    """Run the one test, leave its result, and wait to be ended: no rank's end disturbs another."""
    watch = threading.Thread(target=_end_with_parent, args=[os.dup(0)], daemon=True)  # pytest takes 0 for itself
    watch.start()
    worker = Worker(folder, rank)
    with (folder / f"{rank}.traceback").open("w", encoding="utf-8") as file:
        faulthandler.register(signal.SIGUSR1, file, all_threads=True)
        sys.path[:] = worker.task["path"]
        worker.leave(pytest.main(worker.task["arguments"], plugins=[worker]))
        watch.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))

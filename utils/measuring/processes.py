"""Whole processes as candidates: time them by calling them, and ask for their peak memory."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_PEAK = (
    "import os, sys\n"
    "_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)\n"
    "print(usage.ru_maxrss)\n"
    "sys.exit(os.waitstatus_to_exitcode(status))"
)


@dataclass(frozen=True)
class Python:
    """A run of this Python.

    Args:
        arguments: Of the command line.
        directory: Where it runs.
        cache: What it finds as the user's cache directory.
        alone: Keep pytest from loading the plugins that are installed beside this one.
    """

    arguments: tuple[str, ...]
    directory: Path
    cache: Path
    alone: bool = False

    def __call__(self) -> str:
        """Run it and return what it prints.

        Raises:
            SystemExit: If it fails.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"} if self.alone else {}
        done = subprocess.run(  # noqa: S603 - what this benchmark compares
            [sys.executable, *self.arguments],
            cwd=self.directory,
            env={**environment, "XDG_CACHE_HOME": str(self.cache)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            command = " ".join(("python", *self.arguments))
            raise SystemExit(f"{command} exited with {done.returncode}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        return done.stdout

    def megabytes(self) -> float:
        """Run it and return its peak memory.

        A small process starts it: the memory that a process had before it became another counts as the other's.
        """
        arguments = ("-c", _PEAK, sys.executable, *self.arguments)
        return float(Python(arguments, self.directory, self.cache)().split()[-1]) / 1024

"""Whole processes as candidates, and what one of pytest that uses nothing of the plugin pays for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measuring.figures import OF_PYTEST, Figure, of_rounds

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.figures import Settings

_PEAK = (
    "import os, sys\n"
    "_, status, usage = os.wait4(os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ), 0)\n"
    "print(usage.ru_maxrss)\n"
    "sys.exit(os.waitstatus_to_exitcode(status))"
)


@dataclass(frozen=True)
class Python:
    """A run of this Python: its arguments, where it runs, and what it finds as the user's cache directory."""

    arguments: tuple[str, ...]
    directory: Path
    cache: Path

    def __call__(self) -> str:
        """Run it and return what it prints; a run that fails ends the benchmark."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
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


HEAVY = frozenset(("torch", "transformers", "numpy", "pandas", "safetensors", "libcst", "huggingface_hub"))
_IMPORT = (
    "import sys, time; began = time.process_time(); import pytest, logging; before = set(sys.modules);"
    "half = time.process_time(); import pytest_tfdebug.plugin; ended = time.process_time();"
    "print(ended - half, half - began, *{name.partition('.')[0] for name in set(sys.modules) - before})"
)


def measure_idle(settings: Settings) -> Iterator[Figure]:
    """Yield the time of the import beside that of pytest, and the heavy modules that it brings."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        run = Python(("-c", _IMPORT), directory, directory)
        outputs = [run().split() for _ in range(3 * settings.rounds + 1)]
        pairs = [(float(own), float(pytests)) for own, pytests, *_ in outputs[1:]]  # the first may write the bytecode
        heavy = sorted(HEAVY & set(outputs[0][2:]))
        shares, seconds = [100 * own / pytests for own, pytests in pairs], [own for own, _ in pairs]
        yield of_rounds("idle", "pytest", "import", shares, OF_PYTEST, seconds=seconds)
        yield Figure("idle", "pytest", "heavy modules", len(heavy), "modules", note=", ".join(heavy))

"""What a pytest run that uses nothing of the plugin pays for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from measuring.alternate import alternate
from measuring.figures import MILLISECONDS, Figure, of_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from measuring.figures import Settings

HEAVY = frozenset(("torch", "transformers", "numpy", "pandas", "safetensors", "libcst", "huggingface_hub"))
_WORK = "pytest"
#: A run of pytest is a process: it gets so much more time than others.
_MORE = 4
_IMPORT = (
    "import sys, time, pytest; before = set(sys.modules); began = time.perf_counter(); import pytest_tfdebug.plugin;"
    "print(time.perf_counter() - began, *{name.partition('.')[0] for name in set(sys.modules) - before})"
)
_SUITES = {
    "empty suite": ("", 5),
    "1,000 tests": (
        "import pytest\n\n@pytest.mark.parametrize('number', range(1000))\ndef test(number):\n    pass\n",
        0,
    ),
}


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield the time of the import, the heavy modules it brings, and what suites take more than without the plugin."""
    if settings.wants("import") or settings.wants("heavy modules"):
        yield from _of_import(settings.rounds)
    for name, (code, status) in _SUITES.items():
        if settings.wants(name):
            yield _of_suite(name, code, status, settings)


def _of_import(rounds: int) -> Iterator[Figure]:
    outputs = [
        subprocess.run([sys.executable, "-c", _IMPORT], capture_output=True, text=True, check=True).stdout.split()  # noqa: S603
        for _ in range(rounds + 1)
    ]
    seconds = [float(output[0]) for output in outputs[1:]]  # the first one may have written the bytecode
    heavy = sorted(HEAVY & set(outputs[0][1:]))
    yield of_rounds("idle", _WORK, "import", [1e3 * each for each in seconds], MILLISECONDS, seconds=seconds)
    yield Figure("idle", _WORK, "heavy modules", len(heavy), "modules", note=", ".join(heavy))


def _of_suite(name: str, code: str, status: int, settings: Settings) -> Figure:
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "test_suite.py"
        file.write_text(code, encoding="utf-8")
        without, with_it = _pytest(file, status, "-p", "no:tfdebug"), _pytest(file, status)
        timed = alternate(without, {name: with_it}, settings.rounds, patience=_MORE * settings.patience)
    times = timed[name]
    added = [1e3 * each for each in times.differences]
    return of_rounds("idle", _WORK, name, added, MILLISECONDS, seconds=times.seconds, note="than with -p no:tfdebug")


def _pytest(file: Path, status: int, *options: str) -> Callable[[], object]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, str(file)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}

    def run() -> None:
        done = subprocess.run(command, cwd=file.parent, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode != status:
            raise SystemExit(f"{' '.join(command)} exited with {done.returncode}:\n{done.stdout}{done.stderr}")

    return run

"""What a pytest run that uses nothing of the plugin pays for it."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from measuring.alternate import alternate
from measuring.figures import MILLISECONDS, Figure, of_rounds
from measuring.processes import Python

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measuring.figures import Settings

HEAVY = frozenset(("torch", "transformers", "numpy", "pandas", "safetensors", "libcst", "huggingface_hub"))
_WORK = "pytest"
#: A run of pytest is a process: it gets so much more time than others.
_MORE = 3
_IMPORT = (
    "import sys, time, pytest; before = set(sys.modules); began = time.perf_counter(); import pytest_tfdebug.plugin;"
    "print(time.perf_counter() - began, *{name.partition('.')[0] for name in set(sys.modules) - before})"
)
#: Code and exit status of each suite.
_SUITES = {
    "empty suite": ("", 5),
    "1,000 tests": (
        "import pytest\n\n@pytest.mark.parametrize('number', range(1000))\ndef test(number):\n    pass\n",
        0,
    ),
}


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield the time of the import, the heavy modules it brings, and what suites take more than without the plugin."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        if settings.wants("import") or settings.wants("heavy modules"):
            yield from _of_import(directory, settings)
        for suite, (code, status) in _SUITES.items():
            if settings.wants(suite):
                yield _of_suite(suite, code, status, directory, settings)


def _of_import(directory: Path, settings: Settings) -> Iterator[Figure]:
    run = Python(("-c", _IMPORT), directory, directory)
    outputs = [run().split() for _ in range(settings.rounds + 1)]
    seconds = [float(output[0]) for output in outputs[1:]]  # the first one may have written the bytecode
    heavy = sorted(HEAVY & set(outputs[0][1:]))
    yield of_rounds("idle", _WORK, "import", [1e3 * each for each in seconds], MILLISECONDS, seconds=seconds)
    yield Figure("idle", _WORK, "heavy modules", len(heavy), "modules", note=", ".join(heavy))


def _of_suite(name: str, code: str, status: int, directory: Path, settings: Settings) -> Figure:
    file = directory / "test_suite.py"
    file.write_text(code, encoding="utf-8")
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", file.name)
    with_it, without = (
        Python((*arguments, "-p", plugin), directory, directory, status, alone=True)
        for plugin in ("pytest_tfdebug.plugin", "no:tfdebug")
    )
    patience = _MORE * settings.patience
    times = alternate(without, {name: with_it}, 3 * settings.rounds, patience=patience)[name]
    added = [1e3 * each for each in times.differences]
    return of_rounds("idle", _WORK, name, added, MILLISECONDS, seconds=times.seconds, note="than with -p no:tfdebug")

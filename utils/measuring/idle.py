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
_IMPORT = (
    "import sys, time, pytest; before = set(sys.modules); began = time.perf_counter(); import pytest_tfdebug.plugin;"
    "print(time.perf_counter() - began, *{name.partition('.')[0] for name in set(sys.modules) - before})"
)
_SUITE = "import pytest\n\n@pytest.mark.parametrize('number', range(1000))\ndef test(number):\n    pass\n"


def measure(settings: Settings) -> Iterator[Figure]:
    """Yield the time of the import, the heavy modules it brings, and what 1,000 tests take more with the plugin."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        run = Python(("-c", _IMPORT), directory, directory)
        outputs = [run().split() for _ in range(settings.rounds + 1)]
        seconds = [float(output[0]) for output in outputs[1:]]  # the first one may have written the bytecode
        heavy = sorted(HEAVY & set(outputs[0][1:]))
        yield of_rounds("idle", "pytest", "import", [1e3 * each for each in seconds], MILLISECONDS, seconds=seconds)
        yield Figure("idle", "pytest", "heavy modules", len(heavy), "modules", note=", ".join(heavy))
        if settings.names is None:
            yield _of_suite(directory, settings)


def _of_suite(directory: Path, settings: Settings) -> Figure:
    (directory / "test_suite.py").write_text(_SUITE, encoding="utf-8")
    arguments = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "test_suite.py", "-p")
    with_it, without = (
        Python((*arguments, plugin), directory, directory, alone=True)
        for plugin in ("pytest_tfdebug.plugin", "no:tfdebug")
    )
    times = alternate(without, {"": with_it}, 3 * settings.rounds, patience=3 * settings.patience)[""]
    added = [1e3 * each for each in times.differences]
    return of_rounds(
        "idle", "pytest", "1,000 tests", added, MILLISECONDS, seconds=times.seconds, note="than with -p no:tfdebug"
    )

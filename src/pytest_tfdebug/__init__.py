"""Point it at a model and it names the module that is wrong, and the line, and keeps it right from then on."""

import os
import sys

# ``python -m`` puts the current directory before all others, and our commands are run in repositories that nobody has
# read yet: a ``json.py`` that lies there must not be imported in place of Python's. Only what Python itself has loaded
# is imported before this, so there is no import of ``__future__`` either.
if sys.argv[:1] == ["-m"] and any(
    word.removeprefix("-m").partition(".")[0] == "pytest_tfdebug" for word in sys.orig_argv
):
    sys.path[:] = [path for path in sys.path if path not in {"", ".", os.getcwd()}]  # noqa: PTH109 - not loaded yet

from importlib import import_module
from typing import Any

#: Public name -> module that defines it; imported at first use, so that ``import pytest_tfdebug`` costs nothing.
#: Records are in ``pytest_tfdebug.records``, all exceptions and warnings in ``pytest_tfdebug.errors``.
_PUBLIC: dict[str, str] = {
    "ActivationOverflowError": "errors",
    "ConformanceMixin": "conform.mixin",
    "DebugActivationOverflow": "overflow.guard",
    "GoldenError": "errors",
    "InvarianceError": "errors",
    "OverflowCallback": "overflow.callback",
    "ParityError": "errors",
    "ParityReport": "parity.result",
    "TFDebugError": "errors",
    "Trace": "tracing.trace",
    "assert_invariant": "invariance.api",
    "assert_padding_invariant": "invariance.api",
    "audit": "loading.audit",
    "compare": "parity.compare",
    "compare_steps": "steps.api",
    "conformance": "conform.mixin",
    "fill": "goldens.weights",
    "golden": "sweeping.fixture",
    "overflow_guard": "overflow.guard",
    "record": "tracing.trace",
    "sweep": "sweeping.api",
    "trace": "tracing.trace",
}

#: Modules that collect what a runtime computes: ``pytest_tfdebug.onnx.arrays(path, inputs)``.
_RUNTIMES = ("mlx", "onnx")

__all__ = sorted(_PUBLIC)  # noqa: PLE0605 - the table above is the list


def __getattr__(name: str) -> Any:  # noqa: ANN401 - public names are of every kind
    if name == "__version__":
        return import_module("importlib.metadata").version("pytest-tfdebug")
    if name in _RUNTIMES:
        return import_module(f"{__name__}.{name}")
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_PUBLIC})

"""Which common tests does each model of a transformers-style repository skip, and why.

>>> from pytest_tfdebug.scan import scan
>>> result = scan("path/to/transformers", "test_inputs_embeds")  # doctest: +SKIP
>>> result["test_inputs_embeds"].skipped_proportion  # doctest: +SKIP
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_tfdebug.scan.errors import ScanError
    from pytest_tfdebug.scan.result import ScanResult
    from pytest_tfdebug.scan.scanner import scan

__all__ = ["ScanError", "ScanResult", "scan"]

#: Public name -> module that defines it; imported at first use, as the command line needs less than all.
_PUBLIC = {"ScanError": "errors", "ScanResult": "result", "scan": "scanner"}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_PUBLIC[name]}"), name)
    globals()[name] = value
    return value

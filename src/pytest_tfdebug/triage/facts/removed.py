"""Names that were removed from transformers, and what replaced them, as ``removed.toml`` has them."""

from __future__ import annotations

from pathlib import Path

from pytest_tfdebug.triage.table import table

_TABLE = table(Path(__file__).with_suffix(".toml"))
#: Pattern of a name -> the replacement, as a phrase after "use"; ``{0}`` is the pattern's group.
REMOVED_NAMES: dict[str, str] = _TABLE["names"]
#: Module that is gone -> where its contents are.
REMOVED_MODULES: dict[str, str] = _TABLE["modules"]
#: Argument that is gone -> the callables that had it, and what to write.
REMOVED_ARGUMENTS: dict[str, tuple[str, str]] = _TABLE["arguments"]

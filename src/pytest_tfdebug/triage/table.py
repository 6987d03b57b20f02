"""Reads a table of triage, which is kept as data."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if sys.version_info >= (3, 11):
    import tomllib
else:  # pytest brings it there
    import tomli as tomllib

if TYPE_CHECKING:
    from pathlib import Path


def table(file: Path) -> dict[str, Any]:
    """Return the content of a TOML file of the package."""
    found: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
    return found

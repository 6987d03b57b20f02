"""Files that are replaced as a whole, or stay as they were."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.check_record import SCHEMA

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping


def checks_file(run: Mapping[str, Any], checks: Iterable[str]) -> Iterator[str]:
    """Yield the text of ``--tf-json``, with each check on one line."""
    version = run["environment"]["pytest_tfdebug"]
    head = {"schema": SCHEMA, "generator": {"name": "pytest-tfdebug", "version": version}, "run": run}
    yield json.dumps(head, indent=1)[:-2] + ',\n "checks": ['
    separator = "\n"
    for line in checks:
        yield separator + "  " + line.rstrip("\n")
        separator = ",\n"
    yield "\n ]\n}\n"


def make_folder(folder: Path) -> None:
    """Make a directory that files will be written into, before anything runs.

    Raises:
        pytest.UsageError: If it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(
            f"Cannot write into {folder}: {error.strerror or error}. Name another place."
        ) from error


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """Write a file from pieces of text, replacing it as a whole.

    Raises:
        pytest.UsageError: If it cannot be written.
    """
    name = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", encoding="utf-8", errors="backslashreplace", dir=path.parent, prefix=f".{path.name}.", delete=False
        ) as file:
            name = file.name
            file.writelines(pieces)
        os.chmod(name, 0o644)  # noqa: PTH101 - others may not read a temporary file
        os.replace(name, path)  # noqa: PTH105
    except OSError as error:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        raise pytest.UsageError(f"Cannot write {path}: {error.strerror or error}. Name another place.") from error

"""The files of a run: replaced as a whole, or left as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.check_record import SCHEMA
from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.tracing.record.replacing import replace_atomically

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
    """Make a directory that files will be written into, before anything runs."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(
            f"Cannot write into {folder}: {error.strerror or error}. Name another place."
        ) from error


def write_text(path: Path, pieces: Iterable[str]) -> None:
    """Write a file from pieces of text, replacing it as a whole."""

    def fill(temporary: str) -> None:
        with Path(temporary).open("w", encoding="utf-8", errors="backslashreplace") as file:
            file.writelines(pieces)

    try:
        replace_atomically(path, fill)
    except GoldenError as error:
        raise pytest.UsageError(f"{error} Name another place.") from error

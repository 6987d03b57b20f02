"""The files of a run, pages and checks: replaced as a whole, or left as they were."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_tfdebug.check_record import SCHEMA
from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.report.page.render import assets, render_check, render_index
from pytest_tfdebug.report.page.view import card
from pytest_tfdebug.tracing.record.replacing import replace_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pytest_tfdebug.check_record import CheckRecord


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


class Pages:
    """A directory of pages: an index, a page for each check, and the files that they share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cards: dict[str, dict[str, Any]] = {}
        for name, text in assets():
            write_text(folder / "assets" / name, [text])

    def add(self, check: CheckRecord) -> None:
        """Write the page of a check; the page of a repeated check replaces the earlier one."""
        self._cards.pop(check.slug, None)
        self._cards[check.slug] = card(check)
        write_text(self._folder / "checks" / f"{check.slug}.html", [render_check(check)])

    def finish(self, run: Mapping[str, Any]) -> None:
        """Write the index."""
        for page in (self._folder / "checks").glob("*-????????.html"):  # of an earlier run into the same directory
            if page.stem not in self._cards:
                page.unlink()
        write_text(self._folder / "index.html", [render_index(list(self._cards.values()), run)])

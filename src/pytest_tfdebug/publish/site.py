"""The pages of a run, on disk."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_tfdebug.publish.files import write_text
from pytest_tfdebug.report.page.render import assets, render_check, render_index
from pytest_tfdebug.report.page.view import card

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pytest_tfdebug.check_record import CheckRecord


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

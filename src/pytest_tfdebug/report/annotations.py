"""A failed check as an annotation, which GitHub shows at lines of a pull request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_tfdebug.check_record import CheckRecord


def annotation(record: CheckRecord, root: str) -> str:
    """Return the workflow command of a failed check.

    It is shown at the culprit's lines if they are in the repository, and otherwise at the line of the test.

    Source:
        https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    at = record.culprit.source if record.culprit is not None else None
    places = [(lines, inside) for lines in (at, record.at) if lines and (inside := _inside(lines.file, root))]
    where = ""
    if places:
        lines, file = places[0]
        where = f"file={_property(file)},line={lines.first},endLine={lines.last},"
    message = record.headline
    if record.culprit is not None and record.culprit.explanation:
        message += f"\n{record.culprit.explanation}"
    return f"::error {where}title={_property(f'{record.check}: {record.test}')}::{_escaped(message)}"


def _inside(file: str, root: str) -> str:
    """Return a file's path below the root; empty if it is not there."""
    path = Path(os.path.abspath(file))  # noqa: PTH100 - links stay what they are
    folder = Path(os.path.abspath(root))  # noqa: PTH100
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) and path.exists() else ""


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")

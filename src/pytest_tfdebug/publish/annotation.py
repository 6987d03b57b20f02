"""A failed check as GitHub shows it at lines of a pull request."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfdebug.github import workflow_command

if TYPE_CHECKING:
    from pytest_tfdebug.check_record import CheckRecord


def annotation(record: CheckRecord, root: str) -> str:
    """Return the workflow command of a failed check.

    It is shown at the culprit's lines if they are in the repository, and otherwise at the line of the test.
    """
    culprit, folder = record.culprit, Path(os.path.abspath(root))  # noqa: PTH100 - links stay what they are
    where: dict[str, object] = {}
    for lines in (record.at, culprit.source if culprit is not None else None):
        path = Path(os.path.abspath(lines.file if lines is not None else ""))  # noqa: PTH100 - likewise
        if lines is not None and path.is_relative_to(folder) and path.exists():
            where = {"file": path.relative_to(folder).as_posix(), "line": lines.first, "endLine": lines.last}
    told = f"\n{culprit.explanation}" if culprit is not None and culprit.explanation else ""
    return workflow_command("error", f"{record.headline}{told}", **where, title=f"{record.check}: {record.test}")

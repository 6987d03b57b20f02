"""What GitHub shows at lines of a pull request."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from pytest_tfdebug.redaction import leaving

if TYPE_CHECKING:
    from pytest_tfdebug.check_record import CheckRecord


def workflow_command(level: str, text: str, **properties: object) -> str:
    """Return a command: ``::error file=model.py,line=3::It differs``.

    Source:
        https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    given = ",".join(
        f"{name}={_escaped(str(value)).replace(':', '%3A').replace(',', '%2C')}" for name, value in properties.items()
    )
    return f"::{level} {given}::{_escaped(text)}"


def _escaped(text: str) -> str:
    return leaving(text, keep="\n").replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def annotation(record: CheckRecord, root: str) -> str:
    """Return the workflow command of a failed check.

    It is shown at the culprit's lines if they are in the repository, and otherwise at the line of the test.
    """
    from pathlib import Path

    culprit, folder = record.culprit, Path(os.path.abspath(root))  # noqa: PTH100 - links stay what they are
    where: dict[str, object] = {}
    for lines in (record.at, culprit.source if culprit is not None else None):
        path = Path(os.path.abspath(lines.file if lines is not None else ""))  # noqa: PTH100 - likewise
        if lines is not None and path.is_relative_to(folder) and path.exists():
            where = {"file": path.relative_to(folder).as_posix(), "line": lines.first, "endLine": lines.last}
    told = f"\n{culprit.explanation}" if culprit is not None and culprit.explanation else ""
    return workflow_command("error", f"{record.headline}{told}", **where, title=f"{record.check}: {record.test}")

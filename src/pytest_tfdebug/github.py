"""What GitHub shows at lines of a pull request."""

from __future__ import annotations

from pytest_tfdebug.redaction import leaving


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

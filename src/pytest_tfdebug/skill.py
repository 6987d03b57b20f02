"""The command ``tfdebug skill``: how a program mends a port with this package, on one page."""

from __future__ import annotations

import sys
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] = ()) -> int:
    """Print the page; 2 where an argument was given."""
    if list(arguments) not in ([], ["--help"]):
        sys.stderr.write(f"error: tfdebug skill takes no argument, and got {arguments[0]!r}.\n")
        return 2
    sys.stdout.write(files("pytest_tfdebug").joinpath("SKILL.md").read_text(encoding="utf-8"))
    return 0

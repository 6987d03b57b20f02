"""``tfdebug scan``, also ``python -m pytest_tfdebug.scan``."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING, NoReturn

from pytest_tfdebug.scan import cli

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a scan and end the process with its exit code."""
    gc.disable()  # a scan makes much and drops little until it ends: to look for garbage takes a tenth of its time
    os._exit(cli.main(arguments))  # everything is written; to free what a scan found, piece by piece, would take 30 ms


if __name__ == "__main__":
    main()

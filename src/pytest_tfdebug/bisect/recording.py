"""The plugin of the runs of ``tfdebug bisect``: the model under test is recorded, not its reference."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_tfdebug.goldens.settings import RECORDS_PORT

if TYPE_CHECKING:
    import pytest

#: The environment variable that holds the directory of the first version's goldens.
FIRST = "TFDEBUG_BISECT_FIRST"


def pytest_configure(config: pytest.Config) -> None:
    """Record what each version's own model computes, with the numbers that ``fill`` gave to the first one's."""
    config.stash[RECORDS_PORT] = Path(os.environ[FIRST])

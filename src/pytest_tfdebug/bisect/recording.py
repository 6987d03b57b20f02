"""The plugin of the runs of ``tfdebug bisect``: the model under test is recorded, not its reference."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.goldens.settings import RECORDS_PORT

if TYPE_CHECKING:
    import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Record what each version's own model computes."""
    config.stash[RECORDS_PORT] = True

"""What a row of a table is made from."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from measuring.work import Work


@dataclass(frozen=True)
class Place:
    """Where candidates may write.

    Args:
        kept: What lies there stays while a section is measured.
        scratch: Emptied before every run.
    """

    kept: Path
    scratch: Path


@dataclass(frozen=True)
class Kind:
    """One way to do a thing.

    Args:
        section: The capability that it belongs to.
        name: As tables show it.
        make: Gets ready, and returns what is timed.
        package: What must be installed for it.
    """

    section: str
    name: str
    make: Callable[[Work, Place], Callable[[], object]]
    package: str = "torch"

    @property
    def is_installed(self) -> bool:
        """Tell whether it can run here."""
        return find_spec(self.package) is not None

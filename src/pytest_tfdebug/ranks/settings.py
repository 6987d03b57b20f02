"""What ``tf_ranks`` was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.marker_arguments import is_number, is_whole_number, unknown, usage_error

if TYPE_CHECKING:
    import pytest
    from typing_extensions import Self

#: Seconds that a test on ranks may take: each rank imports torch and builds its model anew.
DEFAULT_TIMEOUT = 300.0
_FEWEST = 2


class RanksSettings(NamedTuple):
    """What the marker of a test asks for."""

    world_size: int  # number of ranks
    timeout: float  # seconds after which the test is ended

    @classmethod
    def of(cls, item: pytest.Item) -> Self | None:
        """Return what the closest marker of a test asks for; None for a test without it."""
        marker = item.get_closest_marker("tf_ranks")
        if marker is None:
            return None
        wrong = list(unknown("tf_ranks", ("timeout",), marker.args[1:], marker.kwargs))
        count, timeout = (marker.args or (None,))[0], marker.kwargs.get("timeout", DEFAULT_TIMEOUT)
        if not is_whole_number(count, _FEWEST):
            wrong.append(f"tf_ranks({count!r}) is no number of ranks, 2 or more.")
        if not is_number(timeout) or not timeout:
            wrong.append(f"tf_ranks: timeout={timeout!r} is no number of seconds above 0.")
        if wrong:
            raise usage_error(item, TFDebugError("\n".join(wrong)))
        return cls(count, float(timeout))

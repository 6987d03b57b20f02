"""How records come from a worker of pytest-xdist to the process that prints, and what that process tells a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pytest

_T = TypeVar("_T")


def is_worker(config: pytest.Config) -> bool:
    """Tell whether this process runs tests for another one, which prints."""
    return hasattr(config, "workerinput")


def told(config: pytest.Config, key: str) -> Any:  # noqa: ANN401 - a JSON value
    """Return what the process that prints told this worker; None in that process itself."""
    return getattr(config, "workerinput", {}).get(key)


def hand_over(config: pytest.Config, key: str, record: object) -> bool:
    """Leave a record for the process that prints when the run ends; return False in that process itself."""
    output = getattr(config, "workeroutput", None)
    if output is not None:
        output[key] = as_text(record)
    return output is not None


def handed_over(node: Any, key: str, kind: type[_T]) -> _T | None:  # noqa: ANN401 - a worker, and xdist is not typed
    """Return the record that a worker has left; None of one that left none, or died."""
    text = getattr(node, "workeroutput", {}).get(key)
    return None if text is None else read(text, kind)


def as_text(record: object) -> str:
    """Return a dataclass or a named tuple as JSON."""
    import msgspec

    return msgspec.json.encode(record).decode()


def read(text: str, kind: type[_T]) -> _T:
    """Return the record that a JSON text holds."""
    import msgspec

    return msgspec.json.decode(text, type=kind)

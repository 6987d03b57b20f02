"""What a module holds that is no tensor: the numbers, flags, strings and functions that it was built with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_tfdebug.tracing.record.leaves import safe
from pytest_tfdebug.tracing.record.wrappers import modules_by_path

if TYPE_CHECKING:
    import torch

#: Characters of a value that is kept.
_LONGEST = 80


def plain_attributes(model: torch.nn.Module) -> dict[str, dict[str, str]]:
    """Return the public attributes of every module as text, by module path (empty for the root) and name.

    The mode (``training``) is the caller's and is left out.
    """
    found = {}
    for path, module in modules_by_path(model).items():
        public = ((name, held) for name, held in vars(module).items() if name[:1] != "_" and name != "training")
        told = {name: text for name, held in public if (text := _told(held)) and len(text) <= _LONGEST}
        if told:
            found[path] = told
    return found


def _told(held: Any) -> str:  # noqa: ANN401 - any attribute
    """Return a plain value as text; empty for any other."""
    if held is None or isinstance(held, (bool, int, float)):
        return repr(held)
    if isinstance(held, str):
        return safe(repr(held))
    if isinstance(held, tuple) and all(isinstance(each, (bool, int, float)) for each in held):
        return repr(held)
    return getattr(held, "__name__", "") if callable(held) and not isinstance(held, type) else ""

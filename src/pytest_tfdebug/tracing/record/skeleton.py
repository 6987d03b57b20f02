"""The shape of nested inputs and outputs, as JSON, with the tensors left out.

It keeps what transformers' debugger writes about values that are not tensors: their text, without memory addresses
and without secrets.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

import msgspec
import torch

from pytest_tfdebug.redaction import redact
from pytest_tfdebug.redaction.names import is_secret
from pytest_tfdebug.redaction.tokens import MASK
from pytest_tfdebug.tracing.record.leaves import MAX_DEPTH, is_cache, is_registered, opener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.tracing.record.leaves import Leaf

_NUMBERS = (bool, int, float)
_ADDRESS = re.compile(r"object at 0x[0-9A-Fa-f]+")


def skeleton(value: object, leaves: list[Leaf]) -> Any:  # noqa: ANN401
    """Return a nested value with each tensor as ``{"leaf": position in leaves}`` and the rest as text."""
    positions: dict[int, int] = {}
    for position, leaf in enumerate(leaves):
        positions.setdefault(id(leaf.tensor), position)
    return _bare(value, positions)


def _bare(value: object, positions: dict[int, int], within: tuple[int, ...] = ()) -> Any:  # noqa: ANN401
    """Return a value without its tensors; what holds itself, or is nested too deep for a leaf, is ``...``."""
    if isinstance(value, torch.Tensor):
        return {"leaf": positions[id(value)]} if id(value) in positions else "Tensor"
    if value is None or type(value) in _NUMBERS:
        return repr(value)
    if id(value) in within or len(within) == MAX_DEPTH:
        return "..."
    within = (*within, id(value))
    if isinstance(value, (list, tuple)):
        return [_bare(child, positions, within) for child in value]
    items = _items(value)
    if items is not None:
        return {"items": {name: _named(name, child, positions, within) for name, child in items.items()}}
    return _ADDRESS.sub("object at 0xXXXXXXXX", safe(_text(value)))


def _named(name: str, value: object, positions: dict[int, int], within: tuple[int, ...]) -> Any:  # noqa: ANN401
    is_hidden = isinstance(value, str) and is_secret(name, value)
    return repr(MASK) if is_hidden else _bare(value, positions, within)


@lru_cache(maxsize=4096)  # the same few texts are handed from layer to layer
def safe(text: str) -> str:
    """Return a text of a forward without secrets."""
    return redact(text)


def _items(value: object) -> dict[str, object] | None:
    """Return the named parts of a value whose text would hold the values of its tensors; None for any other."""
    if isinstance(value, Mapping):
        return {str(key): child for key, child in value.items()}
    kind = cast("type", type(value))
    open_up = opener(kind) if is_dataclass(kind) or (is_registered(kind) and not is_cache(value)) else None
    return None if open_up is None else {path.strip(".[]'"): child for path, child in open_up(value)}


def _text(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - a user's repr may raise anything, and must not end the forward
        return f"<{type(value).__name__} object>"


def ends(bare: Any) -> Iterator[int | str]:  # noqa: ANN401 - nested JSON, of whoever wrote it
    """Yield what stands at the ends of a skeleton: the number of each leaf, and texts."""
    if isinstance(bare, list):
        for child in bare:
            yield from ends(child)
    elif isinstance(bare, dict) and "items" in bare:
        for child in msgspec.convert(bare["items"], dict[str, Any]).values():
            yield from ends(child)
    elif isinstance(bare, dict):
        yield msgspec.convert(bare["leaf"], int)
    else:
        yield msgspec.convert(bare, str)


def with_texts(bare: Any, change: Callable[[str], str]) -> Any:  # noqa: ANN401 - nested JSON
    """Return a skeleton with other texts."""
    if isinstance(bare, str):
        return change(bare)
    if isinstance(bare, list):
        return [with_texts(child, change) for child in bare]
    if isinstance(bare, dict) and "items" in bare:
        return {"items": {key: with_texts(child, change) for key, child in bare["items"].items()}}
    return bare

"""Nested values -> named tensors.

Every part of the package that looks into a module's inputs and outputs goes through :func:`walk`: tensors in tuples,
lists, dicts, ``ModelOutput``, dataclasses, named tuples, transformers caches and any class that is registered with
``torch.utils._pytree`` are found; each leaf has a path that says how to reach it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Opener: TypeAlias = "Callable[[Any], Iterator[tuple[str, object]]]"

#: Deeper nesting than this is not meant to be looked into.
_MAX_DEPTH = 24
#: Classes of values that hold no tensor.
ATOMS = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device, torch.Size)


class Leaf(NamedTuple):
    """A tensor inside a nested value.

    Args:
        path: How to reach it: ``[0]``, ``.logits``, ``['k']``, ``.layers[1].keys``; empty for the value itself.
        tensor: The tensor.
    """

    path: str
    tensor: torch.Tensor


def walk(value: object, *, into_caches: bool = True) -> list[Leaf]:
    """Return the tensors of a nested value in a fixed order.

    Args:
        value: A tensor or any nesting of tensors.
        into_caches: Also look into key-value caches. They travel by reference through every layer, so that a model of
            ``n`` layers shows ``n * n`` tensors: the recorder looks into them where they enter and leave the model.

    Returns:
        One leaf for each tensor, in the order of the containers.

    Examples:
        >>> [leaf.path for leaf in walk((torch.ones(1), {"k": [torch.ones(2)]}))]
        ['[0]', "[1]['k'][0]"]
    """
    found: list[Leaf] = []
    _collect(value, "", found, [], into_caches)
    return found


def walk_inputs(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, into_caches: bool = True) -> list[Leaf]:
    """Return the tensors of a call's inputs: positional ones as ``[0]``, keyword ones as ``['name']``."""
    found: list[Leaf] = []
    for position, value in enumerate(args):
        _collect(value, f"[{position}]", found, [], into_caches)
    for name, value in kwargs.items():
        _collect(value, f"[{name!r}]", found, [], into_caches)
    return found


def is_cache(value: object) -> bool:
    """Tell whether a value is a key-value or state cache, of transformers or written like one."""
    return _is_cache(type(value))


def _collect(value: object, path: str, found: list[Leaf], within: list[int], into_caches: bool) -> None:  # noqa: FBT001
    if isinstance(value, torch.Tensor):
        found.append(Leaf(path, value))
        return
    if isinstance(value, ATOMS):
        return
    kind = cast("type", type(value))
    open_up = opener(kind) or _pytree_opener(kind)
    if open_up is None or len(within) == _MAX_DEPTH or id(value) in within:
        return
    if not into_caches and is_cache(value):
        return
    within.append(id(value))
    for suffix, child in open_up(value):
        _collect(child, path + suffix, found, within, into_caches)
    within.pop()


def _open_named_tuple(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    for name, child in zip(value._fields, value, strict=True):
        yield f".{name}", child


def _open_sequence(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    for position, child in enumerate(value):
        yield f"[{position}]", child


def _open_model_output(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    for name, child in value.items():
        yield f".{name}", child


def _open_mapping(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    for name, child in value.items():
        yield f"[{name!r}]", child


def _open_dataclass(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    for item in fields(value):
        yield f".{item.name}", getattr(value, item.name, None)


def _open_attributes(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    for name, child in getattr(value, "__dict__", {}).items():
        yield f".{name}", child


def _open_pytree_node(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    from torch.utils import _pytree

    node = _pytree.SUPPORTED_NODES[type(value)]
    if node.flatten_with_keys_fn is not None:
        for key, child in node.flatten_with_keys_fn(value)[0]:
            yield str(key), child
    else:
        yield from _open_sequence(node.flatten_fn(value)[0])


def _is_cache(kind: type) -> bool:
    return kind.__name__.endswith("Cache") and not issubclass(kind, (tuple, list, Mapping))


#: What is nested, most specific first: a predicate of its class, and how its children are reached.
_OPENERS: tuple[tuple[Callable[[type], bool], Opener], ...] = (
    (lambda kind: issubclass(kind, tuple) and hasattr(kind, "_fields"), _open_named_tuple),
    (lambda kind: issubclass(kind, (tuple, list)), _open_sequence),
    (lambda kind: issubclass(kind, dict) and is_dataclass(kind), _open_model_output),
    (lambda kind: issubclass(kind, Mapping), _open_mapping),
    (is_dataclass, _open_dataclass),
    (lambda kind: _is_cache(kind) or kind.__module__ == "transformers.cache_utils", _open_attributes),
)


@lru_cache(maxsize=1024)
def opener(kind: type) -> Opener | None:
    """Return how values of a class are opened, or None for a class that this table does not know."""
    return next((open_up for accepts, open_up in _OPENERS if accepts(kind)), None)


def _pytree_opener(kind: type) -> Opener | None:
    """Likewise for what ``torch.utils._pytree`` knows; asked each time, for classes are registered at any time."""
    from torch.utils import _pytree

    return _open_pytree_node if kind in _pytree.SUPPORTED_NODES else None

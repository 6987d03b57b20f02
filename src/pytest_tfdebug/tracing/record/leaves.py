"""Nested values -> named tensors.

Every part of the package that looks into a module's inputs and outputs asks this file: tensors in tuples, lists, dicts,
``ModelOutput``, dataclasses, named tuples, transformers caches and any class that is registered with
``torch.utils._pytree`` are found; each leaf has a path that says how to reach it. No other file knows torch's registry.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import torch
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Opener: TypeAlias = "Callable[[Any], Iterator[tuple[str, object]]]"

#: Deeper nesting than this is not meant to be looked into.
MAX_DEPTH = 24
#: Classes of values that hold no tensor.
ATOMS = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device, torch.Size)


class Leaf(NamedTuple):
    """A tensor inside a nested value."""

    path: str  # how to reach it: ``[0]``, ``.logits``, ``['k']``, ``.layers[1].keys``; empty for the value itself
    tensor: torch.Tensor


def walk(value: object, *, into_caches: bool = True) -> list[Leaf]:
    """Return the tensors of a nested value in a fixed order.

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
    open_up = opener(cast("type", type(value)))
    if open_up is None or len(within) == MAX_DEPTH or id(value) in within:
        return
    if not into_caches and is_cache(value):
        return
    within.append(id(value))
    for suffix, child in open_up(value):
        _collect(child, path + suffix, found, within, into_caches)
    within.pop()


def _open_registered(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    node = _registry()[type(value)]
    if node.flatten_with_keys_fn is not None:
        yield from ((str(key), child) for key, child in node.flatten_with_keys_fn(value)[0])
    else:
        yield from ((f"[{position}]", child) for position, child in enumerate(node.flatten_fn(value)[0]))


def _is_cache(kind: type) -> bool:
    return kind.__name__.endswith("Cache") and not issubclass(kind, (tuple, list, Mapping))


#: What is nested, most specific first: a predicate of its class, and how its children are reached.
_OPENERS: tuple[tuple[Callable[[type], bool], Opener], ...] = (
    (
        lambda kind: issubclass(kind, tuple) and hasattr(kind, "_fields"),
        lambda value: ((f".{name}", child) for name, child in zip(value._fields, value, strict=True)),
    ),
    (
        lambda kind: issubclass(kind, (tuple, list)),
        lambda value: ((f"[{position}]", child) for position, child in enumerate(value)),
    ),
    (  # a ModelOutput
        lambda kind: issubclass(kind, dict) and is_dataclass(kind),
        lambda value: ((f".{name}", child) for name, child in value.items()),
    ),
    (
        lambda kind: issubclass(kind, Mapping),
        lambda value: ((f"[{name!r}]", child) for name, child in value.items()),
    ),
    (
        is_dataclass,
        lambda value: ((f".{item.name}", getattr(value, item.name, None)) for item in fields(value)),
    ),
    (
        lambda kind: _is_cache(kind) or kind.__module__ == "transformers.cache_utils",
        lambda value: ((f".{name}", child) for name, child in getattr(value, "__dict__", {}).items()),
    ),
)


@lru_cache(maxsize=1024)
def _listed_opener(kind: type) -> Opener | None:
    return next((open_up for accepts, open_up in _OPENERS if accepts(kind)), None)


def opener(kind: type) -> Opener | None:
    """Return how values of a class are opened; None for values that are not looked into.

    What is not in the table is looked up in torch's registry each time: classes are registered at any time.
    """
    return _listed_opener(kind) or (_open_registered if is_registered(kind) else None)


def is_registered(kind: type) -> bool:
    """Tell whether a class is opened by what was registered with ``torch.utils._pytree``, and by nothing else."""
    return kind in _registry() and _listed_opener(kind) is None


def _registry() -> dict[type, Any]:
    from torch.utils import _pytree

    registry: dict[type, Any] = _pytree.SUPPORTED_NODES
    return registry


def replaced(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:  # noqa: ANN401
    """Return a copy of a nested value in which ``change(tensor)`` stands for each tensor.

    A module, and a value of a class that cannot be copied, is returned as it is.
    """
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (*ATOMS, torch.nn.Module)):
        return value
    memo: dict[int, Any] = {id(leaf.tensor): change(leaf.tensor) for leaf in walk(value)}
    try:
        with _DetachedCopies():
            return copy.deepcopy(value, memo)
    except Exception:  # noqa: BLE001 - classes refuse to be copied in many ways
        return value


def duplicate(value: Any) -> Any:  # noqa: ANN401 - a model or a cache, which may hold activations
    """Return a deep copy, with tensors that a forward made (a kept activation, keys and values) detached."""
    with _DetachedCopies():
        return copy.deepcopy(value)


class _DetachedCopies(TorchFunctionMode):
    """Lets ``copy.deepcopy`` copy the values of a tensor that a forward made, which torch refuses."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: tuple[type, ...],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        if func is torch.Tensor.__deepcopy__ and not args[0].is_leaf:
            return args[0].detach().clone()
        return func(*args, **(kwargs or {}))

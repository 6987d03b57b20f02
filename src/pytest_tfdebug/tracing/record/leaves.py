"""Nested values -> named tensors, and the shape of the rest as JSON.

Every part of the package that looks into a module's inputs and outputs asks this file: tensors in tuples, lists, dicts,
``ModelOutput``, dataclasses, named tuples, transformers caches and any class that is registered with
``torch.utils._pytree`` are found; each leaf has a path that says how to reach it. No other file knows torch's registry.

A skeleton keeps what transformers' debugger writes about values that are not tensors: their text, without memory
addresses and without secrets.

A cache travels by reference through every layer, and nothing that a layer returns tells what it wrote there. So the
caches that a call was given are looked at whenever one of its children begins, and when it ends: what has changed since
the last look was written by the call's own code, between the two.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple, TypeAlias, cast

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import SUPPORTED_NODES

from pytest_tfdebug.redaction import MASK, is_secret, redact
from pytest_tfdebug.tensors import Leaf, version

Opener: TypeAlias = Callable[[Any], Iterator[tuple[str, object]]]

#: Deeper nesting than this is not meant to be looked into.
MAX_DEPTH = 24
#: Classes of values that hold no tensor.
ATOMS = (type(None), bool, int, float, str, bytes, torch.dtype, torch.device, torch.Size)


def walk(value: object, *, into_caches: bool = True) -> list[Leaf]:
    """Return the tensors of a nested value in a fixed order; an array of numpy is one too.

    Examples:
        >>> [leaf.path for leaf in walk((torch.ones(1), {"k": [torch.ones(2)]}))]
        ['[0]', "[1]['k'][0]"]
    """
    found = _Walk([], [], into_caches, into_arrays=True)
    found.collect("", value)
    return found.found


def walk_inputs(args: tuple[Any, ...], kwargs: Mapping[str, Any], *, into_caches: bool = True) -> list[Leaf]:
    """Return the tensors of a call's inputs: positional ones as ``[0]``, keyword ones as ``['name']``."""
    found = _Walk([], [], into_caches, into_arrays=False)
    for key, value in (*enumerate(args), *kwargs.items()):
        found.collect(f"[{key!r}]", value)
    return found.found


def is_cache(value: object) -> bool:
    """Tell whether a value is a key-value or state cache, of transformers or written like one."""
    return _is_cache(type(value))


class _Walk(NamedTuple):
    """A walk over nested values; a function that holds itself would keep the tensors until they are collected."""

    found: list[Leaf]
    within: list[int]
    into_caches: bool
    into_arrays: bool

    def collect(self, path: str, value: object) -> None:
        if isinstance(value, torch.Tensor):
            self.found.append(Leaf(path, value))
        elif self.into_arrays and type(value).__module__ == "numpy":
            self.found.extend(Leaf(path, tensor) for tensor in _of_array(value))
        elif not isinstance(value, ATOMS) and (self.into_caches or not is_cache(value)):
            open_up = opener(cast("type", type(value)))
            if open_up is None or len(self.within) == MAX_DEPTH or id(value) in self.within:
                return
            try:
                children = list(open_up(value))
            except Exception:  # noqa: BLE001 - a user's class may raise anything, and must not end the forward
                return
            self.within.append(id(value))
            for suffix, child in children:
                self.collect(path + suffix, child)
            self.within.pop()


def _of_array(value: object) -> Iterator[torch.Tensor]:
    """Yield the tensor that an array or a number of numpy is; nothing for those of objects or texts."""
    import numpy as np

    with suppress(TypeError, ValueError):
        yield torch.from_numpy(np.array(value))


def _open_registered(value: Any) -> Iterator[tuple[str, object]]:  # noqa: ANN401
    node = SUPPORTED_NODES[type(value)]
    if node.flatten_with_keys_fn is not None:
        return ((str(key), child) for key, child in node.flatten_with_keys_fn(value)[0])
    return ((f"[{position}]", child) for position, child in enumerate(node.flatten_fn(value)[0]))


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
    return _listed_opener(kind) is None and kind in SUPPORTED_NODES


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

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if func is torch.Tensor.__deepcopy__ and not args[0].is_leaf:
            return args[0].detach().clone()
        return func(*args, **(kwargs or {}))


_NUMBERS = (bool, int, float)
_ADDRESS = re.compile(r"\bat 0x[0-9A-Fa-f]+")


def skeleton(value: object, leaves: list[Leaf]) -> Any:  # noqa: ANN401
    """Return a nested value with each tensor as ``{"leaf": position in leaves}`` and the rest as text."""
    return _bare(value, {id(leaf.tensor): position for position, leaf in reversed([*enumerate(leaves)])})


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
    try:
        items = _parts(value)
    except Exception:  # noqa: BLE001 - as in a walk
        items = None
    if items is not None:
        shown = {
            name: repr(MASK) if isinstance(child, str) and is_secret(name, child) else _bare(child, positions, within)
            for name, child in items.items()
        }
        return {"items": shown}
    return _ADDRESS.sub("at 0xXXXXXXXX", safe(_text(value)))


#: Returns a text of a forward without secrets; the same few are handed from layer to layer.
safe = lru_cache(maxsize=4096)(redact)


def _parts(value: object) -> dict[str, object] | None:
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


class _Look(NamedTuple):
    """What a cache was when it was last looked at; it and what it held are kept, so that their ids stay their own."""

    cache: object
    views: list[Iterable[object]]  # which show what is in it now
    held: list[object]
    ids: list[int]
    tensors: dict[str, torch.Tensor]
    counts: list[int]
    is_seen: bool  # whether the views show all of it: there is none of an object without a ``__dict__``

    def is_past(self) -> bool:
        """Tell whether something was replaced or written to since: in microseconds, for it is asked at every call."""
        is_same = self.is_seen and list(map(id, chain.from_iterable(self.views))) == self.ids
        return not is_same or _counts(self.tensors) != self.counts


class CacheWatch:
    """Tells what has been written to caches since they were last looked at."""

    def __init__(self) -> None:
        self._looks: dict[int, _Look] = {}

    def written(self, caches: Iterable[object]) -> list[Leaf]:
        """Return the tensors of caches that are new or changed; none at the first look at a cache.

        The leaf paths begin with the cache's class: ``DynamicCache.layers[0].keys``.
        """
        found: list[Leaf] = []
        for key, cache in {id(cache): cache for cache in caches}.items():  # each once: a caller hands on its own
            last = self._looks.get(key)
            if last is not None and not last.is_past():
                continue
            self._looks[key] = look = _look(cache)
            if last is not None:
                known = dict(zip(last.tensors, last.counts, strict=True))
                found += [
                    Leaf(f"{type(cache).__name__}{path}", tensor)
                    for (path, tensor), count in zip(look.tensors.items(), look.counts, strict=True)
                    if last.tensors.get(path) is not tensor or known[path] != count
                ]
        return found


def caches_among(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[object, ...]:
    """Return the caches among the arguments of a call."""
    return tuple([value for value in (*args, *kwargs.values()) if is_cache(value)])


def _look(cache: object) -> _Look:
    views: list[Iterable[object]] = []
    tensors: dict[str, torch.Tensor] = {}
    seen, is_seen = set[int](), True
    todo: list[tuple[str, Any]] = [("", cache)]
    while todo:
        path, value = todo.pop()
        if isinstance(value, torch.Tensor):
            tensors[path] = value
        elif id(value) not in seen and (open_up := opener(cast("type", type(value)))) is not None:
            seen.add(id(value))
            is_seen = is_seen and (isinstance(value, (list, tuple, Mapping)) or hasattr(value, "__dict__"))
            view = value if isinstance(value, (list, tuple, Mapping)) else getattr(value, "__dict__", ())
            views.append(view.values() if isinstance(view, Mapping) else view)
            todo += [(path + suffix, child) for suffix, child in open_up(value) if type(child) not in ATOMS][::-1]
    held = list(chain.from_iterable(views))
    return _Look(cache, views, held, list(map(id, held)), tensors, _counts(tensors), is_seen)


def _counts(tensors: dict[str, torch.Tensor]) -> list[int]:
    try:
        return [tensor._version for tensor in tensors.values()]  # noqa: SLF001 - as in ``version``, in a tenth of the time
    except RuntimeError:  # some keep no count
        return [version(tensor) for tensor in tensors.values()]

"""What modules write into the key-value and state caches that they are given.

A cache travels by reference through every layer, and nothing that a layer returns tells what it wrote there. So the
caches that a call was given are looked at whenever one of its children begins, and when it ends: what has changed since
the last look was written by the call's own code, between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple, cast

import torch

from pytest_tfdebug.tensors import version
from pytest_tfdebug.tracing.record.leaves import ATOMS, Leaf, is_cache, opener


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

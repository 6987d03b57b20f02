"""What a forward takes, by its signature."""

from __future__ import annotations

import inspect
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@lru_cache(maxsize=4096)
def forward_parameters(module_class: type) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class's forward by name, ``self`` left out; none where they cannot be known."""
    try:
        signature = inspect.signature(module_class.forward)  # type: ignore[attr-defined] # a class of modules
    except (AttributeError, TypeError, ValueError):
        return MappingProxyType({})
    return MappingProxyType(dict(list(signature.parameters.items())[1:]))


@lru_cache(maxsize=4096)
def positional_parameters(module_class: type) -> tuple[str, ...]:
    """Return the names of the parameters that a class's forward takes by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return tuple(name for name, parameter in forward_parameters(module_class).items() if parameter.kind in kinds)


@lru_cache(maxsize=4096)
def named_parameters(module_class: type) -> tuple[str, ...]:
    """Return the names of all parameters of a class's forward, but for the collecting ``*args`` and ``**kwargs``."""
    return tuple(
        name
        for name, parameter in forward_parameters(module_class).items()
        if parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    )


def collects_keywords(module_class: type) -> bool:
    """Tell whether a forward takes any keyword (``**kwargs``)."""
    return any(item.kind is inspect.Parameter.VAR_KEYWORD for item in forward_parameters(module_class).values())

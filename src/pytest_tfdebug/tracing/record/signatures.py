"""What a forward takes, by its signature."""

from __future__ import annotations

import difflib
import inspect
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.tracing.record.wrappers import bare

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Kinds of parameters that are given by their place, and those that collect what has none of its own.
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_OF_TORCH = frozenset(dir(torch.nn.Module))


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
    return tuple(name for name, parameter in forward_parameters(module_class).items() if parameter.kind in _BY_POSITION)


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters that a bound method takes by position; none where they cannot be known."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ()
    return tuple(parameter.name for parameter in found if parameter.kind in _BY_POSITION)


def method_of(model: torch.nn.Module, method: str) -> Callable[..., Any]:
    """Return a method of a model, or of the bare model in its wrappers."""
    for owner in (model, bare(model)):
        found = getattr(owner, method, None)
        if callable(found) and not isinstance(found, type):
            return cast("Callable[..., Any]", found)
    own = type(bare(model))
    names = [name for name in dir(own) if not name.startswith("_") and name not in _OF_TORCH]
    near = difflib.get_close_matches(method, names, 1)
    hint = f" Did you mean method={near[0]!r}?" if near else ""
    raise TFDebugError(f"method={method!r}: {own.__name__} has no method of that name.{hint}")


def bound(model: Any) -> tuple[Any, str]:  # noqa: ANN401 - whatever a user gives as a model
    """Return the model of a bound method and the method's name; of a model itself, its forward."""
    owner = getattr(model, "__self__", None)
    return (owner, model.__name__) if isinstance(owner, torch.nn.Module) else (model, "forward")


@lru_cache(maxsize=4096)
def named_parameters(module_class: type) -> tuple[str, ...]:
    """Return the names of all parameters of a class's forward, but for the collecting ``*args`` and ``**kwargs``."""
    return tuple(name for name, parameter in forward_parameters(module_class).items() if parameter.kind not in VARIADIC)


def collects_keywords(module_class: type) -> bool:
    """Tell whether a forward takes any keyword (``**kwargs``)."""
    return any(item.kind is inspect.Parameter.VAR_KEYWORD for item in forward_parameters(module_class).values())

"""Inputs that a user typed: a keyword that nothing takes, and a list or array where a tensor belongs, are refused."""

from __future__ import annotations

import inspect
import sys
from difflib import get_close_matches
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from pytest_tfdebug.errors import TFDebugError, listed
from pytest_tfdebug.tracing.record.signatures import collects_keywords, forward_parameters, method_of, named_parameters
from pytest_tfdebug.tracing.record.wrappers import bare

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    import torch

#: How alike a keyword is to an option that was meant, of 1.
_NEAR = 0.75
#: Names of a forward's parameters that an error lists.
_MOST = 8


def refuse_unknown_inputs(
    model: torch.nn.Module, names: Iterable[str], options: Collection[str], *, others_may: bool = False
) -> None:
    """Refuse keywords that no forward of a model takes by name: ``**kwargs`` would swallow a misspelt one.

    Where others may take them (a reference that is not built yet), only what is nearly one of the options is refused.
    """
    taken = frozenset().union(*(_taken(cast("type", type(module))) for module in model.modules()))
    own = named_parameters(cast("type", type(bare(model))))
    for name in names:
        if name in taken:
            continue
        option = get_close_matches(name, options, 1, _NEAR)
        if others_may and not option:
            continue
        near = option or get_close_matches(name, (*own, *taken), 1)
        hint = f" Did you mean {near[0]}=?" if near else ""
        raise TFDebugError(
            f"{name}= is no option, and no forward of {type(model).__name__} takes it by name.{hint}\n"
            f"  It takes: {listed([*own], _MOST) or 'nothing'}"
        )


@lru_cache(maxsize=4096)
def _taken(kind: type) -> frozenset[str]:
    """Return the keywords that a class's forward takes.

    These are its parameters, what it looks for in its ``**kwargs``, and the parameters of its other methods that it
    calls, which may be handed these.
    """
    names = set(named_parameters(kind))
    if collects_keywords(kind):
        for function in _unwrapped(kind.forward):  # type: ignore[attr-defined] # a class of modules
            names.update(text for text in function.__code__.co_consts if type(text) is str)
            called = (getattr(kind, name, None) for name in function.__code__.co_names)
            names.update(
                name for method in filter(inspect.isfunction, called) for name in inspect.signature(method).parameters
            )
        for parameter in forward_parameters(kind).values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                names.update(_typed(parameter.annotation, kind))
    return frozenset(names)


def _unwrapped(forward: Any) -> Iterator[Any]:  # noqa: ANN401 - a function, in its decorators
    """Yield the functions of a forward: its decorators, and itself."""
    while forward is not None:
        if hasattr(forward, "__code__"):
            yield forward
        forward = getattr(forward, "__wrapped__", None)


def _typed(annotation: Any, kind: type) -> Iterator[str]:  # noqa: ANN401 - whatever stands there
    """Yield the keys of the ``TypedDict`` in ``**kwargs: Unpack[...]``."""
    named = annotation.partition("[")[2].rstrip("]") if isinstance(annotation, str) else ""
    held = (getattr(sys.modules.get(kind.__module__), named, None),) if named else getattr(annotation, "__args__", ())
    for typed in held:
        yield from getattr(typed, "__annotations__", ())


def refuse_no_tensors(model: torch.nn.Module, method: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse a NumPy array, or a list of numbers where a forward says that it takes a tensor."""
    try:
        parameters = dict(inspect.signature(method_of(bare(model), method)).parameters)
    except (TypeError, ValueError):
        parameters = {}
    for name, value in [*zip([*parameters, *("" for _ in args)], args, strict=False), *kwargs.items()]:
        kind = type(value)
        is_array = kind.__module__ == "numpy" and kind.__name__ == "ndarray"
        if is_array or (_is_of_numbers(value) and _takes_tensor(parameters.get(name), value)):
            told, made = ("a NumPy array", "from_numpy") if is_array else ("a list of numbers", "tensor")
            raise TFDebugError(
                f"{name or 'An input'} is {told}, and a model takes tensors: give torch.{made}({name or '...'})."
            )


def _takes_tensor(parameter: inspect.Parameter | None, value: object) -> bool:
    """Tell whether a forward takes a tensor: by its annotation; without one what is nested is meant as a tensor."""
    if parameter is None or parameter.annotation is inspect.Parameter.empty:
        return isinstance(value, list) and bool(value) and isinstance(value[0], list)
    told = str(parameter.annotation)
    return "Tensor" in told and not any(word in told.lower() for word in ("list", "tuple", "sequence"))


def _is_of_numbers(value: object) -> bool:
    """Tell whether a value is a list of numbers, however nested."""
    if not isinstance(value, list):
        return False
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, (int, float)) and not isinstance(value, bool)

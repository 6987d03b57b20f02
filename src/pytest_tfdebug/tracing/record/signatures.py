"""What a forward takes, by its signature; what it does not take is refused."""

from __future__ import annotations

import inspect
import re
import sys
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import torch

from pytest_tfdebug.errors import TFDebugError, listed
from pytest_tfdebug.tracing.record.modules import bare

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_tfdebug.records import Call, TensorRecord

#: Kinds of parameters that are given by their place, and those that collect what has none of its own.
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_OF_TORCH = frozenset(dir(torch.nn.Module))


@lru_cache(maxsize=4096)
def forward_parameters(module_class: type) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a class's forward by name, ``self`` left out; none where they cannot be known."""
    found = _parameters(getattr(module_class, "forward", None))  # type: ignore[arg-type] # which has none
    return MappingProxyType(dict(list(found.items())[1:]))


@lru_cache(maxsize=4096)
def positional_parameters(module_class: type) -> tuple[str, ...]:
    """Return the names of the parameters that a class's forward takes by position."""
    return tuple(name for name, parameter in forward_parameters(module_class).items() if parameter.kind in BY_POSITION)


def parameters_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters that a bound method takes by position; none where they cannot be known."""
    return tuple(name for name, parameter in _parameters(function).items() if parameter.kind in BY_POSITION)


def parameters_by_path(modules: Mapping[str, torch.nn.Module]) -> dict[str, tuple[str, ...]]:
    """Return the names of the parameters that the forward of each module takes by position."""
    return {path: parameters_of(module.forward) for path, module in modules.items()}


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of a function by name; none where they cannot be known."""
    try:
        return inspect.signature(function).parameters
    except (TypeError, ValueError):
        return {}


def method_of(model: torch.nn.Module, method: str) -> Callable[..., Any]:
    """Return a method of a model, or of the bare model in its wrappers."""
    for owner in (model, bare(model)):
        found = getattr(owner, method, None)
        if callable(found) and not isinstance(found, type):
            return cast("Callable[..., Any]", found)
    own = type(bare(model))
    names = [name for name in dir(own) if not name.startswith("_") and name not in _OF_TORCH]
    near = get_close_matches(method, names, 1)
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


#: How alike a keyword is to an option that was meant, of 1.
_NEAR = 0.75
#: Names of a forward's parameters that an error lists.
_MOST = 8


def refuse_unknown_inputs(
    model: torch.nn.Module,
    names: Iterable[str],
    options: Collection[str],
    *,
    port: torch.nn.Module | None = None,
    others_may: bool = False,
    hint: str = "",
) -> None:
    """Refuse keywords that no forward of a model takes by name: ``**kwargs`` would swallow a misspelt one.

    Where others may take them (a reference that is not built yet), only what is nearly one of the options is refused;
    and so is what is nearly a known name where a forward takes ``**kwargs`` alone, whatever becomes of them.
    The names may be those of a port, given by mistake; ``hint`` asks what may have been meant where no name is near.
    """
    kinds = dict.fromkeys(cast("type", type(module)) for module in model.modules())
    kind = cast("type", type(bare(model)))
    own, taken = named_parameters(kind), frozenset().union(*map(_taken, kinds))
    handed = [_taken(each) for each in kinds if not each.__module__.startswith("torch.")]
    known = (*own, *frozenset().union(*handed))
    if own and not collects_keywords(kind):  # what its modules take does not reach them
        known, taken = own, frozenset(own)
    ports = () if port is None else named_parameters(cast("type", type(bare(port))))
    takes_any = not own and collects_keywords(kind)
    for name in names:
        if name in taken:
            continue
        option = get_close_matches(name, options, 1, _NEAR)
        if not option and (others_may or (takes_any and not get_close_matches(name, known, 1, _NEAR))):
            continue
        near = option or get_close_matches(name, known, 1)
        told = f"Did you mean {near[0]}=?" if near else hint
        if name in ports and not option:
            meant = paired(ports, own, ports).get(name)
            told = f"That is the port's name{f'; give {meant}=' if meant else ''}, or exchange the port and reference=."
        raise TFDebugError(
            f"{name}= is no option, and no forward of {type(model).__name__} takes it by name.{told and f' {told}'}\n"
            f"  It takes: {listed([*own], _MOST) or 'nothing'}"
        )


def paired(parameters: Sequence[str], inputs: Sequence[str], required: Sequence[str] = ()) -> dict[str, str]:
    """Return which input each parameter seems to be for: by common words, then the required ones in order."""
    alike = ((len(_words(own) & _words(theirs)), own, theirs) for own in parameters for theirs in inputs)
    found: dict[str, str] = {}
    for shared, own, theirs in sorted(alike, key=lambda each: -each[0]):
        if shared and own not in found and theirs not in found.values():
            found[own] = theirs
    left = [theirs for theirs in inputs if theirs not in found.values()]
    found |= dict(zip([own for own in required if own not in found], left, strict=False))
    return {own: found[own] for own in parameters if own in found}


def _words(name: str) -> set[str]:
    return {word.removesuffix("s") for word in name.lower().split("_")}


@lru_cache(maxsize=4096)
def _taken(kind: type) -> frozenset[str]:
    """Return the keywords that a class's forward takes.

    These are its parameters, what it looks for in its ``**kwargs``, and the same of the other methods that it calls,
    which may be handed these.
    """
    names = set(named_parameters(kind))
    todo = [*_unwrapped(kind.forward)] if collects_keywords(kind) else []  # type: ignore[attr-defined] # a class of modules
    seen = set()
    while todo:
        function = todo.pop()
        if function.__code__ in seen:
            continue
        seen.add(function.__code__)
        names.update(text for text in function.__code__.co_consts if type(text) is str)
        for method in filter(inspect.isfunction, (getattr(kind, name, None) for name in function.__code__.co_names)):
            parameters = inspect.signature(method).parameters.values()
            names.update(parameter.name for parameter in parameters)
            if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters):
                todo += _unwrapped(method)
    if seen:
        for parameter in forward_parameters(kind).values():
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                names.update(_typed(parameter.annotation, kind))
    return frozenset(names)


def _unwrapped(forward: Any) -> Iterator[Any]:  # noqa: ANN401 - a function, in its decorators
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
    parameters = _parameters(method_of(bare(model), method))
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
    if not isinstance(value, list):
        return False
    while isinstance(value, list) and value:
        value = value[0]
    return isinstance(value, (int, float)) and not isinstance(value, bool)


_POSITION = re.compile(r"\[(\d+)\]")


def input_name(leaf: str, parameters: tuple[str, ...]) -> str:
    """Return an input's leaf path with the parameter's name in place of its number."""
    positional = _POSITION.match(leaf)
    if positional and int(positional[1]) < len(parameters):
        return parameters[int(positional[1])] + leaf[positional.end() :]
    return leaf


def keyword_leaf(leaf: str, parameters: tuple[str, ...]) -> str:
    """Return an input's leaf path as if it had been given by name."""
    positional = _POSITION.match(leaf)
    if positional and int(positional[1]) < len(parameters):
        return f"[{parameters[int(positional[1])]!r}]{leaf[positional.end() :]}"
    return leaf


def named_inputs(call: Call) -> dict[str, TensorRecord]:
    """Return the tensors that a call was given, by the names of its parameters."""
    return {_bare_name(record.leaf, call.parameters): record for record in call.inputs}


def _bare_name(leaf: str, parameters: tuple[str, ...]) -> str:
    return input_name(leaf, parameters).strip("[]'")


def inputs_by_name(calls: Iterable[Call]) -> dict[int, dict[str, TensorRecord]]:
    """Return the tensors that each of some calls was given, by its ``index`` and the names of its parameters."""
    return {call.index: named_inputs(call) for call in calls}


def named_leaves(leaves: Mapping[int, Iterable[str]], parameters: Mapping[int, tuple[str, ...]]) -> dict[int, set[str]]:
    """Return the names of the parameters that leaf paths of inputs belong to, by a call's ``index``."""
    return {at: {_bare_name(leaf, parameters[at]) for leaf in some} for at, some in leaves.items()}

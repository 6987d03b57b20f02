"""How a port is called where its forward does not take its reference's inputs under their names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import Parameter, Signature
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TypeAlias

import torch

from pytest_tfdebug.errors import TFDebugError, a_or_an
from pytest_tfdebug.tracing.record.masks import is_mask
from pytest_tfdebug.tracing.record.modules import bare
from pytest_tfdebug.tracing.record.signatures import (
    BY_POSITION,
    VARIADIC,
    method_of,
    paired,
    refuse_no_tensors,
)

if TYPE_CHECKING:
    from pytest_tfdebug.tracing.values.rerun import Rerun

_Inputs: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"
#: Columns of a signature in an error.
_WIDTH = 160


@dataclass(frozen=True)
class PortCall:
    """The inputs with which a port is called."""

    args: tuple[Any, ...]  # its positional inputs
    kwargs: dict[str, Any]  # its keyword inputs
    # name of an input of the port -> leaf path of the reference's input with the same values (``['input_ids']``, or
    # ``[0]`` for a positional one), where the names differ
    names: dict[str, str] = field(default_factory=dict)
    note: str = ""  # what was renamed or left out, in a sentence; empty where the port is called like its reference
    # names of the port's ids and of the reference's, where each has one tensor of ids and these differ
    other: tuple[str, str] | None = None
    # names of a parameter that the port was not given, and of the input of the reference that it seems to be for
    lacking: tuple[str, str] | None = None
    method: str = "forward"  # what is called
    # the forward of another model that the golden is of: it is made once more where the check fails
    reference: Callable[[], Rerun] | None = None
    is_part: bool = False  # whether these are some rows of a test's inputs


def port_call(
    port: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    port_inputs: Mapping[str, Any] | Sequence[Any] | None = None,
    method: str = "forward",
    *,
    names: Sequence[str] = (),
) -> PortCall:
    """Decide how to call a port; ``names`` are those of the reference's parameters.

    Without ``port_inputs`` the port takes what its reference takes. Inputs that its forward has no parameter for are
    given to the required parameters that nothing fills, where there are as many of these: by a common word of their
    names, then in order; flags and None are left out.
    """
    signature = _signature(port, method)
    if port_inputs is None:
        return replace(_like_reference(port, signature, args, kwargs), method=method)
    if not isinstance(port_inputs, (Mapping, tuple, list)):
        raise TFDebugError(
            "port_inputs= is a dict of the port's keyword inputs, or a tuple or list of its positional ones; "
            f"it is {a_or_an(type(port_inputs).__name__)}."
        )
    own = ((), dict(port_inputs)) if isinstance(port_inputs, Mapping) else (tuple(port_inputs), {})
    refuse_no_tensors(port, method, *own)
    if signature is None:
        return PortCall(*own, method=method)
    try:
        bound = signature.bind(*own[0], **own[1]).arguments
    except TypeError as error:
        raise _refusal(port, signature, f"port_inputs: {error}", own, kwargs) from error
    theirs = {f"[{place}]": value for place, value in enumerate(args)}
    theirs |= {f"[{name!r}]": value for name, value in kwargs.items()}
    is_named = {name for name in bound if f"[{name!r}]" in theirs}
    alike = {name: [path for path, other in theirs.items() if _is_same(value, other)] for name, value in bound.items()}
    same = {name: paths[0] for name, paths in alike.items() if paths and name not in is_named}
    other = None if same or is_named else _other_ids(bound, theirs)
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    return PortCall(*own, same, other=other, lacking=_lacking(signature, bound, given), method=method)


def _like_reference(
    port: torch.nn.Module, signature: Signature | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> PortCall:
    if signature is None:
        return PortCall(args, kwargs)
    cause = _misfit(signature, args, kwargs)
    if cause is None:
        return PortCall(args, kwargs)
    parameters = [one for one in signature.parameters.values() if one.kind not in VARIADIC]
    filled = {one.name for one in [one for one in parameters if one.kind in BY_POSITION][: len(args)]}
    by_name = {one.name for one in parameters if one.kind is not Parameter.POSITIONAL_ONLY} - filled
    given = {name: value for name, value in kwargs.items() if name in by_name}
    rest = {name: value for name, value in kwargs.items() if name not in given}
    inputs = [name for name, value in rest.items() if not _is_flag(value)]
    open_ones = [one for one in parameters if one.default is Parameter.empty and one.name not in {*filled, *given}]
    if len(inputs) == len(open_ones):
        names = paired([one.name for one in open_ones], inputs, [one.name for one in open_ones])
        left_out = {name: value for name, value in rest.items() if name not in inputs}
        if any(one.kind is Parameter.VAR_KEYWORD for one in signature.parameters.values()):
            given, left_out = given | left_out, {}
        first = tuple(kwargs[names[one.name]] for one in open_ones if one.kind is Parameter.POSITIONAL_ONLY)
        given |= {one.name: kwargs[names[one.name]] for one in open_ones if one.kind is not Parameter.POSITIONAL_ONLY}
        cause = _misfit(signature, (*args, *first), given)
        if cause is None:
            paths = {own: f"[{name!r}]" for own, name in names.items()}
            return PortCall((*args, *first), given, paths, _note(names, left_out))
    raise _refusal(port, signature, f"the reference's inputs: {cause}", (args, kwargs), kwargs) from cause


def _misfit(signature: Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> TypeError | None:
    """Return why a forward cannot be called with some inputs; None where it can."""
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        return error
    return None


def _lacking(signature: Signature, given: Mapping[str, Any], theirs: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return a parameter that was left out although the reference was given an input for it, and that input's name.

    A mask that hides nothing says nothing.
    """
    parameters = [name for name, one in signature.parameters.items() if one.kind not in VARIADIC]
    values = [value for value in given.values() if isinstance(value, torch.Tensor)]
    inputs = [
        name
        for name, value in theirs.items()
        if isinstance(value, torch.Tensor)
        and not (is_mask(name) and bool(value.all()))
        and not any(_is_same(value, own) for own in values)
    ]
    pairs = paired([*given, *(name for name in parameters if name not in given)], inputs)
    return next(((own, name) for own, name in pairs.items() if own not in given), None)


def _signature(port: torch.nn.Module, method: str) -> Signature | None:
    try:
        return inspect.signature(method_of(bare(port), method))
    except (TypeError, ValueError):
        return None  # a forward written in C, which takes what it takes


def _other_ids(*sides: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the names of each side's only tensor of ids, where shape and dtype agree and so the values differ."""
    tensors = ([(name, each) for name, each in side.items() if isinstance(each, torch.Tensor)] for side in sides)
    mine, others = (
        [(name, it) for name, it in side if not (it.is_floating_point() or it.is_complex())] for side in tensors
    )
    if len(mine) != 1 or len(others) != 1:
        return None
    (name, one), (path, other) = mine[0], others[0]
    is_alike = (one.shape, one.dtype) == (other.shape, other.dtype)
    return (name, path.removeprefix("['").removesuffix("']")) if is_alike else None


def _is_same(value: object, other: object) -> bool:
    if not (isinstance(value, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    is_alike = (value.shape, value.dtype) == (other.shape, other.dtype)
    return value is other or (is_alike and torch.equal(value, other.to(value.device)))


def _note(names: Mapping[str, str], left_out: Mapping[str, Any]) -> str:
    told = []
    if names:
        told.append("as " + ", ".join(f"{own}={name}" for own, name in names.items()))
    if left_out:
        told.append("without " + ", ".join(f"{name}={value}" for name, value in left_out.items()))
    return f"The port was called {', '.join(told)}."


def _refusal(
    port: torch.nn.Module, signature: Signature, why: str, given: _Inputs, theirs: Mapping[str, Any]
) -> TFDebugError:
    args, kwargs = given
    plain = [one.replace(annotation=Parameter.empty) for one in signature.parameters.values()]
    shown = str(Signature(plain))
    taken = [one for one in plain if one.kind not in VARIADIC]
    names, required = [one.name for one in taken], [one.name for one in taken if one.default is Parameter.empty]
    by_place = [one.name for one in taken if one.kind in BY_POSITION][: len(args)]
    rest = [name for name, value in theirs.items() if name not in names and not _is_flag(value)]
    known = {*by_place, *required, *kwargs}
    known |= paired([name for name in names if name not in {*by_place, *kwargs}], rest, required).keys()
    asked = [name for name in names if name in known] or names[:1]
    told = [*map(_told, args), *(f"{name}={_told(value)}" for name, value in kwargs.items())]
    example = ", ".join(f'"{name}": ...' for name in asked)
    return TFDebugError(
        f"{type(port).__name__} cannot be called with {why}.\n"
        f"  It takes: forward{shorten(shown, _WIDTH)}\n"
        f"  Given: {', '.join(told) or 'nothing'}\n"
        f"Name the port's own inputs: port_inputs={{{example}}}"
    )


def _is_flag(value: object) -> bool:
    return value is None or isinstance(value, bool)


def _told(value: object) -> str:
    if isinstance(value, torch.Tensor):
        return f"tensor {tuple(value.shape)}"
    return shorten(repr(value), 40)

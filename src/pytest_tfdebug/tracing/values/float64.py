"""A forward in float64, whatever dtypes its code asks for: what the recorded dtype would give without its rounding.

A copy of the model is cast, and every operator computes in float64: where a forward casts to float32 (norms, rotary
angles, routers) the cast is to float64, and a tensor of lower precision that it finds is widened before it is used.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from pytest_tfdebug.tracing.record.leaves import duplicate, replaced
from pytest_tfdebug.tracing.record.state import preserved
from pytest_tfdebug.tracing.record.wrappers import uncompiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    Inputs = tuple[tuple[Any, ...], dict[str, Any]]

_WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}
#: Products of the rows of each expert with its weights; torch has no float64 for it.
_GROUPED = getattr(torch.ops.aten, "_grouped_mm", None) and torch.ops.aten._grouped_mm.default  # noqa: SLF001


@contextmanager
def in_float64(model: torch.nn.Module, inputs: Inputs) -> Iterator[tuple[torch.nn.Module, Inputs]]:
    """Yield a copy of a model and of its inputs, inside of a block in which everything is computed in float64."""
    copied = duplicate(model).double()
    with preserved(copied), torch.no_grad(), uncompiled(copied), all_in_float64():
        yield copied, replaced(inputs, _widened)


@contextmanager
def all_in_float64() -> Iterator[None]:
    """Run a block in which every operator computes in float64, whatever dtype it is given or asked for."""
    default = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # what whole numbers become where they are divided
    try:
        with _Float64():  # type: ignore[no-untyped-call] # of torch
            yield
    finally:
        torch.set_default_dtype(default)


class _Float64(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch
    """Gives every operator float64 in place of the lower precision that it is given or asked for."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        free = _read_only(func)
        args = [tree_map(_widened, arg) if place in free else arg for place, arg in enumerate(args)]
        named = {name: tree_map(_widened, value) if name in free else value for name, value in (kwargs or {}).items()}
        if named.get("dtype") in _WIDE:
            named["dtype"] = _WIDE[named["dtype"]]
        return (_grouped_mm if func is _GROUPED else func)(*args, **named)


def _grouped_mm(rows: torch.Tensor, weights: torch.Tensor, ends: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:  # noqa: ANN401
    """As ``torch._grouped_mm`` of rows in groups, each with a matrix of its own."""
    out = rows.new_zeros(len(rows), weights.shape[-1])
    begin = 0
    for weight, end in zip(weights, ends.tolist(), strict=True):
        out[begin:end] = rows[begin:end] @ weight
        begin = end
    return out


@lru_cache(maxsize=4096)
def _read_only(func: Any) -> frozenset[int | str]:  # noqa: ANN401 - an operator
    """Return places and names of the arguments that an operator reads, and neither writes to nor returns a view of."""
    arguments = [(place, each) for place, each in enumerate(func._schema.arguments) if each.alias_info is None]  # noqa: SLF001
    return frozenset(place for place, _ in arguments) | frozenset(each.name for _, each in arguments)


def _widened(value: Any) -> Any:  # noqa: ANN401 - an argument of an operator
    return value.to(_WIDE[value.dtype]) if isinstance(value, torch.Tensor) and value.dtype in _WIDE else value

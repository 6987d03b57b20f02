"""Tables of a model that ``.to()`` has rounded: no checkpoint has them, and the code that makes them is at hand.

``model.to(torch.bfloat16)`` rounds the frequencies of a rotary embedding, say, which the same model keeps in float32 if
it is built or loaded with ``dtype=``. A port that makes its own in float32 is right then, and every value differs.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.constructed import arguments_of
from pytest_tfdebug.module_path import under
from pytest_tfdebug.tracing.record.state import random_state_kept
from pytest_tfdebug.tracing.values.widening import HALF

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Parameters of a module that is not made once more: drawing them takes as long as a forward.
_LARGE = 1 << 22


def rounded_tables(model: torch.nn.Module) -> dict[str, tuple[torch.nn.Module, str]]:
    """Return module and name of each unsaved buffer in half precision, by its path."""
    return {
        under(path, name): (module, name)
        for path, module in model.named_modules()
        for name in sorted(module._non_persistent_buffers_set)  # noqa: SLF001 - there is no public name
        if (held := getattr(module, name, None)) is not None and held.dtype in HALF
    }


@contextmanager
def as_made(model: torch.nn.Module) -> Iterator[dict[str, torch.Tensor]]:
    """Hold rounded tables as their modules make them in a block, and yield these by path.

    A module is made once more with what it was made with, or else the model is.
    What it makes counts if rounding that gives the table, bit for bit.
    """
    made: dict[str, torch.Tensor] = {}
    with ExitStack() as stack:
        whole: dict[str, torch.Tensor] | None = None
        for path, (module, name) in rounded_tables(model).items():
            held = getattr(module, name)
            table = _unrounded(getattr(_made_in_float32(module), name, None), held)
            if table is None:
                if whole is None:
                    anew = _made_in_float32(model)
                    whole = {} if anew is None else dict(anew.named_buffers())
                table = _unrounded(whole.get(path), held)
            if table is not None:
                made[path] = module._buffers[name] = table  # noqa: SLF001 - as nn.Module itself holds it
                stack.callback(module._buffers.__setitem__, name, held)  # noqa: SLF001
        yield made


def _unrounded(other: object, held: torch.Tensor) -> torch.Tensor | None:
    """Return a table of which rounding gives another one, bit for bit; None for anything else."""
    if not isinstance(other, torch.Tensor) or other.shape != held.shape or other.dtype in HALF:
        return None
    table = other.to(held.device)
    return table if torch.equal(table.to(held.dtype), held) else None


def _made_in_float32(module: torch.nn.Module) -> torch.nn.Module | None:
    default = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float32)
        with torch.device("cpu"):
            return made_anew(module, _LARGE)
    finally:
        torch.set_default_dtype(default)


def made_anew(module: torch.nn.Module, largest: int) -> torch.nn.Module | None:
    """Make a module once more; None where it is not known with what it was made, or has more parameters than that.

    A constructor that cannot run twice costs nothing, and none draws the random numbers of others.
    """
    given = arguments_of(module)
    if given is None or sum(each.numel() for each in module.parameters()) > largest:
        return None
    return _made(type(module), *given)


def made_with(module: torch.nn.Module, like: torch.nn.Module, largest: int) -> torch.nn.Module:
    """Make a module as another one of its class was made, with its own weights, which both then share.

    Raises:
        LookupError: Such a module cannot be made, has a weight that the former has not, or more parameters than that.
    """
    given, held = arguments_of(like), module.state_dict()
    is_small = sum(each.numel() for each in like.parameters()) <= largest
    made = _made(type(module), *given) if given is not None and is_small else None
    if made is None or not held.keys() >= made.state_dict().keys():
        msg = f"{type(module).__name__} cannot be made so"
        raise LookupError(msg)
    first = next(module.parameters(), None)
    made = made if first is None else made.to(first.device)
    made.load_state_dict({name: held[name] for name in made.state_dict()}, assign=True)
    return made.train(module.training)


def _made(kind: type[torch.nn.Module], args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.nn.Module | None:
    try:
        with random_state_kept():
            return kind(*args, **kwargs)
    except Exception:  # noqa: BLE001 - whatever a constructor minds
        return None

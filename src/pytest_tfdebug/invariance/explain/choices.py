"""The choices that a forward makes: an index of the greatest, an order, a whole number.

No gradient passes them. Where two candidates are close, rounding decides, and all that follows differs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from pytest_tfdebug.tracing.record.leaves import walk

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPERATORS = frozenset(
    f"aten::{name}"
    for name in (
        *("argmax", "argmin", "max", "min", "topk", "sort", "argsort", "nonzero", "multinomial"),
        *("bucketize", "searchsorted", "round", "floor", "ceil", "eq", "gt", "ge", "lt", "le"),
    )
)


class Choice(NamedTuple):
    """One choice.

    Args:
        given: The tensor that it was made from.
        chosen: Indices, truth values or whole numbers.
    """

    given: torch.Tensor
    chosen: torch.Tensor


class Choices(TorchDispatchMode):  # type: ignore[no-untyped-call] # of torch
    """Collects the choices that are made of floating-point numbers inside it, in order."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # of torch
        self.made: list[Choice] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        """Run an operator and keep what it chose."""
        result = func(*args, **(kwargs or {}))
        if func._schema.name in _OPERATORS and args[0].is_floating_point():  # noqa: SLF001 - torch's only name for it
            chosen = [leaf.tensor for leaf in walk(result)][-1]  # topk and max give values, and then indices
            if func._schema.name != "aten::max" or not chosen.is_floating_point():  # noqa: SLF001
                self.made.append(Choice(args[0].detach().clone(), chosen.detach().clone()))
        return result


def first_other(expected: Sequence[Choice], actual: Sequence[Choice]) -> tuple[Choice, Choice] | None:
    """Return the first choice that differs, as each side made it; None where all are the same."""
    for one, other in zip(expected, actual, strict=False):
        if one.chosen.shape != other.chosen.shape or not torch.equal(one.chosen.double(), other.chosen.double()):
            return one, other
    return None

"""What the operators of a forward show: the choices it makes, and kernels of torch that are wrong in a lower dtype."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from pytest_tfdebug.invariance.explain.rounding import in_dtype
from pytest_tfdebug.publish.note import calling_line
from pytest_tfdebug.tracing.record.leaves import walk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_OPERATORS = frozenset(
    f"aten::{name}"
    for name in (
        *("argmax", "argmin", "max", "min", "topk", "sort", "argsort", "nonzero", "multinomial"),
        *("bucketize", "searchsorted", "round", "floor", "ceil", "eq", "gt", "ge", "lt", "le"),
    )
)


class Choice(NamedTuple):
    """One choice."""

    given: torch.Tensor  # the tensor that it was made from
    chosen: torch.Tensor  # indices, truth values or whole numbers


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


#: What a kernel of lower precision may round.
_LOWER = (torch.float16, torch.bfloat16)


class RightKernels(TorchDispatchMode):
    """Takes what an operator gives in float32, from what it is given and rounded once, where its own answer is far off."""

    def __init__(self, error_of: Callable[[torch.Tensor, torch.Tensor], float], bound: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # of torch
        self._error_of, self._bound = error_of, bound
        self.wrong: dict[str, tuple[float, str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        leaves, form = tree_flatten(func(*args, **(kwargs or {})))
        places = [place for place, leaf in enumerate(leaves) if getattr(leaf, "dtype", None) in _LOWER]
        if places and _only_computes(func):
            widen = partial(tree_map, _widened)
            exact, _ = tree_flatten(func(*widen(args), **widen(kwargs or {})))
            for place in places:
                rounded = exact[place].to(leaves[place].dtype)
                error = self._error_of(rounded, leaves[place])
                if not error <= self._bound:
                    known = self.wrong.get(str(func), (0.0, ""))
                    self.wrong[str(func)] = max(known, (error, str(calling_line() or "")))
                    leaves[place] = rounded
        return tree_unflatten(leaves, form)

    def __str__(self) -> str:
        """The operators, the one that is furthest off first."""
        ranked = sorted(self.wrong.items(), key=lambda item: -item[1][0])
        return ", ".join(
            f"{name}{f' ({line})' if line else ''} is off by {error:.3g}" for name, (error, line) in ranked
        )


def _only_computes(func: Any) -> bool:  # noqa: ANN401 - an operator
    """Tell whether an operator gives the same each time, in tensors of its own, and changes none."""
    schema = func._schema  # noqa: SLF001
    is_random = torch.Tag.nondeterministic_seeded in func.tags
    return not (schema.is_mutable or is_random or any(each.alias_info is not None for each in schema.returns))


def _widened(value: Any) -> Any:  # noqa: ANN401 - an argument of an operator
    return in_dtype(value, torch.float32) if isinstance(value, torch.Tensor) and value.dtype in _LOWER else value

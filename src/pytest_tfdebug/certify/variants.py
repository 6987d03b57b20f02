"""Is a change that a test does not catch one at all: by variants of the port, which other inputs alone cannot tell."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._pytree import tree_map

from pytest_tfdebug.tensors import widen
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.signatures import method_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.tracing.values.rerun import Rerun

    Answer = list[torch.Tensor] | None

#: Tokens that a longer input is made of.
_LONG = 300
_SEED = 1
#: What a number of a module is multiplied with: an epsilon of 1e-6 then shows.
_MOVED = 1.5
_EPSILON = 1e-2
_SMALL = 1e-3


class Variants:
    """A port's call in other ways, and what it gives there; made before any change."""

    def __init__(self, again: Rerun) -> None:
        answers = {name: answer() for name, answer in _ways(again).items()}
        self._ways = {name: own for name, own in answers.items() if own is not None}

    @property
    def names(self) -> tuple[str, ...]:
        """The variants that run."""
        return tuple(self._ways)

    def shown_by(self, changed: Rerun) -> str:
        """Return the first variant that a port that was built with a change answers otherwise; empty for none."""
        ways = _ways(changed)
        return next((name for name, own in self._ways.items() if not _are_equal(ways[name](), own)), "")


def _ways(again: Rerun) -> dict[str, Callable[[], Answer]]:
    """Return the variants by what they are called: each a function that calls a copy of the port."""

    def way(change: Callable[[torch.nn.Module], object], *, is_long: bool = False) -> Callable[[], Answer]:
        return lambda: _answer(again, change, is_long=is_long)

    return {
        f"an input of {_LONG} tokens": way(lambda _: None, is_long=True),
        "training mode": way(lambda model: model.train()),
        "another epsilon or scale": way(_move_numbers),
        "bfloat16": way(lambda model: model.to(torch.bfloat16)),
        "float64": way(lambda model: model.to(torch.float64)),
    }


def _answer(again: Rerun, change: Callable[[torch.nn.Module], object], *, is_long: bool) -> Answer:
    """Return what a changed copy of the port gives; None where it does not run."""
    try:
        model = copy.deepcopy(again.model)
        change(model)
        args, kwargs = again.inputs()
        dtype = next((each.dtype for each in model.parameters() if each.is_floating_point()), torch.float32)
        args, kwargs = tree_map(lambda leaf: _as_input(leaf, dtype, is_long=is_long), (args, kwargs))
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            torch.manual_seed(_SEED)
            return [leaf.tensor.detach() for leaf in walk(method_of(model, again.method)(*args, **kwargs))]
    except Exception:  # noqa: BLE001 - a port need not run in every way
        return None


def _as_input(leaf: Any, dtype: torch.dtype, *, is_long: bool) -> Any:  # noqa: ANN401 - of any kind
    if not isinstance(leaf, torch.Tensor):
        return leaf
    if leaf.is_floating_point():
        return leaf.to(dtype)
    if is_long and leaf.ndim == 2:  # noqa: PLR2004 - tokens
        return leaf.repeat(1, -(-_LONG // leaf.shape[1]))[:, :_LONG]
    return leaf


def _move_numbers(model: torch.nn.Module) -> None:
    """Give each module other numbers: an epsilon that shows, a scale that is half as large again."""
    for module in model.modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, float) and value:
                setattr(module, name, _EPSILON if abs(value) < _SMALL else value * _MOVED)


def _are_equal(one: Answer, other: Answer) -> bool:
    if one is None or other is None:
        return one is other
    return len(one) == len(other) and all(
        a.shape == b.shape and torch.equal(widen(a).nan_to_num(), widen(b).nan_to_num())
        for a, b in zip(one, other, strict=True)
    )

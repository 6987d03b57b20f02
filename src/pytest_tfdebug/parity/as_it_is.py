"""What agrees in a wider dtype, held as it is: its outputs may be some floors of the reference's away.

A floor is how far the reference as it is is from itself in the wider dtype. What is further off rounds more than the
reference does, and the first module that does is named.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.settle import settled
from pytest_tfdebug.parity.tensors.metrics import compare_leaf, relative_l2
from pytest_tfdebug.parity.tensors.tolerance import Tolerance
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.modules import class_of, modules_of, uncompiled
from pytest_tfdebug.tracing.record.signatures import method_of
from pytest_tfdebug.tracing.record.sites import forward_source
from pytest_tfdebug.tracing.record.state import kept, preserved
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.tracing.values.widening import widened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.parity.tensors.compared import Compared
    from pytest_tfdebug.records import LeafComparison, TensorRecord
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.tracing.values.rerun import Recorded
    from pytest_tfdebug.tracing.values.widening import Wider

#: Floors that an output may be away from the reference's in half precision. A right Llama of 8 or 24 layers with an
#: order of operations of its own is 1.4 away, a right model asked another way up to 1.1.
MOST_FLOORS = 4.0
#: Share of the dtype's epsilon that a floor is at least taken for: one rounding, where none was seen by luck.
_ONE_ROUNDING = 0.25
#: How many times as much as the reference's a module has to round to be told.
_MUCH = 3.0


@dataclass(frozen=True)
class AsItIs:
    """Two forwards as they are, which agree in a wider dtype."""

    compared: Compared  # their tensors, side by side
    wide: Trace | None  # the reference's forward in the wider dtype
    dtypes: frozenset[str]  # those that are not wide enough
    wider: Callable[[torch.nn.Module], Wider]  # in which dtypes a model is looked at
    wide_name: str  # of the wider dtype
    port: Rerun | Recorded | None  # how the port is run again
    reference: Callable[[], Rerun | Recorded | None] | None  # how the reference is, where it can be
    most: float = MOST_FLOORS  # floors that an output may be away

    @property
    def where(self) -> str:
        """In which dtypes they are, for a sentence; a model in the wider dtype may compute in others inside."""
        return "as it is" if self.wide_name in self.dtypes else f"in {' and '.join(sorted(self.dtypes))}"

    def hold(self, in_wide: ParityReport) -> ParityReport | None:
        """Return the report of what agrees in the wider dtype; None where more than values differ as it is."""
        roots = [leaf for item in self.compared.calls if item.call.parent is None for leaf in item.outputs]
        if not differ_in_values_alone(roots):
            return None
        apart = dict(self._floors_away(roots))
        leaf, times = max(apart.items(), key=lambda each: each[1], default=("", 0.0))
        if times <= self.most:
            away = f"they are up to {times:.1f} floors of the reference away."
            told = f"In {self.wide_name} every output agrees; {self.where} {away}"
            return replace(in_wide, notes=[*in_wide.notes, told])
        far = f"{times:.1f} floors of the reference away; up to {self.most:g} are allowed."
        claim = self._blamed(f"{self.where[0].upper()}{self.where[1:]} {leaf or 'the output'} is {far}")
        return replace(in_wide, culprit=settled(claim), internal="", noise="")

    def _floors_away(self, roots: list[LeafComparison]) -> Iterator[tuple[str, float]]:
        """Yield how far each output of floating point is from the reference's, in floors."""
        wide = {record.leaf: record for record in (self.wide.calls[0].outputs or ())} if self.wide else {}
        for leaf in roots:
            other = leaf.expected and wide.get(leaf.expected.leaf)
            if leaf.expected is None or not other or leaf.dtype not in self.dtypes or leaf.metrics is None:
                continue
            floor = max(_least(leaf.dtype), distance(leaf.expected, other))
            is_gone = leaf.metrics.non_finite_actual > leaf.metrics.non_finite_expected
            yield leaf.leaf, math.inf if is_gone else leaf.metrics.relative_l2 / floor

    def _blamed(self, why: str) -> Claim:
        """Claim the first module that rounds several times as much as the reference's do."""
        reference = self.reference and self.reference()
        own, theirs = (
            own_roundings(each, self.wider(each.model)) if isinstance(each, Rerun) else []
            for each in (self.port, reference)
        )
        known, least = {each.path: each.error for each in theirs}, _least(min(self.dtypes))
        usual = max([*known.values(), least] if known else [median(each.error for each in own) if own else 0.0, least])
        beyond = [each for each in own if each.error > _MUCH * max(known.get(each.path, usual), least)]
        first = next(iter(beyond), None) or max(own, key=lambda each: each.error, default=None)
        wrong = f"is right in {self.wide_name}, and too far off {self.where}"
        if first is None:
            return Claim("", "module", Evidence.ROUNDS_MOST, "", why, wrong)
        name, share = class_of(first.module).__name__, first.error / max(known.get(first.path, usual), least)
        by_itself = f"By itself it is {first.error:.1e} away from {self.wide_name}"
        told = f"{by_itself}, {share:.1f} times as much as the reference. {why}"
        evidence = Evidence.ROUNDS if known and beyond else Evidence.ROUNDS_MOST
        return Claim(first.path, "module", evidence, name, told, wrong, forward_source(first.module))


def differ_in_values_alone(roots: list[LeafComparison]) -> bool:
    """Tell whether outputs have one form, and were all compared, but for those that are left out."""
    return not any(leaf.problem not in ("", "values", "extra") and not leaf.how for leaf in roots)


def distance(one: TensorRecord, other: TensorRecord) -> float:
    """Return the relative L2 of two records of an output; 0 where they are equal."""
    metrics = compare_leaf("output", one, other, Tolerance(0.0, 0.0)).metrics
    return metrics.relative_l2 if metrics is not None else 0.0


def _least(dtype: str) -> float:
    return _ONE_ROUNDING * torch.finfo(getattr(torch, dtype)).eps


class _Own(NamedTuple):
    """What a module's call rounds by itself."""

    path: str
    module: torch.nn.Module
    error: float  # relative L2 of what it returns to what it returns in a wider dtype, of the same inputs


def own_roundings(forward: Rerun, wider: Wider) -> list[_Own]:
    """Return what each module of a forward rounds by itself, in the order in which their calls end.

    Every call is made once more in wider dtypes of what it was given: what its inputs are off by does not count.
    """
    looker = _Looker(wider)
    args, kwargs = forward.inputs()
    with ExitStack() as stack:
        stack.enter_context(preserved(forward.model))
        stack.enter_context(torch.no_grad())
        stack.enter_context(uncompiled(forward.model))
        for path, module in modules_of(forward.model).by_path.items():
            stack.callback(module.register_forward_pre_hook(looker.begin, with_kwargs=True).remove)
            stack.callback(module.register_forward_hook(partial(looker.end, path), with_kwargs=True).remove)
        forward.seed()
        run = forward.model if forward.method == "forward" else method_of(forward.model, forward.method)
        run(*args, **kwargs)
    return looker.found


class _Looker:
    """Makes each call of a module again in a wider dtype."""

    def __init__(self, wider: Wider) -> None:
        self.found: list[_Own] = []
        self._wider, self._given, self._is_again = wider, list[Any](), False

    def begin(self, _module: torch.nn.Module, args: Any, kwargs: Any) -> None:  # noqa: ANN401 - of any forward
        """Keep what a call is given: it may write to that."""
        if not self._is_again:
            self._given.append(kept((args, kwargs)))

    def end(self, path: str, module: torch.nn.Module, _args: Any, _kwargs: Any, output: Any) -> None:  # noqa: ANN401
        """Make a call again."""
        if self._is_again:
            return
        self._is_again = True
        try:
            with widened(module, self._given.pop(), self._wider) as ((args, kwargs), _):
                wide = walk(module(*args, **kwargs))
        finally:
            self._is_again = False
        pairs = [(own.tensor, other.tensor) for own, other in zip(walk(output), wide, strict=False)]
        errors = [
            relative_l2(*pair) for pair in pairs if pair[0].is_floating_point() and pair[0].shape == pair[1].shape
        ]
        self.found.append(_Own(path, module, max(errors, default=0.0)))

"""How far each value of a forward is from the same forward in half precision: what rounding alone makes of it there."""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.fingerprints import MOMENTS, differences
from pytest_tfdebug.marker_arguments import several
from pytest_tfdebug.tracing.record.capture import kept
from pytest_tfdebug.tracing.record.leaves import replaced, walk
from pytest_tfdebug.tracing.record.state import preserved
from pytest_tfdebug.tracing.record.wrappers import uncompiled
from pytest_tfdebug.tracing.values.operators import values_of
from pytest_tfdebug.tracing.values.rerun import Rerun

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.values import Value, Values

#: The dtypes that floors are measured in.
HalfPrecision = Literal["bfloat16", "float16"]


def checked_dtypes(dtypes: object) -> tuple[str, ...]:
    """Return names of dtypes in half precision."""
    given = several(dtypes or ())
    for dtype in given:
        if dtype not in get_args(HalfPrecision):
            raise TFDebugError(f"dtypes={dtype!r} is not one of {', '.join(map(repr, get_args(HalfPrecision)))}.")
    return given


def with_floors(trace: Trace, dtypes: Iterable[str]) -> Values | None:
    """Return the values of a recorded forward, with their floors in some dtypes; None where they are not known."""
    values = None if trace.again is None else trace.again.values()
    if values is not None:
        for dtype in dtypes:
            add_floors(trace, values, dtype)
    return values


def add_floors(trace: Trace, values: Values, dtype: str) -> None:
    """Make a recorded forward again in a dtype, and note how far each of its values is from there."""
    again = trace.again
    if not isinstance(again, Rerun):
        raise TFDebugError(f"Floors of {dtype} are measured where the forward was recorded; the model is gone.")
    kind = getattr(torch, dtype)
    low = copy.deepcopy(again.model).to(kind)
    try:
        with preserved(low), torch.no_grad(), uncompiled(low):
            again.seed()
            given = replaced(again.inputs(), lambda held: held.to(kind) if held.is_floating_point() else held)
            args, kwargs = kept(given)
            table = values_of(low, again.method, args, kwargs)
            again.seed()
            args, kwargs = given
            outputs = getattr(low, again.method)(*args, **kwargs)
    except Exception as error:
        first = str(error).partition("\n")[0]
        raise TFDebugError(f"{trace.model_class} cannot be run in {dtype}: {type(error).__name__}: {first}") from error
    floors = [*_of_values(values, table), *_of_outputs(trace, values, outputs)]
    values.floors[dtype] = [floor if math.isfinite(floor) else 0.0 for floor in floors]


def _of_values(values: Values, low: Values) -> list[float]:
    """Return the differences of the moments of each value from the same in another dtype; 0 where there is none."""
    beside = dict(_named(low))
    floors = [0.0] * (MOMENTS * len(values.values))
    for name, value in _named(values):
        if name in beside and beside[name].print.elements == value.print.elements:
            place = MOMENTS * value.index
            floors[place : place + MOMENTS] = differences(value.print, beside[name].print)
    return floors


def _of_outputs(trace: Trace, values: Values, outputs: object) -> list[float]:
    """Return the norm of each output's difference, over its own; 0 where that is not known."""
    low = {leaf.path: leaf.tensor for leaf in walk(outputs)}
    records = {record.leaf: record.tensor for record in trace.calls[0].outputs or ()}
    found = []
    for leaf, _ in values.results:
        one, other, apart = records.get(leaf), low.get(leaf), 0.0
        if one is not None and other is not None and one.shape == other.shape and one.is_floating_point():
            apart = float((other.double() - one.double()).norm() / one.double().norm().clamp_min(1e-30))
        found.append(apart)
    return found


def _named(table: Values) -> Iterator[tuple[Any, Value]]:
    """Yield values by what computed them: which of a call's operators of one kind at one line, casts left out."""
    calls = {call.index: (call.path, call.call) for call in table.calls}
    seen: dict[Any, int] = defaultdict(int)
    for value in table.values:
        if value.operator != "_to_copy":
            name = value.operator, value.origin, value.name, calls.get(value.call or 0), value.lines[:1]
            yield (name, seen[name]), value
            seen[name] += 1

"""A forward in float64, whatever dtypes its code asks for: what the recorded dtype would give without its rounding.

Every operator computes in float64: where a forward casts to float32 (norms, rotary angles, routers) the cast is to
float64. How far a recorded tensor is from that is its floor: what arithmetic alone explains. Floors in half precision
are how far each value is from the same forward there.
"""

from __future__ import annotations

import math
from collections import defaultdict
from contextlib import contextmanager
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError, listed
from pytest_tfdebug.marker_arguments import several
from pytest_tfdebug.tensors import Leaf, readable, widen
from pytest_tfdebug.tracing.record.leaves import walk
from pytest_tfdebug.tracing.record.recorder import Recorder
from pytest_tfdebug.tracing.record.state import kept
from pytest_tfdebug.tracing.values.digest import sums_and_norm
from pytest_tfdebug.tracing.values.operators import values_of
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.tracing.values.widening import TO_FLOAT64, narrowed, widened
from pytest_tfdebug.values import MOMENTS, differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.data.trace import RecordedForward
    from pytest_tfdebug.records import Call, TensorRecord
    from pytest_tfdebug.values import Value, Values

    Inputs = tuple[tuple[Any, ...], dict[str, Any]]


@contextmanager
def in_float64(model: torch.nn.Module, inputs: Inputs) -> Iterator[Inputs]:
    """Yield the inputs of a model inside of a block in which its forward is computed in float64."""
    with widened(model, inputs, TO_FLOAT64) as (wide, _):
        yield wide


#: Elements below which a tensor may be near its float64 form by luck.
_FEW = 64
#: A floor above this, or above the root of the dtype's epsilon, is no rounding: a choice (an expert, a random number)
#: falls otherwise in float64.
_OF_ROUNDING = 0.03
_DIGITS = 2


def has_floors(trace: RecordedForward) -> bool:
    """Tell whether the floors of a forward were measured."""
    return any(record.floor is not None for record in trace.records())


def measure_floors(trace: RecordedForward) -> list[str]:
    """Run a recorded forward once more, in float64, and note in its records how far each tensor is from that.

    Return what a person is told of it, in lines.
    """
    again = _live(trace)
    beside = _Beside(trace)
    try:
        with in_float64(again.model, again.inputs()) as inputs:
            again.seed()
            with Recorder(again.model, beside) as recorder:
                recorder.run(again.method, *inputs)
    except Exception as error:
        where = f"{beside.failed} raises " if beside.failed else ""
        told = _told(trace, "float64", where, error)
        raise TFDebugError(f'{told}\nRecord it without tolerance="fp64".') from error
    return list(beside.finish())


def _live(trace: RecordedForward) -> Rerun:
    """Return what makes the forward of a trace again, with its model."""
    if not isinstance(trace.again, Rerun):
        raise TFDebugError("Floors are measured where the forward was recorded; this trace was read from a file.")
    return trace.again


def _told(trace: RecordedForward, dtype: str, where: str, error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{trace.model_class} cannot be run in {dtype}: {where}{type(error).__name__}: {first}"


class _Beside:
    def __init__(self, trace: RecordedForward) -> None:
        self._records = list(trace.records())
        self._beside: dict[Any, TensorRecord] = {}  # by call, by what it is of it, and by leaf path
        for call in trace.calls:
            shown = [*(("input", it) for it in call.inputs), *(("output", it) for it in call.outputs or ())]
            for role, record in (*shown, *((write.before, write.record) for write in call.writes)):
                self._beside[call.path, call.call, role, record.leaf] = record
        self._floors: dict[int, tuple[float, str]] = {}
        self.failed = ""

    def enter(self, call: Call, leaves: list[Leaf], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:  # noqa: ARG002
        self._look(call, leaves, "input")

    def leave(self, call: Call, leaves: list[Leaf], output: Any) -> None:  # noqa: ANN401, ARG002
        self._look(call, leaves, "output")

    def wrote(self, call: Call, leaves: list[Leaf], before: int | None) -> None:
        self._look(call, leaves, before)

    def fail(self, call: Call) -> None:
        """Note the innermost call that raised, which is told first."""
        self.failed = self.failed or call.path

    def _look(self, call: Call, leaves: list[Leaf], role: str | int | None) -> None:
        for leaf in leaves:
            record = self._beside.get((call.path, call.call, role, leaf.path))
            values = None if record is None or id(record.held) in self._floors else readable(leaf.tensor)
            if record is not None and values is not None and record.held is not None:
                self._floors[id(record.held)] = _floor(record, values), call.path

    def finish(self) -> Iterator[str]:
        found: dict[int, tuple[float, str]] = {}  # the floor of each tensor, and the module that shows it
        other_way: dict[str, None] = {}  # module paths of tensors that float64 gives otherwise, by more than rounding
        usual = median([floor for floor, _ in self._floors.values() if floor <= _OF_ROUNDING] or [0.0])
        for record in self._records:
            floor, path = self._floors.get(id(record.held), (math.nan, ""))
            if floor <= _most(record.dtype):
                least = usual if math.prod(record.shape) < _FEW else 0.0
                record.floor = float(f"{max(floor, least):.{_DIGITS - 1}e}")
                found.setdefault(id(record.held), (record.floor, path))
            elif floor > 0 and record.dtype not in ("float64", "complex128"):
                other_way[path] = None
        if found:
            (greatest, at), middle = max(found.values()), median(floor for floor, _ in found.values())
            yield f"floors of {len(found)} tensors: median {middle:.1e}, greatest {greatest:.1e} at {at}"
        if other_way:
            paths = listed([*other_way], 1) + (" modules" if len(other_way) > 1 else "")
            yield f"in float64 {paths} give another result, so the tolerance of the dtype applies there"


def _floor(record: TensorRecord, wide: torch.Tensor) -> float:
    """Return the norm of the difference over that of the float64 tensor; inf where they cannot be subtracted.

    Of a digest it is estimated from its sums; whole numbers and truth values are equal, or not.
    """
    if record.shape != tuple(wide.shape):
        return math.inf
    sums = None if record.digest is None else record.digest.sums
    wide_sums, norm = sums_and_norm(wide)
    if not (wide.is_floating_point() or wide.is_complex()):
        known = sums if record.tensor is None else sums_and_norm(record.tensor)[0]
        return 0.0 if known is not None and torch.equal(known.cpu(), wide_sums.cpu()) else math.inf
    if record.tensor is not None:
        off = (widen(record.tensor.to(wide.device)) - widen(wide)).flatten()  # float8 cannot be subtracted
    else:
        off = torch.zeros(1) if sums is None else sums.double() - wide_sums.cpu()
    apart = float(torch.linalg.vector_norm(off))
    if not norm or not math.isfinite(apart):
        return math.nan  # nothing to be relative to: the tolerance of the dtype holds
    return apart / norm


@lru_cache
def _most(dtype: str) -> float:
    """Return the greatest floor that may be rounding; below 0 for what has none: float64, integers and booleans."""
    kind = getattr(torch, dtype)
    is_wide = kind in (torch.float64, torch.complex128)
    is_inexact = kind.is_floating_point or kind.is_complex
    return min(_OF_ROUNDING, math.sqrt(torch.finfo(kind).eps)) if is_inexact and not is_wide else -1.0


#: The dtypes that floors are measured in.
HALF_PRECISION = ("bfloat16", "float16")


def checked_dtypes(dtypes: object) -> tuple[str, ...]:
    """Return names of dtypes in half precision."""
    given = several(dtypes or ())
    for dtype in given:
        if dtype not in HALF_PRECISION:
            raise TFDebugError(f"dtypes={dtype!r} is not one of {', '.join(map(repr, HALF_PRECISION))}.")
    return given


def with_floors(trace: RecordedForward, dtypes: Iterable[str]) -> Values | None:
    """Return the values of a recorded forward, with their floors in some dtypes; None where they are not known."""
    values = None if trace.again is None else trace.again.values()
    if values is not None:
        for dtype in dtypes:
            add_floors(trace, values, dtype)
    return values


def add_floors(trace: RecordedForward, values: Values, dtype: str) -> None:
    """Make a recorded forward again in a dtype, and note how far each of its values is from there."""
    again = _live(trace)
    try:
        with narrowed(again.model, again.inputs(), getattr(torch, dtype)) as ((args, kwargs), casts):
            again.seed()
            table = values_of(again.model, again.method, *kept((args, kwargs)), casts=casts)
            again.seed()
            outputs = getattr(again.model, again.method)(*args, **kwargs)
    except Exception as error:
        raise TFDebugError(_told(trace, dtype, "", error)) from error
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


def _of_outputs(trace: RecordedForward, values: Values, outputs: object) -> list[float]:
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

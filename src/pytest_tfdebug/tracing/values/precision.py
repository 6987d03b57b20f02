"""A forward in float64, whatever dtypes its code asks for: what the recorded dtype would give without its rounding.

A copy of the model is cast, and every operator computes in float64: where a forward casts to float32 (norms, rotary
angles, routers) the cast is to float64, and a tensor of lower precision that it finds is widened before it is used.
How far a recorded tensor is from that is its floor: what arithmetic alone explains. Floors in half precision are how
far each value is from the same forward there.
"""

from __future__ import annotations

import copy
import math
from collections import defaultdict
from contextlib import contextmanager
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from pytest_tfdebug.errors import TFDebugError, listed
from pytest_tfdebug.marker_arguments import several
from pytest_tfdebug.tensors import readable, widen
from pytest_tfdebug.tracing.record.leaves import Leaf, duplicate, replaced, walk
from pytest_tfdebug.tracing.record.modules import uncompiled
from pytest_tfdebug.tracing.record.recorder import Recorder
from pytest_tfdebug.tracing.record.state import kept, preserved
from pytest_tfdebug.tracing.values.digest import sums_and_norm
from pytest_tfdebug.tracing.values.operators import values_of
from pytest_tfdebug.tracing.values.rerun import Rerun
from pytest_tfdebug.values import MOMENTS, differences

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.records import Call, TensorRecord
    from pytest_tfdebug.tracing.trace import Trace
    from pytest_tfdebug.values import Value, Values

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
    copied, default = duplicate(model).double(), torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)  # what whole numbers become where they are divided
    try:
        with preserved(copied), torch.no_grad(), uncompiled(copied), _Float64():  # type: ignore[no-untyped-call] # torch's
            yield copied, replaced(inputs, _widened)
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


#: Elements below which a tensor may be near its float64 form by luck.
_FEW = 64
#: A floor above this, or above the root of the dtype's epsilon, is no rounding: a choice (an expert, a random number)
#: falls otherwise in float64.
_OF_ROUNDING = 0.03
_DIGITS = 2


def has_floors(trace: Trace) -> bool:
    """Tell whether the floors of a forward were measured."""
    return any(record.floor is not None for record in trace.records())


def measure_floors(trace: Trace) -> list[str]:
    """Run a recorded forward once more, in float64, and note in its records how far each tensor is from that.

    Return what a person is told of it, in lines.
    """
    again = _live(trace)
    beside = _Beside(trace)
    try:
        with in_float64(again.model, again.inputs()) as (wide, inputs):
            again.seed()
            with Recorder(wide, beside) as recorder:
                recorder.run(again.method, *inputs)
    except Exception as error:
        where = f"{beside.failed} raises " if beside.failed else ""
        told = _told(trace, "float64", where, error)
        raise TFDebugError(f'{told}\nRecord it without tolerance="fp64".') from error
    return list(beside.finish())


def _live(trace: Trace) -> Rerun:
    """Return what makes the forward of a trace again, with its model."""
    if not isinstance(trace.again, Rerun):
        raise TFDebugError("Floors are measured where the forward was recorded; this trace was read from a file.")
    return trace.again


def _told(trace: Trace, dtype: str, where: str, error: Exception) -> str:
    first = str(error).strip().partition("\n")[0]
    return f"{trace.model_class} cannot be run in {dtype}: {where}{type(error).__name__}: {first}"


class _Beside:
    def __init__(self, trace: Trace) -> None:
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


def with_floors(trace: Trace, dtypes: Iterable[str]) -> Values | None:
    """Return the values of a recorded forward, with their floors in some dtypes; None where they are not known."""
    values = None if trace.again is None else trace.again.values()
    if values is not None:
        for dtype in dtypes:
            add_floors(trace, values, dtype)
    return values


def add_floors(trace: Trace, values: Values, dtype: str) -> None:
    """Make a recorded forward again in a dtype, and note how far each of its values is from there."""
    again = _live(trace)
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

"""Recorded calls as an indented tree and as rows of a table; verdicts as a table of models by promises."""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pandas as pd

    from pytest_tfdebug.check_record import PromiseVerdict
    from pytest_tfdebug.records import Call, CallComparison, TensorRecord


#: More leaves than this are counted, not listed.
_SHOWN = 4


def render_tree(calls: Iterable[Call], notes: Iterable[str] = ()) -> Iterator[str]:
    """Yield the lines: path, class, then each output's shape, dtype and range."""
    calls = list(calls)
    for call in calls:
        above = "" if call.parent is None else f"{calls[call.parent].path}."
        name = call.name.removeprefix(above)
        yield f"{'  ' * call.depth}{name} ({call.class_name}) {told_of(call)}".rstrip()
    for note in notes:
        yield f"Note: {note}"


def told_of(call: Call) -> str:
    """Return what became of a call: its outputs, or that there are none."""
    if call.error is not None:
        return f"raised {call.error}"
    if call.outputs is None:
        return "did not return"
    shown = ", ".join(_tensor(record) for record in call.outputs[:_SHOWN])
    more = f", and {len(call.outputs) - _SHOWN} more" if len(call.outputs) > _SHOWN else ""
    return f"-> {shown}{more}" if shown else ""


def _tensor(record: TensorRecord) -> str:
    text = f"{record.leaf}{' ' if record.leaf else ''}{record.dtype}{list(record.shape)}"
    if record.statistics is None or not record.shape or 0 in record.shape:
        return text
    low, high, _, _, non_finite = record.statistics
    return f"{text} in [{low:.3g}, {high:.3g}]" + (f" with {non_finite} non-finite" if non_finite else "")


def table(rows: Iterable[tuple[object, ...]], columns: Sequence[str]) -> pd.DataFrame:
    """Return rows as a table of pandas."""
    import pandas as pd

    frame: pd.DataFrame = pd.DataFrame(list(rows), columns=list(columns))
    return frame


_LEAF = ("path", "class", "call", "direction", "leaf", "shape", "dtype")
_METRICS = ("max_abs", "max_rel", "mismatched", "total", "rmse", "relative_l2", "cosine")
#: Columns of ``Trace.to_dataframe()``.
COLUMNS = (*_LEAF, "min", "max", "mean", "std", "non_finite")
#: Columns of ``ParityReport.to_dataframe()``.
COMPARISON_COLUMNS = (*_LEAF, "ok", "problem", *_METRICS)


def trace_rows(calls: Iterable[Call]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each call and leaf, inputs before outputs."""
    for call in calls:
        for direction, records in (("input", call.inputs), ("output", call.outputs or ())):
            for record in records:
                where = (call.path, call.class_name, call.call, direction, record.leaf)
                yield (*where, record.shape, record.dtype, *(record.statistics or (None,) * 5))


def comparison_rows(calls: Iterable[CallComparison]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each compared tensor; differences of equal tensors are 0."""
    for item in calls:
        for leaf in (*item.inputs, *item.outputs):
            numbers: tuple[object, ...] = (0.0, 0.0, 0, prod(leaf.shape), 0.0, 0.0, 1.0)
            if leaf.metrics is not None:
                numbers = tuple(getattr(leaf.metrics, name) for name in _METRICS)
            elif leaf.problem:
                numbers = (None,) * len(numbers)
            where = (item.call.path, item.call.class_name, item.call.call, leaf.direction, leaf.leaf)
            yield (*where, leaf.shape, leaf.dtype, not leaf.problem, leaf.problem, *numbers)


#: State of a verdict -> its cell; the worst state is last.
_CELLS = {"does not apply": "-", "passes": "ok", "varies": "varies", "fails": "FAILS"}
#: Models that are listed, those that break a promise first; the rest are counted.
_MODELS = 40
_NARROWEST = max(map(len, _CELLS.values()))


def render_table(verdicts: Sequence[PromiseVerdict]) -> Iterator[str]:
    """Yield a line for each model with a column for each promise, the reasons for what varies, and the counts."""
    cells = {(each.model, each.promise): each for each in verdicts}
    promises = list(dict.fromkeys(promise for _, promise in cells))
    worst: dict[str, int] = {}
    for (model, _), verdict in cells.items():
        worst[model] = max(worst.get(model, 0), list(_CELLS).index(verdict.state))
    models = sorted(worst, key=lambda model: (-worst[model], model))
    width = max(map(len, models))

    def row(model: str, shown: Sequence[str]) -> str:
        columns = (cell.ljust(max(len(name), _NARROWEST)) for cell, name in zip(shown, promises, strict=True))
        return " ".join([model.ljust(width), *columns]).rstrip()

    yield row("", promises)
    for model in models[:_MODELS]:
        found = [cells.get((model, promise)) for promise in promises]
        yield row(model, ["" if verdict is None else _CELLS[verdict.state] for verdict in found])
    if len(models) > _MODELS:
        yield f"and {len(models) - _MODELS} models more"
    for each in cells.values():
        if each.state == "varies":
            yield f"{each.model} varies by design, {each.promise}: {each.text}"
    states = Counter(each.state for each in cells.values())
    told = [f"{states['passes']} promises kept", f"{states['varies']} vary by design"]
    told += [f"{states['does not apply']} do not apply", f"{states['fails']} broken"]
    yield f"{counted(len(models), 'model')}: {', '.join(told)}."

"""Records as rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.records import Call

#: Columns of ``Trace.to_dataframe()``.
COLUMNS = ("path", "class", "call", "direction", "leaf", "shape", "dtype", "min", "max", "mean", "std", "non_finite")


def trace_rows(calls: Iterable[Call]) -> Iterator[tuple[object, ...]]:
    """Yield a row for each call and leaf, inputs before outputs."""
    for call in calls:
        for direction, records in (("input", call.inputs), ("output", call.outputs or ())):
            for record in records:
                summary = record.statistics or (None,) * 5
                yield (
                    call.path,
                    call.class_name,
                    call.call,
                    direction,
                    record.leaf,
                    record.shape,
                    record.dtype,
                    *summary,
                )

"""The part of a golden that one module of its model made: ``root="model.layers.1"``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.records import Write
from pytest_tfdebug.tracing.record.globs import nearest

if TYPE_CHECKING:
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.trace import Trace


def part_of(golden: TraceFile, root: str) -> TraceFile:
    """Return the golden of one module, as if that module had been the model."""
    trace = golden.trace
    path = next((own for own, others in trace.aliases.items() if root in others), root)
    found = {call.index for call in trace.calls if call.path == path}
    if not found:
        known = [call.path for call in trace.calls]
        raise TFDebugError(f"root={root!r}: the golden has no call of such a module.{nearest(root, known)}")
    below = f"{path}."
    weights = {name.removeprefix(below): one for name, one in golden.extra["weights"].items() if name.startswith(below)}
    return replace(golden, trace=_part_of_trace(trace, path, found), extra={**golden.extra, "weights": weights})


def _part_of_trace(trace: Trace, path: str, roots: set[int]) -> Trace:
    places: dict[int, int] = {}
    calls: list[Call] = []
    for call in trace.calls:
        if call.index not in roots and call.parent not in places:
            continue
        parent = places.get(call.parent) if call.parent is not None else None
        places[call.index] = len(calls)
        calls.append(
            replace(
                call,
                index=len(calls),
                path=call.class_name if call.path == path else call.path.removeprefix(f"{path}."),
                parent=parent,
                depth=0 if parent is None else calls[parent].depth + 1,
            )
        )
    for call in calls:
        call.writes = tuple(
            Write(record, places.get(before) if before is not None else None) for record, before in call.writes
        )
    inside = {other.removeprefix(f"{path}."): other for other in trace.modules if other.startswith(f"{path}.")}
    return replace(
        trace,
        model_class=calls[0].class_name,
        calls=calls,
        aliases={
            short: tuple(other.removeprefix(f"{path}.") for other in trace.aliases[own])
            for short, own in inside.items()
            if own in trace.aliases
        },
        modules=tuple(inside),
        unrecorded=tuple(short for short, own in inside.items() if own in trace.unrecorded),
        again=None,
    )

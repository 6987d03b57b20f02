"""A trace as an indented tree, a line for each call."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_tfdebug.records import Call, TensorRecord

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

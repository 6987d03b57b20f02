"""Read and write goldens; a golden is compared with the old one before anything is written."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

from pytest_tfdebug.check_record import BlindRecord
from pytest_tfdebug.errors import GoldenError, TFDebugError
from pytest_tfdebug.goldens.settings import Kept
from pytest_tfdebug.goldens.store.changes import changes, fingerprint, is_same, provenance
from pytest_tfdebug.records import Call, Write
from pytest_tfdebug.redaction import redact
from pytest_tfdebug.tracing.file.codec import TraceFile, read, shown_size, write
from pytest_tfdebug.tracing.file.kept import sampled, string_inputs
from pytest_tfdebug.tracing.record.selection import nearest
from pytest_tfdebug.tracing.trace import Trace
from pytest_tfdebug.tracing.values.float64 import measure_floors
from pytest_tfdebug.tracing.values.half_precision import with_floors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import torch


@dataclass(frozen=True)
class Written:
    """What an update did to one golden."""

    # ``new``, ``changed`` or ``unchanged``; an unchanged file is left alone
    status: Literal["new", "changed", "unchanged"]
    review: tuple[str, ...] = ()  # what changed, a line each
    size: int = 0  # bytes of the file


def load(path: Path) -> TraceFile:
    """Read a golden."""
    golden = read(path, Trace)
    if not golden.trace.has_tensors():
        raise GoldenError(f"{path} holds no tensor: a check against it would check nothing.")
    for key, kind in (("test", str), ("weights", dict), ("provenance", dict)):
        if not isinstance(golden.extra.get(key), kind):
            raise GoldenError(f"{path} is a trace, not a golden: it does not say {key!r}.")
    return golden


def recorded_blind_spots(golden: TraceFile) -> tuple[BlindRecord, ...]:
    """Return what a golden cannot see; nothing where that was not measured."""
    names = [each.name for each in fields(BlindRecord)]
    listed = golden.extra.get("blind")
    spots = [spot for spot in listed if isinstance(spot, dict)] if isinstance(listed, list) else []
    return tuple(BlindRecord(*(str(spot.get(name, "")) for name in names)) for spot in spots)


def save(
    path: Path,
    trace: Trace,
    model: torch.nn.Module,
    test: str,
    *,
    kept: Kept | None = None,
    weights: dict[str, str] | None = None,
    blind: Callable[[], tuple[BlindRecord, ...]] = tuple,
) -> Written:
    """Write a golden unless the file holds these very tensors."""
    if not trace.has_tensors():
        raise GoldenError(f"The forward of {trace.model_class} has no tensors: there is nothing to record in {path}.")
    kept = kept or Kept()
    marks = {"floors": kept.has_floors, "positions": kept.has_positions, "dtypes": [*kept.dtypes]}  # for the check
    extra: dict[str, Any] = {
        "test": redact(test),
        "weights": fingerprint(model) if weights is None else weights,
        "provenance": provenance(model),
        "kept": {"store": kept.store, **{mark: held for mark, held in marks.items() if held}},
    }
    try:
        old: TraceFile | None = read(path, Trace) if path.exists() else None
        problem = ""
    except GoldenError as error:
        old, problem = None, str(error)
    if old is not None and is_same(old, trace, extra):
        return Written("unchanged", size=path.stat().st_size)
    existed = path.exists()
    review = tuple(changes(old, trace, extra)) if old is not None else (problem,) if problem else ()
    old = None  # the old file is mapped into memory: let it go before it is replaced
    extra["blind"] = [asdict(spot) for spot in blind()]
    floors = measure_floors(trace) if kept.has_floors else []
    values = with_floors(trace, kept.dtypes)
    size = write(path, sampled(trace) if kept.store == "values" else trace, extra, values, max_size=kept.max_size)
    texts = ", ".join(string_inputs(trace))
    told = [shown_size(size), *([f"it holds the text of {texts}, readable by anyone"] if texts else [])]
    return Written("changed" if existed else "new", (*review, *told, *floors), size)


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
    places: dict[int | None, int] = {}
    calls: list[Call] = []
    for call in trace.calls:
        if call.index not in found and call.parent not in places:
            continue
        parent = places.get(call.parent)
        name = call.class_name if call.path == path else call.path.removeprefix(below)
        depth = 0 if parent is None else calls[parent].depth + 1
        places[call.index] = len(calls)
        calls.append(replace(call, index=len(calls), path=name, parent=parent, depth=depth))
    for call in calls:
        call.writes = tuple(Write(record, places.get(before)) for record, before in call.writes)
    inside = {other.removeprefix(below): other for other in trace.modules if other.startswith(below)}
    aliases = {short: trace.aliases[own] for short, own in inside.items() if own in trace.aliases}
    part = replace(
        trace,
        model_class=calls[0].class_name,
        calls=calls,
        aliases={short: tuple(other.removeprefix(below) for other in others) for short, others in aliases.items()},
        modules=tuple(inside),
        unrecorded=tuple(short for short, own in inside.items() if own in trace.unrecorded),
        again=None,
    )
    return replace(golden, trace=part, extra={**golden.extra, "weights": weights})

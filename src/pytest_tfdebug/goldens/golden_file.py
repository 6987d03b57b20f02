"""Read and write goldens; a golden is compared with the old one before anything is written, and told in words."""

from __future__ import annotations

from dataclasses import asdict, fields, replace
from functools import cache
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.check_record import BlindRecord
from pytest_tfdebug.environment import as_text, environment, git_state
from pytest_tfdebug.errors import GoldenError, TFDebugError, counted, listed
from pytest_tfdebug.goldens.session import GoldenOutcome
from pytest_tfdebug.goldens.settings import Kept
from pytest_tfdebug.goldens.weights import fingerprint
from pytest_tfdebug.parity.compare import compare
from pytest_tfdebug.parity.tensors.plain_outputs import plain_outputs
from pytest_tfdebug.records import Call, Digest, LeafComparison, TensorRecord, Write, as_they_ended
from pytest_tfdebug.redaction import redact, redacted
from pytest_tfdebug.tensors import dtype_name
from pytest_tfdebug.tracing.file.codec import TraceFile, read, shown_size, write
from pytest_tfdebug.tracing.file.stored_tensors import sampled, string_inputs
from pytest_tfdebug.tracing.record.modules import nearest
from pytest_tfdebug.tracing.trace import Trace
from pytest_tfdebug.tracing.values.digest import digest_of, summarize
from pytest_tfdebug.tracing.values.precision import measure_floors, with_floors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pytest_tfdebug.parity.result import ParityReport


def load(path: Path) -> TraceFile[Trace]:
    """Read a golden."""
    golden = read(path, Trace)
    if not golden.trace.has_tensors():
        raise GoldenError(f"{path} holds no tensor: a check against it would check nothing.")
    for key, kind in (("test", str), ("weights", dict), ("provenance", dict)):
        if not isinstance(golden.extra.get(key), kind):
            raise GoldenError(f"{path} is a trace, not a golden: it does not say {key!r}.")
    return golden


def recorded_blind_spots(golden: TraceFile[Trace]) -> tuple[BlindRecord, ...]:
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
) -> GoldenOutcome:
    """Write a golden unless the file holds these very tensors."""
    made = any(call.outputs or call.writes for call in trace.calls) or plain_outputs(trace.calls[0], "float32")
    if not trace.has_tensors() or not made:
        raise GoldenError(
            f"The forward of {trace.model_class} returns no tensors: there is nothing to record in {path}."
        )
    kept = kept or Kept()
    marks = {"floors": kept.has_floors, "positions": kept.has_positions, "dtypes": [*kept.dtypes]}  # for the check
    extra: dict[str, Any] = {
        "test": redact(test),
        "weights": fingerprint(model) if weights is None else weights,
        "provenance": provenance(model),
        "kept": {"store": kept.store, **{mark: held for mark, held in marks.items() if held}},
    }
    try:
        old: TraceFile[Trace] | None = read(path, Trace) if path.exists() else None
        problem = ""
    except GoldenError as error:
        old, problem = None, str(error)
    if old is not None and is_same(old, trace, extra):
        return GoldenOutcome(str(path), test, "unchanged", (), size=path.stat().st_size)
    existed = path.exists()
    review = tuple(changes(old, trace, extra)) if old is not None else (problem,) if problem else ()
    old = None  # the old file is mapped into memory: let it go before it is replaced
    extra["blind"] = [asdict(spot) for spot in blind()]
    floors = measure_floors(trace) if kept.has_floors else []
    values = with_floors(trace, kept.dtypes)
    whole = trace if kept.store == "full" else sampled(trace)
    size = write(path, whole, extra, values, max_size=kept.max_size)
    texts = ", ".join(string_inputs(trace))
    told = [shown_size(size), *([f"it holds the text of {texts}, readable by anyone"] if texts else [])]
    return GoldenOutcome(str(path), test, "changed" if existed else "new", (*review, *told, *floors), size=size)


def part_of(golden: TraceFile[Trace], root: str) -> TraceFile[Trace]:
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
        wide=None if trace.wide is None else part_of(replace(golden, trace=trace.wide), root).trace,
    )
    return replace(golden, trace=part, extra={**golden.extra, "weights": weights})


#: Fields of the environment that a number can depend on. A golden is shared, so paths and flags of the hub stay out.
_FIELDS = (
    *("python", "torch", "cuda", "transformers", "safetensors", "pytest_tfdebug", "os", "cpu", "gpu"),
    *("default_dtype", "tf32", "deterministic", "threads", "attention_implementation"),
)


def provenance(model: torch.nn.Module) -> dict[str, Any]:
    """Return versions, device, dtype, numeric flags, seed and commit, as JSON values."""
    known = environment(model)
    first = next(iter((*model.parameters(), *model.buffers())), None)
    commit, dirty = _commit(Path.cwd())
    return {
        **redacted({name: known[name] for name in _FIELDS}),
        "device": "cpu" if first is None else first.device.type,
        "dtype": None if first is None else dtype_name(first.dtype),
        "seed": torch.initial_seed(),
        "git_commit": commit,
        "git_dirty": dirty,
    }


@cache
def _commit(_directory: Path) -> tuple[str | None, bool | None]:
    """Return the commit of the repository that a directory is in, asked once for each, and whether it is changed."""
    return git_state()


def changed_environment(recorded: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    """Yield ``torch 2.12.0 -> 2.13.0`` for each field that differs, the commit and the seed left out."""
    for name in (*_FIELDS, "device", "dtype"):
        is_chosen = name != "attention_implementation" or None not in (recorded.get(name), present.get(name))
        if name in recorded and recorded[name] != present.get(name) and is_chosen:  # a port may have no choice of it
            old, new = ("none" if it is None else as_text(it) for it in (recorded[name], present.get(name)))
            yield f"{name} {old} -> {new}"


#: Tensors and parameters that are listed by name; the others are counted.
_NAMED = 3


def changes(old: TraceFile[Trace], new: Trace, extra: Mapping[str, Any]) -> Iterator[str]:
    """Yield what differs between a golden and another recording of it, a line each."""
    yield from _moved(old.trace, new)
    before, now = old.extra["weights"], extra["weights"]
    other = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if other:
        yield f"weights: {listed(list(map(repr, other)), _NAMED)} differ"
    since = "; ".join(changed_environment(old.extra["provenance"], extra["provenance"]))
    if since:
        yield f"environment: {since}"
    if old.extra["test"] != extra["test"]:
        yield f"test: {old.extra['test']} -> {extra['test']}"


def described(golden: TraceFile[Trace]) -> Iterator[str]:
    """Yield a golden as text, a line for each fact that a change of it can change: git compares these lines."""
    summarize(golden.trace.records())
    yield f"test: {golden.extra['test']}"
    yield from (f"{name}: {value}" for name, value in golden.extra["provenance"].items())
    yield from (f"weight {name}: {value}" for name, value in golden.extra["weights"].items())
    for call in golden.trace.calls:
        yield f"{call.name} ({call.class_name})"
        for direction, records in (("input", call.inputs), ("output", call.outputs or ())):
            for record in records:
                numbers = zip(("min", "max", "mean", "std"), record.statistics or (), strict=False)
                told = "".join(f" {name} {value:.6g}" for name, value in numbers)
                leaf = f"  {direction} {record.leaf}".rstrip()
                yield f"{leaf}: {record.dtype} {tuple(record.shape)}{told}"


def _moved(old: Trace, new: Trace) -> Iterator[str]:
    """Yield which outputs have other values, the first module of them, and how these stand to what is allowed."""
    try:
        report = compare(old, new, internal="fail")
    except TFDebugError:
        yield "no tensor in common with the old golden"
        return
    ended = as_they_ended(report.calls)
    moved = [
        (item, it) for item in ended for it in item.outputs if it.problem or (it.metrics and it.metrics.max_abs > 0)
    ]
    count = sum(len(item.outputs) for item in report.calls)
    if moved:
        first = moved[0][0].call
        yield f"moved: {len(moved)} of {counted(count, 'output')}, first {first.path!r} ({first.class_name})"
        yield _verdict(report)
        worst = sorted(moved, key=lambda pair: -(pair[1].metrics.relative_l2 if pair[1].metrics else inf))[:_NAMED]
        yield from (f"  {item.call.name} output {leaf.leaf}".rstrip() + f": {_told(leaf)}" for item, leaf in worst)
    else:
        yield f"moved: none of {counted(count, 'output')}"
    gone, added = ({call.name for call in side.calls} for side in (old, new))
    if gone != added:
        yield f"calls: {len(gone - added)} gone, {len(added - gone)} new"


def _verdict(report: ParityReport) -> str:
    if report.culprit is None:
        worst = report.worst
        return "inside tolerance" + (f": at most {worst.share:.2g} of it, at {worst.path!r}" if worst else "")
    culprit = report.culprit
    return f"outside tolerance: {counted(len(report.divergences), 'tensor')}, from {culprit.path!r} ({culprit.kind}) on"


def _told(leaf: LeafComparison) -> str:
    metrics = leaf.metrics
    if metrics is None:
        return f"{leaf.problem} differs"
    allowed = f"{metrics.allowed:.1e} allowed"
    return f"greatest difference {metrics.max_abs:.3g} ({allowed}), relative L2 {metrics.relative_l2:.2e}"


#: Relative difference of two sums that were added up in another order.
_ROUNDING = 1e-6
#: Entries beside the tensors that must be the same.
_EXTRA = ("test", "weights", "kept")


def is_same(old: TraceFile[Trace], trace: Trace, extra: Mapping[str, Any]) -> bool:
    """Tell whether a golden holds these tensors in this call tree, in the present format.

    Lines of source that moved are no change, nor are versions of libraries, nor is the last digit of a sum: with
    another number of threads it is added up in another order.
    """
    if any(old.extra.get(key) != extra[key] for key in _EXTRA):
        return False
    if vars(_tree(old.trace)) != vars(_tree(trace)):
        return False
    if (old.trace.wide is None) != (trace.wide is None):  # an older version kept none
        return False
    known: dict[tuple[int, int], bool] = {}
    for one, other in zip(old.trace.records(), trace.records(), strict=True):
        key = id(one.held), id(other.held)
        if key not in known:
            known[key] = _is_same_record(one, other)
        if not known[key]:
            return False
    return True


def _tree(trace: Trace) -> Trace:
    """Return a trace without its tensors, and without the lines of source, which may have moved."""
    bare = (call.with_records(lambda record, _: TensorRecord(record.leaf, (), "", None)) for call in trace.calls)
    calls = [replace(call, site=None, inner_site=None, source=None) for call in bare]
    return replace(trace, calls=calls, again=None, wide=None)


def _is_same_record(one: TensorRecord, other: TensorRecord) -> bool:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return False
    if one.digest is not None:
        kept, count = one.digest, one.digest.elements.numel()
        if other.tensor is not None:
            return _is_same_digest(kept, digest_of(other.tensor, count, at=kept.top_places))
        return other.digest is not None and _is_same_digest(kept, other.digest)
    if one.tensor is None or other.tensor is None:
        return one.held is other.held
    return _has_same_bytes(one.tensor, other.tensor)


def _is_same_digest(one: Digest, other: Digest) -> bool:
    return (
        torch.allclose(one.sums.double(), other.sums.double(), rtol=_ROUNDING, atol=_ROUNDING * one.norm)
        and _has_same_bytes(one.elements, other.elements)
        and _has_same_bytes(one.tops, other.tops)
    )


def _has_same_bytes(one: torch.Tensor, other: torch.Tensor) -> bool:
    plain = (each.resolve_conj().resolve_neg().contiguous() for each in (one, other))
    mine, theirs = (each.reshape(-1).view(torch.uint8) for each in plain)
    return bool(mine.equal(theirs.to(mine.device)))

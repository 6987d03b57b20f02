"""What a golden was recorded with, and what another recording of it, or its environment, changes, in words."""

from __future__ import annotations

import json
from functools import cache
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.nn.parameter import is_lazy

from pytest_tfdebug.environment import as_text, environment, git_state
from pytest_tfdebug.errors import TFDebugError, counted, listed
from pytest_tfdebug.parity.compare import compare
from pytest_tfdebug.records import Digest, LeafComparison, TensorRecord, as_they_ended
from pytest_tfdebug.redaction import redacted
from pytest_tfdebug.tensors import dtype_name, readable
from pytest_tfdebug.tracing.file.document import outline
from pytest_tfdebug.tracing.record.wrappers import named_tensors
from pytest_tfdebug.tracing.values.digest import digest_of, summarize

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.tracing.file.codec import TraceFile
    from pytest_tfdebug.tracing.trace import Trace


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


#: 64-bit words in a row of the table whose row and column sums are hashed.
_ROW = 1024
_WORD = 8


@torch.no_grad()
def fingerprint(model: torch.nn.Module) -> dict[str, str]:
    """Return a hash of every parameter and buffer by name, tied ones under each of their names.

    A hash function would read 1 GB a second; here the bytes are summed as 64-bit integers along the rows and the
    columns of a table, at the speed of memory, and the sums are hashed. It tells changed, permuted and cast weights
    apart; it is no defence against someone who wants two models to look alike.
    """
    named = named_tensors(model)
    hashes = {key: hash_of(tensor) for key, tensor in {id(tensor): tensor for _, tensor in named}.items()}
    return {name: hashes[id(tensor)] for name, tensor in named}


def hash_of(tensor: torch.Tensor) -> str:
    """Return the hash of a tensor."""
    shape = [] if tensor.is_nested else list(tensor.shape)
    digest = blake2b(f"{tensor.dtype}{shape}".encode(), digest_size=8)
    values = None if is_lazy(tensor) else readable(tensor)
    if values is None:
        return digest.hexdigest()
    flat = values.detach().contiguous().flatten().view(torch.uint8)
    if flat.storage_offset() % _WORD:
        flat = flat.clone()
    words = flat[: flat.numel() // _WORD * _WORD].view(torch.int64)
    table = words[: words.numel() // _ROW * _ROW].view(-1, _ROW)
    rest = flat[table.numel() * _WORD :]
    for part in (table.sum(0), table.sum(1), rest):
        digest.update(part.cpu().numpy().tobytes())
    return digest.hexdigest()


#: Tensors and parameters that are listed by name; the others are counted.
_NAMED = 3


def changes(old: TraceFile, new: Trace, extra: Mapping[str, Any]) -> Iterator[str]:
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


def described(golden: TraceFile) -> Iterator[str]:
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
#: Fields of a call that hold lines of source, which may have moved.
_PLACES = ("site", "inner_site", "source")


def is_same(old: TraceFile, trace: Trace, extra: Mapping[str, Any]) -> bool:
    """Tell whether a golden holds these tensors in this call tree, in the present format.

    Lines of source that moved are no change, nor are versions of libraries, nor is the last digit of a sum: with
    another number of threads it is added up in another order.
    """
    if any(old.extra.get(key) != extra[key] for key in _EXTRA):
        return False
    if _tree(old.trace) != _tree(trace):
        return False
    known: dict[tuple[int, int], bool] = {}
    for one, other in zip(old.trace.records(), trace.records(), strict=True):
        key = id(one.held), id(other.held)
        if key not in known:
            known[key] = _is_same_record(one, other)
        if not known[key]:
            return False
    return True


def _tree(trace: Trace) -> str:
    """Return the calls of a trace without what may change and without its tensors, as text."""
    document = msgspec.to_builtins(outline(trace))
    calls = [{key: value for key, value in call.items() if key not in _PLACES} for call in document["calls"]]
    return json.dumps({**document, "calls": calls})


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

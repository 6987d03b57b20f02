"""Read and write goldens: what changed is known before anything is written."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from pytest_tfdebug.errors import GoldenError, TFDebugError
from pytest_tfdebug.goldens.fingerprint import fingerprint
from pytest_tfdebug.goldens.provenance import provenance
from pytest_tfdebug.parity.compare import compare
from pytest_tfdebug.records import FORMS
from pytest_tfdebug.tracing.codec import TraceFile, read, write
from pytest_tfdebug.tracing.document import encode
from pytest_tfdebug.tracing.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path


Status = Literal["new", "changed", "unchanged"]
#: Tensors of a changed golden that the summary lists.
_WORST = 3


@dataclass(frozen=True)
class Written:
    """What an update did to one golden.

    Args:
        status: ``new``, ``changed`` or ``unchanged``; an unchanged file is left alone.
        review: What changed, a line each: the worst tensors with their old range and greatest difference.
    """

    status: Status
    review: tuple[str, ...] = ()


def load(path: Path) -> TraceFile:
    """Read a golden.

    Raises:
        GoldenError: If it cannot be read, or holds no tensor.
    """
    golden = read(path, Trace)
    if not any(record.tensor is not None for record in golden.trace.records()):
        raise GoldenError(f"{path} holds no tensor: a check against it would check nothing.")
    for key, kind in (("test", str), ("weights", dict), ("provenance", dict)):
        if not isinstance(golden.extra.get(key), kind):
            raise GoldenError(f"{path} is a trace, not a golden: it does not say {key!r}.")
    return golden


def save(path: Path, trace: Trace, model: torch.nn.Module, test: str) -> Written:
    """Write a golden unless the file holds these very tensors.

    Args:
        path: The golden's file.
        trace: The recorded forward.
        model: The model that ran, for the fingerprint of its weights.
        test: Node id of the test.

    Raises:
        GoldenError: If the trace holds no tensor, or the file cannot be written; the old one is then untouched.
    """
    if not any(record.tensor is not None for record in trace.records()):
        raise GoldenError(f"The forward of {trace.model_class} showed no tensor: there is nothing to record in {path}.")
    extra = {"test": test, "weights": fingerprint(model), "provenance": provenance(model)}
    try:
        old: TraceFile | None = read(path, Trace) if path.exists() else None
        problem = ""
    except GoldenError as error:
        old, problem = None, str(error)
    if old is not None and _is_same(old, trace, extra):
        return Written("unchanged")
    existed = path.exists()
    review = tuple(_review(old.trace, trace)) if old is not None else (problem,) if problem else ()
    old = None  # the old file is mapped into memory: let it go before it is replaced
    write(path, trace, extra, trace.again.values() if trace.again is not None else None)
    return Written("changed" if existed else "new", review)


def _is_same(old: TraceFile, trace: Trace, extra: dict[str, Any]) -> bool:
    """Tell whether a golden holds these tensors in this call tree.

    Lines of source that moved are no change, nor is the last digit of a summary: with another number of threads it is
    added up in another order.
    """
    if any(old.extra.get(key) != extra[key] for key in ("test", "weights")):
        return False
    (old_tensors, old_document), (tensors, document) = encode(old.trace), encode(trace)
    if _tree(old_document) != _tree(document) or old_tensors.keys() != tensors.keys():
        return False
    return all(_same_bytes(old_tensors[name], tensor) for name, tensor in tensors.items())


def _tree(document: dict[str, Any]) -> str:
    places = ("site", "inner_site", "source")
    calls = [
        {key: value for key, value in call.items() if key not in places}
        | {key: call[key] and [leaf[:-1] for leaf in call[key]] for key in ("inputs", "outputs")}
        | {"writes": [(before, leaf[:-1]) for before, leaf in call.get("writes", ())]}
        for call in document["calls"]
    ]
    return json.dumps({**document, "calls": calls}, sort_keys=True)


def _same_bytes(old: torch.Tensor, new: torch.Tensor) -> bool:
    return bool(old.flatten().view(torch.uint8).equal(new.cpu().flatten().view(torch.uint8)))


def _review(old: Trace, new: Trace) -> list[str]:
    """Say which tensors moved most, so that an update can be reviewed by its numbers."""
    try:
        report = compare(old, new, internal="fail")
    except TFDebugError:
        return ["no tensor in common with the old golden"]
    moved = [
        (leaf.metrics.relative_l2, item.call.name, leaf)
        for item in report.calls
        for leaf in item.outputs
        if leaf.metrics is not None
    ]
    moved.sort(key=lambda row: -row[0])
    lines = [
        f"{name} output {leaf.leaf}".rstrip()
        + f": greatest difference {leaf.metrics.max_abs:.3g}, relative L2 {relative_l2:.2e}"
        for relative_l2, name, leaf in moved[:_WORST]
        if leaf.metrics is not None
    ]
    reshaped = [d for d in report.divergences if d.comparison.problem in FORMS]
    lines += [f"{d.path} {d.direction} {d.leaf}: {d.comparison.problem} differs" for d in reshaped[:_WORST]]
    old_names, new_names = {call.name for call in old.calls}, {call.name for call in new.calls}
    lines += (
        [f"{len(old_names - new_names)} calls gone, {len(new_names - old_names)} new"] if old_names != new_names else []
    )
    if not lines:
        lines.append("tensors are equal; weights, test or call sites changed")
    return lines

"""``audit(model, checkpoint)``: did every tensor of a checkpoint arrive, found by numbers, whatever the names."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.data.load import LOST, LoadRow
from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.loading import finding
from pytest_tfdebug.loading.arrivals import Arrivals, numbers_in
from pytest_tfdebug.loading.checkpoint import open_checkpoint
from pytest_tfdebug.loading.held import declared_ties, held_by
from pytest_tfdebug.loading.numbers import is_constant, same_bits
from pytest_tfdebug.loading.result import LoadReport
from pytest_tfdebug.loading.siblings import compare_siblings
from pytest_tfdebug.module_path import holder, last_part

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pytest_tfdebug.loading.checkpoint import Source
    from pytest_tfdebug.loading.held import HeldTensor

#: Seconds after which progress is shown.
_PATIENCE = 5


@torch.no_grad()
def audit(model: torch.nn.Module, checkpoint: Source, *, allow: Sequence[str] = ()) -> LoadReport:
    """Tell what became of every tensor of a checkpoint, and where every tensor of a model is from.

    No reference is needed, and no list of names: tensors are found by their numbers, also where they are renamed,
    transposed, permuted, cast, fused of several or split. Buffers that are not stored are made again from the model's
    configuration. The checkpoint is read one tensor at a time.

    Args:
        model: The model after loading, on any device.
        checkpoint: A directory with ``*.safetensors`` (or ``pytorch_model*.bin``), one such file, or a state dict.
        allow: Regular expressions of names that need not arrive: ``["lm_head"]`` for a model without its head.

    Returns:
        The report; false where something did not arrive.

    Raises:
        TFDebugError: If the checkpoint cannot be read, the model holds no tensor, or a pattern is no regular
            expression.
    """
    if not isinstance(model, torch.nn.Module):
        raise TFDebugError(f"audit takes a torch.nn.Module and a checkpoint, not {type(model).__name__}.")
    patterns = [_compiled(pattern) for pattern in allow]
    opened = open_checkpoint(checkpoint)
    held, unreadable = held_by(model)
    if not held:
        why = "all of them are on the meta device" if unreadable else "it has no parameter and no buffer"
        raise TFDebugError(f"{type(model).__name__} holds no tensor that can be read: {why}.")
    shapes = {name: tuple(opened.tensor(name).shape) for name in opened.names}
    arrivals = Arrivals(opened, {each.name: each for each in held}, shapes)
    finding.by_name(arrivals, _progress)
    finding.buffers(arrivals, model)
    finding.whole(arrivals, _progress)
    finding.constants(arrivals)
    finding.rows(arrivals)
    finding.pieces(arrivals, _progress)
    finding.changed(arrivals, _progress)
    _find_unscaled(arrivals)
    compare_siblings(arrivals)
    rows = [*_of_model(arrivals, dict(declared_ties(model))), *_of_checkpoint(arrivals)]
    rows += [LoadRow(name, "not judged", detail="its values cannot be read here") for name in unreadable]
    rows = [replace(row, allowed=any(pattern.search(row.tensor) for pattern in patterns)) for row in rows]
    rows.sort(key=lambda row: (row.ok, LOST.index(row.verdict) if row.verdict in LOST else 0))
    return LoadReport(type(model).__name__, opened.label, len(opened.names), tuple(rows))


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise TFDebugError(f"allow={pattern!r} is no regular expression: {error}.") from error


def _progress(held: Iterable[HeldTensor], doing: str) -> Iterable[HeldTensor]:
    from tqdm import tqdm

    bar: Iterable[HeldTensor] = tqdm(list(held), doing, unit="tensor", leave=False, delay=_PATIENCE, disable=None)
    return bar


def _find_unscaled(arrivals: Arrivals) -> None:
    """Find quantised numbers that were read, while the scale beside them was not."""
    scales: dict[str, str] = {}
    for name in arrivals.unread:
        if arrivals.checkpoint.tensor(name).is_floating_point():
            scales.setdefault(holder(name), name)
    for name, found in list(arrivals.found.items()):
        if found.verdict == "cast" and arrivals.checkpoint.tensor(found.sources[0]).element_size() == 1:
            scale = scales.get(holder(found.sources[0]))
            if scale is not None:
                told = f"holds the quantised numbers of {found.sources[0]} as they are, without {scale}"
                arrivals.found[name] = replace(found, verdict="not scaled", detail=told)


def _of_model(arrivals: Arrivals, declared: dict[str, str]) -> Iterator[LoadRow]:
    for name, held in arrivals.held.items():
        found = arrivals.found[name]
        yield LoadRow(name, found.verdict, found.sources, found.detail)
        for other in held.names[1:]:
            told = _wrong_tie(arrivals, held, other)
            yield LoadRow(other, "wrongly tied" if told else "tied", (name,), told)
    firsts = {each: held.name for held in arrivals.held.values() for each in held.names}
    for target, source in declared.items():
        pair = [arrivals.held[firsts[name]] for name in (target, source) if name in firsts]
        if len(pair) > 1 and not torch.equal(pair[0].tensor, pair[1].tensor):
            told = f"the model says that it is {source}, and it is another tensor"
            yield LoadRow(target, "wrongly tied", (source,), told)


def _wrong_tie(arrivals: Arrivals, held: HeldTensor, other: str) -> str:
    """Say why two names should not be one tensor: the checkpoint has two."""
    stored = [arrivals.checkpoint.tensor(name) for name in (held.name, other) if name in arrivals.shapes]
    if len(stored) > 1 and not torch.equal(stored[0], stored[1]):
        return "the checkpoint has numbers of its own for each"
    return ""


def _of_checkpoint(arrivals: Arrivals) -> Iterator[LoadRow]:
    """Yield the tensors of the checkpoint that ended up nowhere, or in two places."""
    initial = [name for name, found in arrivals.found.items() if found.verdict == "left at its initial values"]
    for name in arrivals.shapes:
        readers = arrivals.readers.get(name, [])
        if not readers and not _is_there(arrivals, name):
            probably = _only_place(arrivals, name, initial)
            told = f"probably {probably} under another name" if probably else ""
            if probably == name:
                told = "though the model has one of this name"
            yield LoadRow(name, "never read", (), told, "checkpoint")
        whole = [each for each in readers if arrivals.found[each].verdict not in ("fused", "split", "partly filled")]
        differing = [each for each in whole if not is_constant(arrivals.held[each].tensor)]
        if len(differing) > 1 and not _has_twin(arrivals, name):
            yield LoadRow(name, "loaded twice", (), f"in {' and '.join(differing[:3])}", "checkpoint")


def _is_there(arrivals: Arrivals, name: str) -> bool:
    """Tell whether the numbers of a tensor that nothing reads are in the model all the same."""
    stored = arrivals.checkpoint.tensor(name)
    if not stored.numel():
        return True
    owner = next((held for held in arrivals.held.values() if name in held.names), None)
    if owner is not None and owner.tensor.shape == stored.shape:
        return same_bits(owner.tensor, owner.cast(stored))
    if is_constant(stored):
        value = stored.reshape(-1)[0]
        alike = (each for each in arrivals.held.values() if numbers_in(each.name) == numbers_in(name))
        same = (each for each in alike if each.tensor.shape == stored.shape and is_constant(each.tensor))
        return any(bool(each.tensor.reshape(-1)[0] == value) for each in same)
    return _has_twin(arrivals, name)


def _has_twin(arrivals: Arrivals, name: str) -> bool:
    """Tell whether the checkpoint has the same numbers once more, in a tensor that is read."""
    stored = arrivals.checkpoint.tensor(name)
    others = (each for each in arrivals.readers if each != name and arrivals.shapes[each] == tuple(stored.shape))
    return any(
        (other := arrivals.checkpoint.tensor(each)).dtype == stored.dtype and same_bits(other, stored)
        for each in others
    )


def _only_place(arrivals: Arrivals, name: str, initial: Sequence[str]) -> str:
    """Return the tensor of the model that one which was never read belongs to, where there is only one."""
    fits = [
        each
        for each in initial
        if tuple(arrivals.held[each].tensor.shape) == arrivals.shapes[name]
        and last_part(each) == last_part(name)
        and numbers_in(each) == numbers_in(name)
    ]
    return fits[0] if len(fits) == 1 else ""

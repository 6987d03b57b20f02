"""A diff for what is proved: found in the text of the line, and tried by running it on both calls."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.patch.source_edits import Edit, edits_of, statement_at
from pytest_tfdebug.parity.patch.tried_source import outputs_with
from pytest_tfdebug.parity.proof.prove import held_outputs
from pytest_tfdebug.parity.proof.second_call import other_calls
from pytest_tfdebug.values import Fingerprint, distance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch

    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.records import ChangeRecord, Culprit
    from pytest_tfdebug.tracing.values.rerun import Rerun

logger = logging.getLogger(__name__)

#: Edits that are tried: of one fault, of all, and of each of several at first.
_MOST, _MOST_TOGETHER = 160, 240


class _EditPlace(NamedTuple):
    """An edit of a file."""

    file: str
    edit: Edit


class _HeldPort(NamedTuple):
    """A call of the port, and what its outputs are to be."""

    port: Rerun
    wanted: dict[str, torch.Tensor]  # outputs of the reference, by leaf path


def with_patches(culprits: Sequence[Culprit], pair: ForwardPair, port: Rerun, reference: Rerun) -> list[Culprit]:
    """Return culprits with a diff for each, where edits of their lines make every output agree.

    Args:
        culprits: Every fault; there is no diff unless all of them have changes.
        pair: Both forwards.
        port: The port and its inputs.
        reference: The reference and its inputs.

    Returns:
        The culprits. No file is written.
    """
    if not culprits or not all(each.proved and each.changes for each in culprits):
        return list(culprits)
    try:
        found = _found(culprits, pair, port, reference)
    except Exception:  # an explanation that fails must not cost the report on the failure
        logger.debug("the search for a patch failed", exc_info=True)
        found = None
    if found is None:
        return list(culprits)
    return [replace(each, patch=_diff(place)) for each, place in zip(culprits, found, strict=True)]


def _found(
    culprits: Sequence[Culprit], pair: ForwardPair, port: Rerun, reference: Rerun
) -> tuple[_EditPlace, ...] | None:
    """Return an edit for each fault, after which every output agrees on both calls; None where none was found."""
    calls = [_HeldPort(port, reference.outputs())]
    calls += [_HeldPort(own, theirs.outputs()) for own, theirs in other_calls(port, reference)]
    candidates = [list(itertools.islice(_candidates(each), _MOST)) for each in culprits]
    if len(candidates) == 1:
        combined: Iterator[tuple[_EditPlace, ...]] = ((each,) for each in candidates[0])
    else:
        combined = itertools.islice(_likeliest_first(candidates), _MOST_TOGETHER)
    leaves = list(held_outputs(pair))
    return next((places for places in combined if all(_agrees(places, call, leaves) for call in calls)), None)


def _candidates(culprit: Culprit) -> Iterator[_EditPlace]:
    seen = set()
    for change in culprit.changes:
        for file, line in _lines(culprit, change):
            text = _text(file)
            statement = statement_at(text, line) if text else None
            for edit in edits_of(statement, change) if statement is not None else ():
                if (file, edit) not in seen:
                    seen.add((file, edit))
                    yield _EditPlace(file, edit)


def _lines(culprit: Culprit, change: ChangeRecord) -> Iterator[tuple[str, int]]:
    """Yield the lines of the port that a change may be made at."""
    if change.side == "port" and change.file:
        yield change.file, change.line
    if culprit.source is not None:
        yield culprit.source.file, culprit.source.first
    yield from ((each.file, each.first) for each in culprit.callers)


def _likeliest_first(candidates: Sequence[Sequence[_EditPlace]]) -> Iterator[tuple[_EditPlace, ...]]:
    """Yield an edit for each fault in every combination, those that are likely for each first."""
    ranges = [range(len(each)) for each in candidates]
    most = sum(map(len, ranges))
    for total in range(most):
        for places in itertools.product(*(each[: total + 1] for each in ranges)):
            if sum(places) == total:
                yield tuple(some[place] for some, place in zip(candidates, places, strict=True))


def _agrees(
    places: Sequence[_EditPlace], call: _HeldPort, leaves: Sequence[tuple[Sequence[str], Sequence[str], int]]
) -> bool:
    """Tell whether every output of a call agrees after some edits."""
    files = {each.file for each in places}
    if len(files) != 1:  # one file at a time can be put in place
        return False
    file = files.pop()
    outputs = outputs_with(call.port, file, _edited(_text(file), [each.edit for each in places]))
    if outputs is None:
        return False
    for own, other, count in leaves:
        if not ({*own} <= outputs.keys() and {*other} <= call.wanted.keys()):
            return False
        apart = sorted(min(_apart(outputs[each], call.wanted[there]) for there in other) for each in own)
        if not apart[count - 1] <= AGREE:
            return False
    return True


def _apart(one: torch.Tensor, other: torch.Tensor) -> float:
    if one.shape == other.shape:
        norm = float(other.double().norm()) or 1.0
        return float((one.double() - other.double()).norm()) / norm
    return distance(Fingerprint.of(one), Fingerprint.of(other))


def _edited(text: str, edits: Sequence[Edit]) -> str:
    for edit in sorted(edits, reverse=True):
        text = f"{text[: edit.start]}{edit.text}{text[edit.end :]}"
    return text


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _diff(place: _EditPlace) -> str:
    """Return a unified diff of one edit, with the path as seen from the working directory."""
    text, path = _text(place.file), Path(place.file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.relative_to(path.anchor)
    before, after = (each.splitlines(keepends=True) for each in (text, _edited(text, [place.edit])))
    lines = unified_diff(before, after, f"a/{shown.as_posix()}", f"b/{shown.as_posix()}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

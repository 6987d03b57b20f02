"""A diff for what is proved: found in the text of the line, and tried by running it on both calls."""

from __future__ import annotations

import itertools
import logging
from dataclasses import replace
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pytest_tfdebug.parity.patch.source_edits import Edit, edited, edits_of, statement_at
from pytest_tfdebug.parity.patch.tried_source import HeldPort, TriedFile, text_of, tried
from pytest_tfdebug.parity.proof.prove import held_outputs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.patch.tried_source import Leaves
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.records import ChangeRecord

logger = logging.getLogger(__name__)

#: Edits that are tried: of one fault, of all, and of each of several at first.
_MOST, _MOST_TOGETHER = 160, 240


class _EditPlace(NamedTuple):
    """An edit of a file."""

    file: str
    edit: Edit


def with_patches(claims: Sequence[Claim], calls: Sequence[HeldPort]) -> list[Claim]:
    """Return claims with a diff for each, where edits of their lines make every output agree.

    Args:
        claims: Every fault; there is no diff unless all of them have changes.
        calls: The port on its inputs and on others, with what its outputs are to be.

    Returns:
        The claims. No file is written.
    """
    if not claims or not all(each.proved and each.changes for each in claims):
        return list(claims)
    try:
        found = _found(claims, calls)
    except Exception:  # an explanation that fails must not cost the report on the failure
        logger.debug("the search for a patch failed", exc_info=True)
        found = None
    if found is None:
        return list(claims)
    return [replace(each, patch=diff_of(place.file, place.edit)) for each, place in zip(claims, found, strict=True)]


def _found(claims: Sequence[Claim], calls: Sequence[HeldPort]) -> tuple[_EditPlace, ...] | None:
    """Return an edit for each fault, after which every output agrees on both calls; None where none was found."""
    candidates = [list(itertools.islice(_candidates(each), _MOST)) for each in claims]
    if len(candidates) == 1:
        combined: Iterator[tuple[_EditPlace, ...]] = ((each,) for each in candidates[0])
    else:
        combined = itertools.islice(_likeliest_first(candidates), _MOST_TOGETHER)
    files = {place.file: TriedFile(place.file, calls[0].port.model) for each in candidates for place in each}
    with tried(calls):
        return next((places for places in combined if all(_agrees(places, call, files) for call in calls)), None)


def leaves_of(pair: ForwardPair) -> Leaves:
    """Return which outputs are held to which, of those that are leaves on both sides."""
    return tuple(each for each in held_outputs(pair) if len(each[0]) >= each[2] and each[1])


def _candidates(claim: Claim) -> Iterator[_EditPlace]:
    seen = set()
    for change in claim.changes:
        for file, line in _lines(claim, change):
            text = text_of(file)
            statement = statement_at(text, line) if text else None
            for edit in edits_of(statement, change) if statement is not None else ():
                if (file, edit) not in seen:
                    seen.add((file, edit))
                    yield _EditPlace(file, edit)


def _lines(claim: Claim, change: ChangeRecord) -> Iterator[tuple[str, int]]:
    """Yield the lines of the port that a change may be made at."""
    if change.side == "port" and change.file:
        yield change.file, change.line
    if claim.source is not None:
        yield claim.source.file, claim.source.first
    yield from ((each.file, each.first) for each in claim.callers)


def _likeliest_first(candidates: Sequence[Sequence[_EditPlace]]) -> Iterator[tuple[_EditPlace, ...]]:
    """Yield an edit for each fault in every combination, those that are likely for each first."""
    ranges = [range(len(each)) for each in candidates]
    most = sum(map(len, ranges))
    for total in range(most):
        for places in itertools.product(*(each[: total + 1] for each in ranges)):
            if sum(places) == total:
                yield tuple(some[place] for some, place in zip(candidates, places, strict=True))


def _agrees(places: Sequence[_EditPlace], call: HeldPort, files: Mapping[str, TriedFile]) -> bool:
    """Tell whether every output of a call agrees after some edits."""
    paths = {each.file for each in places}
    if len(paths) != 1:  # one file at a time can be put in place
        return False
    return call.agrees(files[paths.pop()], [each.edit for each in places])


def diff_of(file: str, edit: Edit) -> str:
    """Return a unified diff of one edit, with the path as seen from the working directory."""
    text, path = text_of(file), Path(file)
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path.relative_to(path.anchor)
    before, after = (each.splitlines(keepends=True) for each in (text, edited(text, [edit])))
    lines = unified_diff(before, after, f"a/{shown.as_posix()}", f"b/{shown.as_posix()}")
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)

"""Where a port's own source is to be edited: what proofs change gets a diff, and where none does, edits are searched.

Before: a mask is made in one line, laid out in the next and read in the third, and no value of these is the
reference's. After: ``padding[:, None, None, :]`` instead of ``padding[:, None, :, None]``, tried by a run.
"""

from __future__ import annotations

import ast
import logging
from dataclasses import replace
from itertools import takewhile
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.module_path import holders
from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.parity.closeness import AGREE
from pytest_tfdebug.parity.patch.patch import diff_of, leaves_of, with_patches
from pytest_tfdebug.parity.patch.search import SourceSearch
from pytest_tfdebug.parity.patch.tried_source import HeldPort
from pytest_tfdebug.parity.proof.budget import Budget, work_of_forward
from pytest_tfdebug.parity.proof.prove import seconds_of
from pytest_tfdebug.parity.settle import is_certain
from pytest_tfdebug.records import ChangeRecord, SourceRange
from pytest_tfdebug.tracing.values.conversions import Remaker
from pytest_tfdebug.tracing.values.slicing import decisions_near

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import torch

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.patch.search import At, Mending
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.parity.proof.prove import Trial
    from pytest_tfdebug.records import Call
    from pytest_tfdebug.values import Value

logger = logging.getLogger(__name__)

#: As much of an edited expression is told, and of what stands around what is other in a longer one.
_SHOWN, _AROUND = 60, 20


def with_edits(look: Explained, trial: Trial) -> Explained:
    """Return what values say of two forwards with the edits of the port's source that mend it.

    Args:
        look: What values and proofs say.
        trial: What ran in both forwards.
    """
    pair, again = look.pair, trial.again
    if pair is None or again is None or look.claim is None or look.claim.kind == "random" or not seconds_of(trial):
        return look
    try:
        return _with_edits(look, pair, HeldPort.of(*again, leaves_of(pair)), trial)
    except Exception:  # an explanation that fails must not cost the report on the failure
        logger.debug("the search for an edit failed", exc_info=True)
        return look


def _with_edits(look: Explained, pair: ForwardPair, calls: Sequence[HeldPort], trial: Trial) -> Explained:
    faults = look.faults
    if faults is not None and look.mended is not None:
        told = tuple(with_patches(faults.claims, calls))
        patches = {each.changes: each.patch for each in told}
        proofs = tuple(replace(each, patch=patches.get(each.changes, "")) for each in look.proofs)
        look = replace(look, faults=faults._replace(claims=told), proofs=proofs)
        if all(each.patch for each in told):
            return look
        return _with_search(look, pair, calls, trial)
    proofs = tuple(each for proof in look.proofs for each in with_patches([proof], calls))
    look = replace(look, proofs=proofs)
    if proofs and proofs[0].patch and is_certain(proofs[0]) and not _decisions_on(proofs[0]):
        return look
    return _with_search(look, pair, calls, trial)


def _decisions_on(proof: Claim) -> list[At]:
    """Return the conditions near a step that the port lacks: it may have the step in a branch that it did not take."""
    at = proof.source if proof.lacks_step else None
    return [] if at is None else [(at.file, line) for line in decisions_near(at.file, at.first)]


def _decides_on(edit: Claim, proof: Claim) -> bool:
    return edit.source is not None and (edit.source.file, edit.source.first) in _decisions_on(proof)


def _with_search(look: Explained, pair: ForwardPair, calls: Sequence[HeldPort], trial: Trial) -> Explained:
    try:
        claims = tuple(_searched(look, pair, calls, trial))
    except Exception:  # nor must it cost the diffs
        logger.debug("the search for an edit failed", exc_info=True)
        return look
    if not claims:
        return look
    # what decides on a step that the port lacks goes before the step
    tried = [each for each in look.proofs if not _decides_on(claims[0], each)]
    proofs = tuple(_with_proof_of_line(each, tried) for each in claims)
    left = (each for each in tried if not any(_is_of_line(each, claim) or _changes(each, claim) for claim in claims))
    return replace(look, proofs=(*proofs, *left), search="proved", search_note="", faults=None)


def _with_proof_of_line(edit: Claim, proofs: Iterable[Claim]) -> Claim:
    """Return a claim on an edit; if a proof changes what its line computes, as that with the diff: it says more."""
    proof = next((each for each in proofs if _is_of_line(each, edit)), None)
    if proof is None:  # where that is of the reference, its place in the port is inferred
        proof = next((each for each in proofs if each.lacks_step or _changes(each, edit)), None)
        return edit if proof is None else replace(edit, **_told_by(proof))
    evidence = proof.evidence if edit.evidence is Evidence.EDIT_OF_MANY and is_certain(proof) else edit.evidence
    return replace(proof, patch=edit.patch, evidence=evidence)


def _told_by(proof: Claim) -> dict[str, Any]:
    return {"proved": proof.proved, "changes": proof.changes, "reference": proof.reference, "wrong": proof.wrong}


def _is_of_line(proof: Claim, edit: Claim) -> bool:
    lines = edit.source
    return lines is not None and proof.source is not None and proof.source.holds(lines.file, lines.first)


def _changes(proof: Claim, edit: Claim) -> bool:
    """Tell whether a proof changes a line of an edit, and names another one for it."""
    lines = edit.source
    return lines is not None and any(lines.holds(each.file, each.line) for each in proof.changes)


def _searched(look: Explained, pair: ForwardPair, calls: Sequence[HeldPort], trial: Trial) -> Iterator[Claim]:
    """Yield whom edits of the port's source name that mend it: one for each statement, the likeliest first."""
    if trial.again is None or not all(each.is_cpu for each in trial.again[0].model.parameters()):
        return  # an index out of range would end all that runs on an accelerator
    of_weights = [claim for claim in look.claims if claim.kind == "weights"]
    told = {claim.evidence for claim in look.proofs}
    if Evidence.EXCHANGE in told or (of_weights and Remaker.of(trial.again[0].model) is None):
        return  # code that takes one weight for the other makes up for what loads it so, and the other way round
    work, table = work_of_forward(trial.port.tape), pair.reference.table
    names = {name for claim in of_weights for name in claim.weights}
    taken = frozenset(_taken(names, pair)) if of_weights else None
    search = SourceSearch(*trial.again, calls, table, work, taken=taken)
    searched = search.run(_near(look, pair, trial.again[0].model), Budget(seconds_of(trial)))
    is_turned = Evidence.ORDER_OF_WEIGHT in told  # and so does code that takes its elements otherwise
    for place, each in enumerate(each for each in searched.found if each.is_making or not is_turned):
        is_blind = trial.is_part and each.edit.kind == "left out"  # a mask, where it hides nothing
        evidence = Evidence.EDIT if searched.is_sure and not (place or is_blind) else Evidence.EDIT_OF_MANY
        yield _claim(each, look, pair, Evidence.MAKES_UP if search.makes_up(each) else evidence)


def _taken(names: Iterable[str], pair: ForwardPair) -> Iterator[At]:
    """Yield the lines that take some parameters, and what these give before another parameter is joined with it."""
    port = pair.port
    todo, seen = [index for name in names for index in port.values_of(name)], set[int]()
    while todo:
        index = todo.pop()
        for user in port.users.get(index, ()):
            is_new = user not in seen and set(filter(None, port.parameters_of(port.values[user]))) <= {*names}
            if is_new:
                seen.add(user)
                todo.append(user)
                yield from _lines(port.values[user])


def _claim(mending: Mending, look: Explained, pair: ForwardPair, evidence: Evidence) -> Claim:
    named, lines = look.claim, _lines_of(mending)
    assert named is not None  # noqa: S101 - who searches has it
    old, new = _texts(mending)
    at = f"{PurePath(mending.file).name}:{lines.first}"
    also = ", also on inputs that were not searched" if mending.holds else ""
    call = _call_at(lines, pair)
    of_weights = next((claim for claim in look.claims if claim.kind == "weights" and mending.is_making), None)
    kept = of_weights
    if kept is None:
        does = "is made otherwise" if call is None else "does something else"
        kept = replace(named, kind="module", weights=(), wrong=f"{does} here than the reference", why="")
        if call is not None:
            kept = replace(kept, path=call.path, class_name=call.class_name)
    return replace(
        kept,
        evidence=evidence,
        source=lines,
        callers=(),
        is_of_both=False,
        lacks_step=False,
        function=mending.statement.function.name if mending.statement.function is not None else "",
        proved=f"with `{new}` instead of `{old}` at {at} every output agrees{also}",
        changes=(ChangeRecord("port", mending.file, lines.first, mending.edit.kind, old, new),),
        patch=diff_of(mending.file, mending.edit.edit),
        narrows=named,
    )


def _lines_of(mending: Mending) -> SourceRange:
    edit, (file, first) = mending.edit.edit, mending.at
    return SourceRange(file, first, first + mending.statement.text.count("\n", edit.start, edit.end))


def _texts(mending: Mending) -> tuple[str, str]:
    """Return what stood there, and what is written instead: with what stands around it, if that is short."""
    edit, statement = mending.edit.edit, mending.statement
    start, end = edit.start, edit.end
    for node in statement.expressions:
        first, last = statement.span(node)
        is_around = first <= edit.start and edit.end <= last and (first, last) != (edit.start, edit.end)
        if is_around and isinstance(node, (ast.Call, ast.Subscript)) and last - first <= _SHOWN:
            start, end = first, last
    text = statement.text
    old, new = text[start:end], f"{text[start : edit.start]}{edit.text}{text[edit.end : end]}"
    if new.startswith("(") and new.endswith(")") and new.count("(") == 1:
        new = new[1:-1]
    return _short(old, new)


def _short(old: str, new: str) -> tuple[str, str]:
    """Return two texts of one line each; of long ones what stands around their difference."""
    old, new = (" ".join(text.split()) for text in (old, new))
    if max(len(old), len(new)) <= _SHOWN:
        return old, new
    same, behind = _alike(old, new), _alike(old[::-1], new[::-1])
    first, last = max(0, same - _AROUND), max(0, min(behind, len(old) - same, len(new) - same) - _AROUND)
    cut = (text[first : len(text) - last] for text in (old, new))
    before, after = "..." if first else "", "..." if last else ""
    old, new = (f"{before}{text}{after}" for text in cut)
    return _cut(old), _cut(new)


def _alike(one: str, other: str) -> int:
    """Return with how many characters alike two texts begin."""
    return sum(1 for _ in takewhile(lambda both: both[0] == both[1], zip(one, other, strict=False)))


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."


def _call_at(lines: SourceRange, pair: ForwardPair) -> Call | None:
    """Return the first call of the port whose own lines computed something there; None for what ran before."""
    port = pair.port
    for value in port.values:
        for depth, line in enumerate(value.lines):
            if lines.holds(line.file, line.line):
                call = port.call_of(value)
                for _ in range(depth):
                    call = call if call.parent is None else port.calls[call.parent]
                return call
    return None


def _near(look: Explained, pair: ForwardPair, model: torch.nn.Module) -> dict[At, int]:
    """Return how far lines of the port are from what is wrong.

    -1 for where that is named, 0 for where it is computed or made, and for the conditions that decide on it, 1 for what
    led to it and is not the reference's, and for the functions around all that, 2 for all else that led to it, and for
    masks and tables; 1 and 2 for the constructors of its module and of those around that.
    """
    found: dict[At, int] = {}

    def note(lines: Iterable[At], distance: int) -> None:
        for at in lines:
            found[at] = min(found.get(at, distance), distance)

    port, matches = pair.port, pair.matches
    wrong = {value.index for value in look.finding.values} if look.finding is not None else set()
    before = wrong.union(*(port.ancestors(index) for index in wrong))
    for index in before:
        note(_lines(port.values[index]), 0 if index in wrong else 1 if matches.distance(index) > AGREE else 2)
        note(_made(port.parameter(index), pair), 2)
    for value in port.values:
        if value.operator and not value.is_moved and not port.weighted[value.index]:
            note(_lines(value), 2)  # a mask or a table, wherever that is used
    for claim in look.claims:
        for lines in filter(None, (claim.source, *claim.callers)):
            note(((lines.file, row) for row in range(lines.first, lines.last + 1)), -1)
            note(((lines.file, row) for row in decisions_near(lines.file, lines.first)), 0)
        note(((each.file, each.line) for each in claim.changes), 0)
        for name in claim.weights:
            note(_made(name, pair), 0)
        is_given = claim.evidence is Evidence.HANDED_ON  # to the module, by what made it
        for depth, path in enumerate((claim.path, *holders(claim.path))):
            note(_constructor(model, path), max(0, depth - 1) if is_given else min(depth + 1, 2))
    return found


def _constructor(model: torch.nn.Module, path: str) -> Iterator[At]:
    """Yield the lines of the constructor of a module."""
    try:
        code = type(model.get_submodule(path)).__init__.__code__
    except AttributeError:  # a path of calls, or a class without one of its own
        return
    yield from ((code.co_filename, line) for _, _, line in code.co_lines() if line is not None)


def _lines(value: Value) -> Iterator[At]:
    return ((line.file, line.line) for line in value.lines)


def _made(name: str, pair: ForwardPair) -> Iterator[At]:
    """Yield the lines by which a parameter got its numbers."""
    steps = pair.port.table.conversions.get(name, ()) if name and pair.port.table.conversions else ()
    return ((line.file, line.line) for step in steps for line in step.lines)

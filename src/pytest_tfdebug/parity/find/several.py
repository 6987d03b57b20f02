"""Every fault of a port as the records that a report shows."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.parity.find.blame_values import find_fault
from pytest_tfdebug.parity.find.counterparts import Finding
from pytest_tfdebug.parity.find.edited import with_edits
from pytest_tfdebug.parity.find.proof import told_by, with_proof
from pytest_tfdebug.parity.find.unknown_weights import told_with_unknown_weights
from pytest_tfdebug.parity.find.values import Explained, Faults, claim_of, line_of, lines_of
from pytest_tfdebug.parity.proof.prove import seconds_of
from pytest_tfdebug.parity.proof.several import find_fronts
from pytest_tfdebug.parity.settle import settled

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.parity.proof.prove import Proof, Searched, Trial
    from pytest_tfdebug.parity.proof.several import Front, Fronts
    from pytest_tfdebug.records import Culprit, SourceRange

logger = logging.getLogger(__name__)

_AGREES = " every output agrees"
_PAST = "No single change mends it; what is behind was looked at with the reference's value of"


def faults_beside(faults: Faults, first: Culprit) -> tuple[Culprit, ...]:
    """Return the faults but for the first one, which may be known from other evidence: by its lines."""
    found = [settled(claim) for claim in faults.claims]
    same = next((each for each in found if each.source == first.source), None)
    return tuple(each for each in found if each is not same)


def with_faults(look: Explained, trial: Trial) -> Explained:
    """Return what values say of two forwards with a proof, or with every fault where there are several.

    Where the reference's values do not all agree behind the first fault, and no change of one place soon makes all
    outputs agree, every fault is looked for.
    """
    return with_edits(_with_faults(replace(look, again=trial.again), trial), trial)


def _with_faults(look: Explained, trial: Trial) -> Explained:
    faults, searched = _several(look, trial)
    if faults.mended is not None and len(faults.claims) > 1:
        return replace(_led_by(faults, look), search="proved", mended=faults.mended)
    found = with_proof(look, trial, searched)
    if found.claim and found.finding and found.pair and not found.proofs:
        found = replace(found, claim=told_with_unknown_weights(found.claim, found.finding, found.pair))
    is_proved = found.seen is None or found.seen.proved
    return found if is_proved or not faults.claims else _led_by(faults, found)


def _led_by(faults: Faults, look: Explained) -> Explained:
    """Return what values say with every fault, and the first as the culprit where a change mends it.

    If what values say names its lines, the change that mends it together with others is what mends that.
    """
    first, claim, found = faults.claims[0], look.claim, replace(look, faults=faults)
    if not first.proved and claim is not None and (claim.source == first.source or not first.changes):
        return replace(found, claim=replace(claim, changes=first.changes))
    return replace(found, proofs=(replace(first, narrows=claim),))


def _several(look: Explained, trial: Trial) -> tuple[Faults, Searched | None]:
    """Return every fault of a port whose reference can be run, and how the search for one change ended.

    No fault where one value of the reference makes all outputs agree, or one change does; None where none was searched
    for.
    """
    pair, claim = look.pair, look.claim
    if pair is None or claim is None or claim.kind == "random" or not seconds_of(trial):
        return Faults(), None
    if not trial.reference.tape.steps:
        return Faults(), None
    try:
        fronts = find_fronts(pair.port.table, pair.reference.table, trial)
        return faults_of(fronts), fronts.one
    except Exception:  # an explanation that fails must not cost the report on the failure
        logger.debug("the search for every fault failed", exc_info=True)
        return Faults(), None


def faults_of(fronts: Fronts) -> Faults:
    """Return the faults that a search went past, each with its line and what mends it."""
    found: dict[Hashable, Claim] = {}
    for claim in filter(None, map(_shown, fronts.found)):
        found.setdefault(_in_every_layer(claim), claim)
    past = [claim for claim in found.values() if not claim.proved]
    claims = list(_once_for_each_place(found.values()))
    # else what mends one was tried with values of the reference behind it
    is_proved = fronts.is_mended or (fronts.end == "agrees" and not past)
    told = tuple(replace(each, proved=_together(each, len(claims) - 1) if is_proved else "") for each in claims)
    return Faults(told, _summary(fronts, len(told), past), fronts.mended)


def _once_for_each_place(claims: Iterable[Claim]) -> Iterator[Claim]:
    """Yield claims; where changes mend lines in some layers, what nothing mends there in others is no other fault."""
    by_place: dict[str, list[Claim]] = {}
    for claim in claims:
        by_place.setdefault(_place(claim), []).append(claim)
    for alike in by_place.values():
        yield from [claim for claim in alike if claim.proved] or alike


def _in_every_layer(claim: Claim) -> Hashable:
    """Return what a fault is in every layer: its lines, and what mends it.

    What nothing mends is told once for its lines: in the first layer a step is another one there, in the last it is
    one too many.
    """
    return _place(claim), claim.wrong if claim.proved else "", tuple((each.old, each.new) for each in claim.changes)


def _place(claim: Claim) -> str:
    return claim.path if claim.source is None else str(claim.source)


def _shown(front: Front) -> Claim | None:
    """Return who is to blame at a fault, and what mends it."""
    past, pair = front.past, front.pair
    finding = _of_table(front) if front.is_of_table else None
    finding = finding or _of_values(front)
    if finding is None or (front.is_second and finding.fault == "left-out"):
        return None  # where a step is lacking, the one before may have got it
    named = replace(claim_of(finding, pair), evidence=Evidence.LED_PAST)
    if front.proof is not None:
        if named.kind == "weights" and not _comes_of(front.proof, named.weights, pair):
            named = replace(named, kind="module", weights=())  # another fault, of the same module
        claim = told_by(front.proof, Explained(named, is_known=True, compared=0, expected=0, pair=pair)).seen
        return None if claim is None else replace(claim, evidence=Evidence.ONE_OF_SEVERAL)
    named = told_with_unknown_weights(named, finding, pair)
    if past is None:
        return named
    value = pair.reference.values[past.other]
    line = line_of(pair.reference, value, pair.reference.call_of(value))
    at = None if line is None else lines_of(line)
    why = f"{_PAST} {_name(at)}." if at is not None else ""
    return replace(named, reference=named.reference or at, why=f"{named.why} {why}".strip())


def _comes_of(proof: Proof, weights: Collection[str], pair: ForwardPair) -> bool:
    """Tell whether what a change of the port mends comes of some parameters; other numbers in them are no step."""
    outs = [out for place in proof.mends[0].places for out in proof.forward.outs_of(place)]
    if proof.is_reverse or not outs:
        return True
    return any(pair.port.parameter(each) in weights for out in outs for each in (out, *pair.port.ancestors(out)))


def _of_values(front: Front) -> Finding | None:
    """Return where the forwards part."""
    pairs, past = front.pairs, front.past
    if front.is_beside and past is not None:
        return find_fault(front.pair, [past.own], [past.other])
    differing = pairs.apart or pairs.agreeing or pairs.leftover
    return find_fault(
        front.pair,
        [mine for mine, _ in differing if mine is not None],
        [theirs for _, theirs in differing if theirs is not None],
    )


def _of_table(front: Front) -> Finding | None:
    """Return where a value is made that is right elsewhere, and wrong for this use: a table."""
    past, pair = front.past, front.pair
    if past is None:
        return None
    own, other = pair.port.values[past.own], pair.reference.values[past.other]
    return Finding("replaced", pair.port.call_of(own), [own], other, pair.reference.call_of(other))


def _together(claim: Claim, others: int) -> str:
    """Return what mends one of several faults: with all others mended every output agrees."""
    if not others:
        return claim.proved
    return f"{claim.proved.removesuffix(_AGREES)}, and with {counted(others, 'other change')}{_AGREES}"


def _summary(fronts: Fronts, count: int, past: list[Claim]) -> str:
    if fronts.is_mended:
        told = f"after {f'these {count} changes' if count > 1 else 'this change'} every output agrees"
        if fronts.holds is None:
            return told
        return f"{told}, {'also' if fronts.holds else 'but not'} on inputs that were not searched"
    if fronts.end == "agrees":
        return f"with the reference's values after {listed(list(_places(past)))} every output agrees"
    if fronts.end == "given":
        return "what is behind the last of them was not looked into"
    if fronts.end == "cut":
        return "the search was cut there: a larger tf_explain_seconds goes on"
    return "nothing was found that mends or leads past the last of them"


def _places(claims: list[Claim]) -> Iterator[str]:
    yield from dict.fromkeys(_name(each.source) if each.source is not None else each.path for each in claims)


def _name(lines: SourceRange) -> str:
    return f"{PurePath(lines.file).name}:{lines.first}"

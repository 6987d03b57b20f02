"""Who is to blame: the one place that decides between claims, and that says whether a culprit is certain, and why.

Two tables are the policy. :data:`POLICY` says what each kind of evidence is worth: of two claims that contradict each
other the one whose evidence stands further up is believed. :data:`MEETINGS` says what becomes of a claim where a change
was tried that mends every output: a proof may speak for the same module, for another one, or for what a call was given.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_tfdebug.parity.claims import IN_PORT, Claim, Evidence
from pytest_tfdebug.records import Culprit
from pytest_tfdebug.tracing.values.slicing import is_statement

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


class Worth(NamedTuple):
    """What evidence is worth."""

    evidence: Evidence
    is_certain: bool
    why: str  # why it is certain, or is not


CERTAIN, UNSURE = True, False

#: What each evidence is worth; what stands further up is believed against what stands below.
POLICY = (
    Worth(Evidence.RAISED, CERTAIN, "the error came from this line"),
    Worth(Evidence.INPUTS, CERTAIN, "with other inputs nothing below can be blamed"),
    Worth(Evidence.DTYPE, CERTAIN, "in another dtype no module can be held to the reference"),
    Worth(Evidence.MODE, CERTAIN, "it was run in the mode of the reference, and gave something else"),
    Worth(Evidence.AUTOCAST, CERTAIN, "it was run without autocast, and every output agrees"),
    Worth(Evidence.COMPILER, CERTAIN, "it was run uncompiled, and every output agrees"),
    Worth(Evidence.SHARED, CERTAIN, "the modules were run as one, and every output agrees"),
    Worth(Evidence.SHARED_HERE, UNSURE, "the port has no weights for the second module, so it was not run with two"),
    Worth(Evidence.MADE_WITH, CERTAIN, "the modules were made with the argument, and every output agrees"),
    Worth(Evidence.MADE_OF, UNSURE, "the modules were made with the argument; what chooses it may be another line"),
    Worth(Evidence.LAYERS, CERTAIN, "the layers were run in the reference's pattern, and every output agrees"),
    Worth(Evidence.ARGUMENT, CERTAIN, "the argument was given, and every output agrees"),
    Worth(Evidence.WEIGHT, CERTAIN, "the parameter was compared with the reference's of the same name"),
    Worth(Evidence.CALL, CERTAIN, "all that was computed before the call agrees"),
    Worth(
        Evidence.EDIT,
        CERTAIN,
        "the line was written otherwise and run: every output agrees, and no other edit is as near",
    ),
    Worth(Evidence.PROOF, CERTAIN, "the change was tried: every output agrees, and no change elsewhere does this"),
    Worth(
        Evidence.REVERSE_PROOF, CERTAIN, "the change was tried: with it the reference gives every output of the port"
    ),
    Worth(Evidence.PROVED_WEIGHT, CERTAIN, "the numbers were tried: every output agrees with them"),
    Worth(Evidence.NEAR_WEIGHTS, CERTAIN, "the numbers were tried: every output agrees with them"),
    Worth(Evidence.PROVED_TABLE, CERTAIN, "the reference's numbers were tried: every output agrees with them"),
    Worth(Evidence.STATEMENT, CERTAIN, "calls agree on both sides of it, and all the other text is the reference's"),
    Worth(Evidence.ATTRIBUTE, CERTAIN, "calls agree on both sides of it, and all else that it reads is the same"),
    Worth(Evidence.CALLS, CERTAIN, "what the module was given and what it returned were both compared"),
    Worth(
        Evidence.EDIT_OF_MANY,
        UNSURE,
        "the line was written otherwise and run; edits of other lines may mend every output, too",
    ),
    Worth(Evidence.INFERRED_PROOF, UNSURE, "the change is of the reference, and its place in the port is inferred"),
    Worth(Evidence.HANDED_ON, UNSURE, "the number is none of this line, and what gave it is not known"),
    Worth(Evidence.PROOF_OF_MANY, UNSURE, "changes of other places mend every output as well"),
    Worth(Evidence.PROOF_OR_GIVEN, UNSURE, "a change of what it is given mends every output as well"),
    Worth(
        Evidence.THESE_INPUTS, UNSURE, "the change does not mend the outputs of other inputs, where it was tried too"
    ),
    Worth(Evidence.ONE_OF_SEVERAL, UNSURE, "the change was tried among others, and may make up for another line"),
    Worth(Evidence.LED_PAST, UNSURE, "no change was found that mends it: the line is wrong, or what it takes is"),
    Worth(Evidence.MAKES_UP, UNSURE, "what was changed is right: it makes up for what is wrong elsewhere"),
    Worth(Evidence.PROVED_WEIGHTS, UNSURE, "changes of other places mend every output as well"),
    Worth(Evidence.EXCHANGE, UNSURE, "either the weights were loaded so, or the code takes one for the other"),
    Worth(Evidence.ORDER_OF_WEIGHT, UNSURE, "either the weight was loaded so, or the code takes its elements so"),
    Worth(Evidence.STATEMENTS, UNSURE, "other statements differ too, or this one computes what the reference does"),
    Worth(Evidence.ATTRIBUTES, UNSURE, "several attributes differ, and each may be the one"),
    Worth(Evidence.NAMED_WEIGHT, UNSURE, "the parameter may be computed from some of the reference's"),
    Worth(Evidence.LINE_OF_VALUE, UNSURE, "the line computes the first wrong value, and may be given a wrong one"),
    Worth(Evidence.ROUNDED_CALLS, UNSURE, "the difference is within rounding, so it may have come in with the inputs"),
    Worth(Evidence.ROUNDS, CERTAIN, "what each module of both rounds by itself was measured"),
    Worth(Evidence.ROUNDS_MOST, UNSURE, "what the reference's modules round is not known, or not less"),
    Worth(Evidence.UNPAIRED_CALLS, UNSURE, "the fault may lie in the calls that were not compared"),
    Worth(Evidence.RANDOM, CERTAIN, "a value that is drawn at random is another in every forward"),
    Worth(Evidence.WEIGHT_OF_VALUE, CERTAIN, "the parameters of this name in the other layers are the reference's"),
    Worth(Evidence.NO_NUMBERS, CERTAIN, "the reference's numbers were tried: every output agrees with them"),
    Worth(Evidence.ODD_WEIGHT, UNSURE, "the parameter may be computed from some of the reference's"),
    Worth(Evidence.VALUE, UNSURE, "nothing was tried: the line is wrong, or what it takes is"),
    Worth(Evidence.OTHER_CALL, CERTAIN, "all that was computed before the call agrees"),
    Worth(Evidence.STEP, UNSURE, "nothing was tried: the step may be done elsewhere, in another way"),
    Worth(Evidence.FOUND_CALLS, UNSURE, "modules were paired by what they hold and return, and may be others"),
    Worth(Evidence.FAINT_VALUE, UNSURE, "nothing was tried, and what came before may have grown to that"),
    Worth(Evidence.UNREADABLE, UNSURE, "no tensor of the output was compared"),
    Worth(Evidence.UNNAMED_CALLS, UNSURE, "names that do not pair tell little"),
    Worth(Evidence.GRADIENT_PROOF, CERTAIN, "the change was tried: every gradient agrees"),
    Worth(
        Evidence.SEEN_IN_BACKWARD,
        CERTAIN,
        "all that follows in the forward agrees, and the graph shows what is missing",
    ),
    Worth(Evidence.GRADIENT, UNSURE, "nothing was tried: the line is wrong, or what it sends back is given wrong"),
    Worth(Evidence.STEP_PROOF, CERTAIN, "the rule was made again with that change: it gives the port's steps"),
    Worth(Evidence.TRAINING, CERTAIN, "both trainings were compared step by step, and all before it agrees"),
    Worth(Evidence.LATER_STEP, UNSURE, "later steps drift by rounding, and no change that was tried explains it"),
    # a step may be made of as many backwards as one likes: which of them is wrong is not known
    Worth(Evidence.BACKWARDS, UNSURE, "their sum differs, and what each of them should add is not known"),
    Worth(Evidence.LOSS, UNSURE, "the first line whose value differs is not known"),
    Worth(Evidence.NOT_FINITE, CERTAIN, "its values were read as it computed them"),
    Worth(Evidence.HEADROOM, CERTAIN, "its values were read as it computed them"),
    Worth(Evidence.NOT_COMPARED, CERTAIN, "the check cannot pass before that output is compared"),
    Worth(Evidence.FIRST_STEP, CERTAIN, "both calls were compared, and the steps of the module one by one"),
    Worth(Evidence.FIRST_OF_CALLS, UNSURE, "the fault may lie in the calls that were not compared"),
    Worth(Evidence.MASK, UNSURE, "its mask was read, and no other was tried"),
    Worth(Evidence.WRITTEN, CERTAIN, "the inputs were read again after each call"),
    Worth(Evidence.NO_ARRAY, UNSURE, "no array lies between these lines and the last one that was found"),
)
_WORTH = {worth.evidence: (place, worth) for place, worth in enumerate(POLICY)}

#: Nothing below can be blamed where a model was given other inputs, or computes in another dtype.
FINAL = ("inputs", "dtype")
#: What is wrong in these ways is plain without a line.
_CALLS = ("not-called", "extra-call")
_PLAIN = (*_CALLS, "weights")


def settle(claims: Iterable[Claim]) -> list[Culprit]:
    """Return who is to blame, the likeliest first: one culprit for each place.

    Of a claim and another that narrows it to a line, the latter counts. Claims of changes that were tried meet the best
    of the others by :data:`MEETINGS`; what is left goes by :data:`POLICY`.
    """
    heard = list(claims)
    narrowed = {id(claim.narrows) for claim in heard}
    heard = sorted((claim for claim in heard if id(claim) not in narrowed), key=_rank)
    changes = [claim for claim in heard if claim.proved]
    named = next((claim for claim in heard if not claim.proved), None)
    found = [_culprit(claim) for claim in heard]
    if named is not None and changes:
        meeting = next(each for each in MEETINGS if each.applies(named, changes))
        found.insert(0, meeting.outcome(named, changes))
    by_place: dict[object, Culprit] = {}
    for each in found:
        by_place.setdefault((each.path, each.kind, each.source), each)
    return [*by_place.values()]


def settled(claim: Claim) -> Culprit:
    """Return who is to blame where one claim is all there is."""
    return _culprit(claim)


def conditional(culprit: Culprit, condition: str) -> Culprit:
    """Return a culprit whose proof holds under a condition, in words that follow on it."""
    return replace(culprit, proved=f"{condition}, and {culprit.proved}") if culprit.proved else culprit


def is_certain(claim: Claim) -> bool:
    """Tell whether a claim's evidence alone makes it certain."""
    return _worth(claim).is_certain


def _worth(claim: Claim) -> Worth:
    return _WORTH[claim.evidence][1]


def _rank(claim: Claim) -> int:
    return _WORTH[claim.evidence][0]


_OF_BOTH = {each.name for each in fields(Culprit)} & {each.name for each in fields(Claim)}


def _culprit(claim: Claim, *, certain: bool | None = None, why: str = "", **other: Any) -> Culprit:  # noqa: ANN401
    """Return a claim as a culprit; ``certain`` and ``why`` where a meeting says more than its evidence."""
    worth = _worth(claim)
    given: dict[str, Any] = {name: getattr(claim, name) for name in _OF_BOTH}
    return Culprit(
        **{
            **given,
            "certain": worth.is_certain if certain is None else certain,
            "why_certain": why or worth.why,
            **other,
        }
    )


class Meeting(NamedTuple):
    """What becomes of a claim that meets proofs: claims of changes that mend every output, the best first."""

    why: str
    applies: Callable[[Claim, Sequence[Claim]], bool]
    outcome: Callable[[Claim, Sequence[Claim]], Culprit]


def _mend(proof: Claim) -> dict[str, Any]:
    return {"proved": proof.proved, "changes": proof.changes, "patch": proof.patch}


def _believed(claim: Claim, _proofs: Sequence[Claim]) -> Culprit:
    return _culprit(claim)


def _proof_believed(_claim: Claim, proofs: Sequence[Claim]) -> Culprit:
    return _culprit(proofs[0])


def _proof_there(claim: Claim, proofs: Sequence[Claim]) -> Culprit:
    """Return what a proof says: of several places that mend it, the one in the module that calls name."""
    return _culprit(next((each for each in proofs if each.path == claim.path), proofs[0]))


def _with_change(claim: Claim, proofs: Sequence[Claim]) -> Culprit:
    """Return what a claim says, and the change that mends it."""
    return _culprit(claim, **_mend(proofs[0]), reference=proofs[0].reference or claim.reference)


def _doubted(claim: Claim, proofs: Sequence[Claim]) -> Culprit:
    """Return likewise, as no longer certain."""
    why = "a change elsewhere mends every output too, and what agrees around these lines says nothing of each of them"
    reference = proofs[0].reference or claim.reference
    return _culprit(claim, **_mend(proofs[0]), reference=reference, certain=False, why=why)


def _joined(claim: Claim, proofs: Sequence[Claim]) -> Culprit:
    """Return what a claim says, on the line of a proof in the same module; a statement that it has found stays.

    It is certain by the proof or by the text, or if calls name the module that the proof names. Calls compare what it
    is given and returns, the proof what comes of a change, and neither is inferred from the other.
    """
    proof = next(each for each in proofs if each.path == claim.path)
    is_text = claim.source is not None and (is_statement(claim.source) or _is_told_by_text(claim, proof))
    is_text = is_text and str(proof.source) not in map(str, claim.callers)  # which chose what the function was given
    worths = [_worth(proof), *([_worth(claim)] if is_text else [])]
    if proof.evidence in _HOLDING and _named_by_calls(claim):
        worths.append(Worth(proof.evidence, CERTAIN, "calls name the module too, and the change was tried"))
    best = next((worth for worth in worths if worth.is_certain), worths[0])
    return _culprit(
        claim,
        source=claim.source if is_text else proof.source or claim.source,
        reference=(claim.reference or proof.reference) if is_text else (proof.reference or claim.reference),
        certain=best.is_certain,
        why=best.why,
        **_mend(proof),
    )


def _is_told_by_text(claim: Claim, proof: Claim) -> bool:
    """Tell whether texts name lines, of several statements, in which the proof's are not."""
    at, own = proof.source, claim.source
    is_within = own is not None and at is not None and own.holds(at.file, at.first)
    return claim.evidence in (Evidence.STATEMENT, Evidence.ATTRIBUTE) and not is_within


#: Proofs of which the place alone is open: a change that was tried mends every output.
_HOLDING = (Evidence.INFERRED_PROOF, Evidence.PROOF_OF_MANY)


def _named_by_calls(claim: Claim) -> bool:
    return Evidence.CALLS in (claim.evidence, claim.narrows.evidence if claim.narrows is not None else None)


def _is_final(claim: Claim, _proofs: Sequence[Claim]) -> bool:
    return claim.kind in FINAL


def _is_of_found_names(claim: Claim, _proofs: Sequence[Claim]) -> bool:
    return claim.evidence is Evidence.FOUND_CALLS


def _is_of_one_module(claim: Claim, proofs: Sequence[Claim]) -> bool:
    return claim.kind not in _PLAIN and any(each.path == claim.path for each in proofs)


def _is_edit(claim: Claim, proofs: Sequence[Claim]) -> bool:
    """Tell whether an edit is sure, and no call, weight or statement was compared that is another one for sure."""
    is_text = claim.evidence in (Evidence.STATEMENT, Evidence.ATTRIBUTE)
    if claim.kind == "weights" and not is_certain(claim):  # other numbers may be right, and were not tried
        return proofs[0].evidence in (Evidence.EDIT, Evidence.EDIT_OF_MANY)
    return proofs[0].evidence is Evidence.EDIT and claim.kind not in _PLAIN and not is_text


def _is_of_table(_claim: Claim, proofs: Sequence[Claim]) -> bool:
    return proofs[0].evidence is Evidence.PROVED_TABLE


def _makes_up(claim: Claim, proofs: Sequence[Claim]) -> bool:
    """Tell whether lines were changed that the reference has, too, where one statement is not the reference's."""
    is_edit = proofs[0].evidence in (Evidence.EDIT, Evidence.EDIT_OF_MANY)  # of the port's text itself
    is_in_port = proofs[0].evidence in IN_PORT and not is_edit
    return claim.evidence is Evidence.STATEMENT and is_in_port and proofs[0].is_of_both


def _gave_other(claim: Claim) -> str | None:
    """Return the path of the call that a caller gave another number; None where calls say no such thing."""
    first = claim.divergence
    return first.path if claim.kind == "glue" and first is not None and first.direction == "output" else None


def _was_given(claim: Claim, proofs: Sequence[Claim]) -> bool:
    """Tell whether a caller gave another number to the call that a proof names, which then is right itself."""
    return _gave_other(claim) == proofs[0].path


def _gave_elsewhere(claim: Claim, proofs: Sequence[Claim]) -> bool:
    """Tell whether a caller gave another number to a call of which a proof says nothing, whose own place is open."""
    return _gave_other(claim) is not None and not is_certain(proofs[0])


def _is_outdone(claim: Claim, proofs: Sequence[Claim]) -> bool:
    return claim.kind not in _PLAIN and (is_certain(proofs[0]) or not is_certain(claim))


def _is_another_line(claim: Claim, proofs: Sequence[Claim]) -> bool:
    """Tell whether what mends the port is elsewhere than at a call that is one too many or too few."""
    at, in_port = claim.source, [each for each in proofs if each.evidence in IN_PORT]
    if claim.kind not in _CALLS or not in_port or proofs[0].lacks_step or at is None:
        return False
    return not any(each.source is not None and each.source.holds(at.file, at.first) for each in in_port)


def _is_other_code(claim: Claim, proofs: Sequence[Claim]) -> bool:
    return claim.evidence is Evidence.OTHER_CALL and not proofs[0].lacks_step


def _is_glue(claim: Claim, _proofs: Sequence[Claim]) -> bool:
    return claim.kind == "glue"


def _always(_claim: Claim, _proofs: Sequence[Claim]) -> bool:
    return True


#: What becomes of the best claim where changes were tried that mend every output; the first that applies.
MEETINGS = (
    Meeting("With other inputs, or in another dtype, any change may seem to mend.", _is_final, _believed),
    Meeting("Which module is which was found, not given: what was tried tells more.", _is_of_found_names, _proof_there),
    Meeting("The port's own text was changed there, and run.", _is_edit, _proof_believed),
    Meeting("The lines that use a table are right: what it holds was tried.", _is_of_table, _proof_believed),
    Meeting("Both name one module: the line is the proof's, unless the text has told it.", _is_of_one_module, _joined),
    Meeting("A change of the reference's own words makes up for the statement that is not.", _makes_up, _believed),
    Meeting("The caller gave the number; the proof changed where it is used.", _was_given, _with_change),
    Meeting("The caller gave a number; a change of which the place is open leaves that.", _gave_elsewhere, _believed),
    Meeting("Other code does here what a module does there.", _is_other_code, _proof_believed),
    Meeting("What was tried goes before what was not, unless it is the less certain.", _is_outdone, _proof_believed),
    Meeting("The port agrees with the call as it is, once another line is changed.", _is_another_line, _proof_believed),
    Meeting("Lines between calls are known by elimination, which another mend puts in doubt.", _is_glue, _doubted),
    Meeting("A module, a call or a weight that was compared stays, with the change.", _always, _with_change),
)

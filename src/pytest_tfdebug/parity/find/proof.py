"""What a proof says of who is to blame: the line that was changed, or what stands for it in the port."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import listed, second_look
from pytest_tfdebug.module_path import name_of
from pytest_tfdebug.parity.claims import Evidence
from pytest_tfdebug.parity.closeness import AGREE, SAME_WEIGHT, number_of
from pytest_tfdebug.parity.find.blame_values import (
    call_of_missing,
    chooser,
    depth_around,
    is_of_helper,
    part_taken,
    place_of_missing,
)
from pytest_tfdebug.parity.find.counterparts import Finding
from pytest_tfdebug.parity.find.proved_changes import ProofPlace, changes_of, held_sentence
from pytest_tfdebug.parity.find.unknown_weights import told_with_unknown_weights
from pytest_tfdebug.parity.find.values import (
    claim_of,
    line_of,
    lines_of,
    made_as_buffer,
    put_in_order,
    since_taken,
    where_loaded,
)
from pytest_tfdebug.parity.find.where_chosen import (
    at_lines,
    made_at,
    moved_to,
    set_at,
    where_begun,
    where_function_set,
    where_made_with,
    where_set,
)
from pytest_tfdebug.parity.proof.argument_changes import GIVEN
from pytest_tfdebug.parity.proof.changes import LENGTHENED, REORDERING, SHORTENED
from pytest_tfdebug.parity.proof.known_operands import MEANT
from pytest_tfdebug.parity.proof.matching import axes_of, reordered_axes
from pytest_tfdebug.parity.proof.module_changes import EXCHANGE, IN_TURN, MADE, TABLE
from pytest_tfdebug.parity.proof.prove import mended_by, prove
from pytest_tfdebug.parity.proof.value_graph import COPIES, kind_of
from pytest_tfdebug.parity.text.chosen_at import choice_before
from pytest_tfdebug.parity.text.handed_on import (
    chooser_of,
    chooses,
    guard_of,
)
from pytest_tfdebug.parity.text.loading import loop_around
from pytest_tfdebug.parity.text.text_differences import function_around
from pytest_tfdebug.records import SourceRange
from pytest_tfdebug.values import Fingerprint, distance

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pytest_tfdebug.parity.claims import Claim
    from pytest_tfdebug.parity.find.counterparts import Fault
    from pytest_tfdebug.parity.find.values import Explained
    from pytest_tfdebug.parity.proof.changes import Change
    from pytest_tfdebug.parity.proof.forward_pair import ForwardPair
    from pytest_tfdebug.parity.proof.prove import Proof, Searched, Trial
    from pytest_tfdebug.parity.proof.search import Mend
    from pytest_tfdebug.parity.proof.value_graph import Side
    from pytest_tfdebug.records import Call, SearchEnd
    from pytest_tfdebug.values import Value

#: What numbers of a table are made up for by others of it.
_ARITHMETIC = frozenset({"add", "sub", "rsub", "mul", "div", "pow", "exp", "log"})
#: As many lines are shown where parts are told apart, and used a little further down.
_SHORT = 4
#: What puts elements into another order.
_PUTTING_IN_ORDER = frozenset({"permute", "transpose", "roll", "flip", "index", "index_select", "gather"})
#: What changes the order of axes: where a call does this with what it is given, the order is its own.
_REORDERING = frozenset({"permute", "transpose"})


def with_proof(look: Explained, trial: Trial, searched: Searched | None = None) -> Explained:
    """Return what values say of two forwards with what a proof claims, where one can be had.

    Args:
        look: What values say.
        trial: What ran in both forwards.
        searched: How the search for a proof ended; None to search.
    """
    if look.pair is None or look.claim is None or look.claim.kind == "random":
        return look
    pair, pairs = look.pair, look.pair.pair_results(AGREE)
    notes: list[str] = []
    with second_look(notes, "The search for a proof failed"):
        searched = searched or prove(pair, pairs, trial)
        proof, note = searched.proof, _told_end(searched.end, searched.seconds)
        if proof is not None:
            look = replace(told_by(proof, look), mended=mended_by(proof, pair, trial))
        return replace(look, search=searched.end, search_note=note)
    return replace(look, notes=[*look.notes, *notes])


def _told_end(end: SearchEnd, seconds: float) -> str:
    """Say how a search ended that found nothing."""
    if end == "cut":
        return (
            f"The search for a change that mends it was cut after {seconds:.3g} s of work: "
            f"-o tf_explain_seconds={max(20, round(4 * seconds))} goes on."
        )
    told = "No single change that was tried makes every output agree: likely a second fault, or one of several places."
    return told if end == "exhausted" else ""


def told_by(proof: Proof, look: Explained) -> Explained:
    """Return what values say with what a proof claims, which stands for the claim of the values alone."""
    pair, named = look.pair, look.claim
    if pair is None or named is None:
        return look
    known = pair.back.known if proof.is_reverse else pair.weights.known
    places = _likeliest_first(places_of(proof, known, named.path, pair), named, proof)
    told = held_sentence(proof, places)
    changes = tuple(changes_of(places, is_reverse=proof.is_reverse))
    loaded = [] if proof.is_reverse else [mend for place in places for mend in place.mends if not mend.places]
    if proof.is_reverse:
        found = [_of_reference(look, named, pair, places, proof)]
    elif loaded:
        found = [_of_weights(named, loaded, proof, pair, told)]
    elif named.kind == "weights" and _is_of_weights(named, places):
        found = [named]  # it is not the other side's, whatever else mends
    elif wrong := [place for place in places if _can_be_wrong(place, pair)]:
        found = _of_steps(wrong, places, look, pair, proof)
        look = replace(look, finding=wrong[0].finding)
    else:  # what the reference computes as well is changed: it makes up for what is wrong elsewhere
        found = [replace(named, evidence=Evidence.MAKES_UP)]
    meant = [name for mend in loaded for name in _meant_in(mend, pair)]
    found = [where_loaded(each, pair, meant) for each in found]
    is_of_unknown = loaded and found[0].weights and pair.weights.unknown.issuperset(found[0].weights)
    if not is_of_unknown:
        found = [replace(each, proved=told, changes=changes) for each in found]
    if proof.holds is False:
        found = [replace(each, evidence=Evidence.THESE_INPUTS) for each in found]
    return replace(look, proofs=tuple(replace(each, narrows=look.claim) for each in found))


def _of_steps(
    wrong: Sequence[ProofPlace], places: Sequence[ProofPlace], look: Explained, pair: ForwardPair, proof: Proof
) -> list[Claim]:
    """Return who is to blame where steps of the port are changed that can be wrong."""
    is_in_one = len({place.finding.call.path for place in places}) == 1
    is_telling = all(place.finding.values[0].tells and _is_told_apart(place, pair.port) for place in wrong)
    is_here = all(_is_order_from_here(place, proof, pair) for place in wrong)
    evidence = Evidence.PROOF if is_in_one and is_telling and is_here else Evidence.PROOF_OF_MANY
    if not is_in_one and _is_given_another(places, proof):
        evidence = Evidence.PROOF_OR_GIVEN
    if any(place.finding.weights for place in wrong):
        evidence = Evidence.PROVED_WEIGHTS
    elif evidence is Evidence.PROOF and not all(_is_chosen(place, pair.port) for place in wrong):
        evidence = Evidence.HANDED_ON
    found = [replace(_claim_at(each, look, pair), evidence=evidence) for each in wrong]
    if evidence is Evidence.PROOF and all(_is_cut_of_joined(place, proof, pair) for place in wrong):
        return [replace(each, evidence=Evidence.EXCHANGE, why=f"{each.why} {_LOADED_SO}".strip()) for each in found]
    return found


def _is_given_another(places: Sequence[ProofPlace], proof: Proof) -> bool:
    """Tell whether what is changed in one module comes of what is changed elsewhere: as a mask does."""
    return any(_takes_another(place, places, proof) for place in places)


def _takes_another(place: ProofPlace, places: Sequence[ProofPlace], proof: Proof) -> bool:
    """Tell whether a step is given what another of these, of another module, makes."""
    if not place.mends[0].places:
        return False
    behind = proof.forward.side.ancestors(_step_of(proof, place.mends[0]).index)
    others = [each for each in places if each.mends[0].places and each.finding.call.path != place.finding.call.path]
    return any(_step_of(proof, each.mends[0]).index in behind for each in others)


def _likeliest_first(places: list[ProofPlace], named: Claim, proof: Proof) -> list[ProofPlace]:
    """Return places with those last that drop what is given wrong, or lack a step where values name another."""
    at = named.source

    def is_there(place: ProofPlace) -> bool:
        return place.lines is not None and at is not None and place.lines.holds(at.file, at.first)

    def drops_given(place: ProofPlace) -> bool:  # a mask, say, where it should hide nothing
        return not proof.is_reverse and place.mends[0].change.drops and _takes_another(place, places, proof)

    is_named = any(map(is_there, places))
    places = sorted(places, key=drops_given)
    return sorted(places, key=lambda place: is_named and place.finding.fault == "left-out" and not is_there(place))


def _claim_at(place: ProofPlace, look: Explained, pair: ForwardPair) -> Claim:
    claim, change = at_lines(claim_of(place.finding, pair), place.lines), place.mends[0].change
    if change.kind == MADE:
        return replace(claim, wrong="is made otherwise than the reference's")
    if change.kind == GIVEN and change.call is not None:
        name = name_of(pair.port.calls[change.call].path)
        return replace(claim, wrong=f"gives {name!r} the {change.old} that another layer's is to be given")
    if change.kind == "function":
        return where_function_set(claim, place, pair.port)
    if change.kind in (*REORDERING, "form") and change.operand is not None:
        made = _table_begun(change.operand, len(place.mends[0].places), look, pair)
        return claim if made is None else moved_to(made, claim)
    if change.kind in LENGTHENED and place.finding.values[0].is_moved:  # what reads a table, not what makes it
        made = where_begun(pair.port.computed(place.finding.values[0]), len(place.mends[0].places), pair.port)
        return claim if made is None else moved_to(made, claim)
    return _number_at(claim, place, look, pair.port) if change.kind == "number" else claim


def _number_at(claim: Claim, place: ProofPlace, look: Explained, port: Side) -> Claim:
    """Return a claim on another number as one on where that is chosen, or where values name the table that it is in."""
    named = None if _is_told_apart(place, port) else _named_in_table(place.finding.values[0].index, look, port)
    if named is not None:
        return moved_to(named, claim)
    return where_made_with(claim, place.finding.call, port) or where_set(claim, place, port)


def _table_begun(operand: int, uses: int, look: Explained, pair: ForwardPair) -> SourceRange | None:
    """Return where a table is made that a change reads in another order: where values name it, if they do.

    If not all of its uses are to be changed, it is not made wrongly.
    """
    port = pair.port
    named = _named_in_table(operand, look, port)
    ordered = None if named is not None else put_in_order(port.values[operand], port)
    begun = None if ordered is None else where_begun(ordered, len(port.users[ordered.index]), port)
    return named or begun or where_begun(port.computed(port.values[operand]), uses, port)


def _named_in_table(index: int, look: Explained, port: Side) -> SourceRange | None:
    """Return where values name a table, or a part of it, that a value is computed from; None where they do not."""
    named = look.finding.values[:1] if look.finding is not None else []
    before = port.ancestors(index)
    if look.claim is None or not any(each.index in before and not port.weighted[each.index] for each in named):
        return None
    made = port.computed(named[0])
    return look.claim.source if made is named[0] or not made.lines else lines_of(made.lines[0])


def _is_told_apart(place: ProofPlace, port: Side) -> bool:
    """Tell whether no number of another line does the same: in a table, ``100 ** -x`` is ``10 ** -(2 * x)``.

    One that the reference holds is no such coincidence.
    """
    change, value = place.mends[0].change, place.finding.values[0]
    return change.kind != "number" or change.is_known or port.weighted[value.index] or value.operator not in _ARITHMETIC


def _is_chosen(place: ProofPlace, side: Side) -> bool:
    """Tell whether the lines of a change choose the number or the operand that is changed, and were not given it."""
    change, call = place.mends[0].change, place.finding.call
    if place.lines is None or place.finding.depth:  # a caller that was found has chosen it
        return True
    if change.kind != "number":
        return _is_at_hand(place.lines, change.other, side)
    held = side.table.attributes.get("" if call.parent is None else call.path, {})
    return chooses(place.lines, change.old, held)


def _is_at_hand(lines: SourceRange, operand: int | None, side: Side) -> bool:
    """Tell whether some lines can name the operand that they should take: their function makes it, or calls what does.

    ``for unify, m in zip(self.unify, maps)`` takes what another function has put into ``maps``.
    """
    inside = function_around(lines)
    if operand is None or inside is None:
        return True
    value = side.computed(side.values[operand])
    first, last = inside[2].lineno, inside[2].end_lineno or 0
    made = side.places(value, side.around(value.call))
    return not value.operator or any(each.file == lines.file and first <= each.line <= last for each in made)


def _is_of_weights(named: Claim, places: Sequence[ProofPlace]) -> bool:
    """Tell whether a parameter that values name is wrong, or what was changed is in its module."""
    is_sure = named.evidence is Evidence.WEIGHT_OF_VALUE
    return is_sure or any(place.finding.call.path == named.path for place in places)


def _can_be_wrong(place: ProofPlace, pair: ForwardPair) -> bool:
    """Tell whether what was changed is not what the reference computes as well."""
    return place.finding.fault == "left-out" or not _is_right(place.finding.values[0], pair)


def _is_order_from_here(place: ProofPlace, proof: Proof, pair: ForwardPair) -> bool:
    """Tell whether the order of elements that a change mends can have gone wrong at its lines alone.

    ``cells = put_in_order(x)``, and later ``cells.reshape(n, 4, -1).amax(1)``: one of both is wrong, and whichever is
    changed mends it. So nothing may be moved on the way from what lies as in the reference to what is changed.
    """
    mend, port = place.mends[0], pair.port
    if mend.change.kind not in REORDERING or place.lines is None:
        return True
    todo = [each for out in proof.forward.outs_of(mend.places[0]) for each in proof.forward.operands_of(out)]
    seen = set(todo)
    while todo:
        value = port.values[todo.pop()]
        if not value.operator or pair.lies_right(value.index):
            continue
        line = line_of(port, value, port.call_of(value))
        if value.is_moved and (line is None or not place.lines.holds(line.file, line.line)):
            return False
        is_known = pair.matches.within(value.index, AGREE) and pair.lies_right(value.index) is not False
        if not is_known and made_as_buffer(value, port) is not None:
            return False  # a table that the reference does not have: positions the other way round, say
        before = [each for each in value.producers if each not in seen and not port.parameter(each)]
        seen.update(before)
        todo += before
    return True


def _with_uses(lines: SourceRange | None, mend: Mend, proof: Proof) -> SourceRange | None:
    """Return lines that tell parts apart with the one line behind them that uses these: one of both takes them wrongly.

    ``same, different = both.split(1, -1)``, and on the next line ``torch.where(other, same, different)``.
    """
    side = proof.forward.side
    if lines is None or mend.change.kind != "parts" or proof.is_reverse:
        return lines
    uses = (use for out in proof.forward.outs_of(mend.places[0]) for use in side.uses(out))
    found = (line_of(side, use, side.call_of(use)) for use in uses)
    told = {(line.file, line.line) for line in found if line is not None}
    file, last = told.pop() if len(told) == 1 else ("", 0)  # of several lines not one alone takes them wrongly
    is_near = file == lines.file and lines.last < last < lines.first + _SHORT
    return SourceRange(lines.file, lines.first, last) if is_near else lines


def _of_weights(named: Claim, loaded: list[Mend], proof: Proof, pair: ForwardPair, told: str) -> Claim:
    """Return who is to blame where other weights mend a forward: these, unless the code may take one for another."""
    first, is_alone = loaded[0], len(loaded) == len(proof.mends)
    finding = _finding(proof, first, pair.weights.known, None)
    claim = claim_of(finding, pair)
    if first.change.kind == TABLE:
        evidence = Evidence.PROVED_TABLE if is_alone else Evidence.PROOF_OF_MANY
        return replace(_of_table(claim, first.change, pair.port), evidence=evidence)
    if pair.weights.unknown.issuperset(finding.weights):  # whatever numbers they hold, no change of them is the mend
        evidence = Evidence.NO_NUMBERS if is_alone else Evidence.ODD_WEIGHT
        return replace(claim, evidence=evidence, why=f"{claim.why} {told[:1].upper()}{told[1:]}.")
    if first.change.kind == "converted":
        claim = replace(
            claim, why=f"{listed(list(map(repr, claim.weights)))} holds the reference's numbers as they are."
        )
    is_known = all(map(pair.weights.partners.get, finding.weights))
    if first.change.kind == "weights" and is_known and not pair.weights.transposed.issuperset(finding.weights):
        partners = pair.weights.partners[finding.weights[0]]
        if all(map(pair.is_held_as_theirs, finding.weights)) and named.source is not None:
            return replace(named, evidence=Evidence.ORDER_OF_WEIGHT)
        if len(finding.weights) == len(partners) == 1:
            held = f"{finding.weights[0]!r} holds the numbers of {partners[0]!r}"
            claim = replace(claim, why=f"{held}, possibly in another order than this code expects.")
        return replace(claim, evidence=Evidence.ORDER_OF_WEIGHT)
    if first.change.kind in (EXCHANGE, IN_TURN):
        return _of_each_other(named, claim, first.change, pair.port)
    return replace(claim, evidence=Evidence.PROVED_WEIGHT if is_alone else Evidence.PROVED_WEIGHTS)


def _meant_in(mend: Mend, pair: ForwardPair) -> list[str]:
    """Return the names of the reference's weights whose numbers a change gives to others."""
    prints = [Fingerprint.of(each) for each in (mend.change.instead or {}).values()]
    theirs = pair.reference.table.parameters.items()
    return [name for each in prints for name, (other, _) in theirs if distance(each, other) <= SAME_WEIGHT]


def _of_each_other(named: Claim, claim: Claim, change: Change, side: Side) -> Claim:
    """Return a claim on weights that stand for each other, of two modules or of a list of them."""
    if named.evidence is Evidence.WEIGHT_OF_VALUE:
        return named
    if change.kind == IN_TURN:
        at = claim.source and loop_around(claim.source)
        wrong = "uses the weights of a list in another order than the reference"
        why = "They were loaded in another order than the reference uses them, or are used so."
        return replace(claim, source=at or claim.source, evidence=Evidence.EXCHANGE, wrong=wrong, why=why)
    is_loaded = claim.source is not None and (claim.source.file, claim.source.first) not in side.lines_that_ran
    place = named if named.path == claim.path and not is_loaded else claim
    used = (
        ""
        if not is_loaded or named.source is None
        else _USED.format(PurePath(named.source.file).name, named.source.first)
    )
    return replace(place, evidence=Evidence.EXCHANGE, wrong=_EXCHANGED, why=f"{_EXCHANGED_HOW}{used}")


def _of_table(claim: Claim, change: Change, port: Side) -> Claim:
    """Return a claim on what uses a table as one on the constructor that makes it, where that is found."""
    table = port.values[next(iter(change.instead or ()))]
    made, call = made_as_buffer(table, port), port.holder_of(table)
    claim = replace(claim, kind="module", wrong=f"holds another table than the reference: {table.name}")
    if made is None:
        return claim
    return replace(claim, path=call.path, class_name=call.class_name, source=made, why="", function="", callers=())


def _is_right(value: Value, pair: ForwardPair) -> bool:
    """Tell whether the reference computes a value of the port as well, in the same order of elements.

    What is hidden of a value counts for nothing in its fingerprint, and may have been hidden the other way. A step that
    changes next to nothing, as the sum with a small epsilon, gives what the reference has before that step.
    """
    fingerprint = value.print
    if value.is_moved or not value.tells or fingerprint.finite < fingerprint.elements:
        return False
    if any(distance(fingerprint, pair.port.values[made].print) <= AGREE for made in value.producers):
        return False
    near = (pair.reference.values[each].print for each in pair.matches.within(value.index, AGREE))
    return any(not reordered_axes(fingerprint, other) for other in near)


def _is_given_known(proof: Proof, pair: ForwardPair) -> bool:
    """Tell whether the port has all that the changed steps of the reference are given: else that may be wrong."""
    forward, values = proof.forward, pair.reference.values
    changed = (out for mend in proof.mends for place in mend.places for out in forward.outs_of(place))
    return all(
        forward.named(each) in pair.back.known
        or values[each].origin == "input"
        or (values[each].tells and pair.back_matches.within(each, AGREE))
        for out in changed
        for each in forward.operands_of(out)
    )


def _in_port(named: Claim, proof: Proof, pair: ForwardPair, begun: Sequence[Value]) -> Claim:
    """Return who is to blame in the port, where a change of the reference says what is wrong.

    The first value of the port that comes of the change is where it is done; what only changes the place of elements
    is done where the port moves what the changed step is given, and a step that is left out belongs to what it is
    nearest to in the reference.
    """
    mend, port, reference = proof.mends[0], pair.port, pair.reference
    if not mend.places or named.source is None:
        return named
    first = _reached_in(port, mend)
    changed = reference.values[proof.forward.outs_of(mend.places[0])[0]]
    fault: Fault = "proved"
    depth = 0  # which of the first value's lines is meant
    if mend.change.kind in SHORTENED and (first is not None or _is_unused(changed, pair)):
        (call, beside, depth), fault = place_of_missing(pair, changed, first, AGREE), "left-out"
        call, first = _around_partner(call, mend.change, pair), beside or first
    elif first is None:
        return named
    elif mend.change.other is not None:
        meant = changed.index if mend.change.operand is None else mend.change.operand
        here = pair.back_matches.within(meant, AGREE)
        wrong = pair.back_matches.within(mend.change.other, AGREE)
        computed = [port.values[each] for each in wrong if port.values[each].operator]
        if computed and not here:  # the port has nothing else: what it takes was chosen before it was made
            return _where_made(computed[-1], named, pair)
        if any(value.index in first.producers and value.call == first.call for value in begun):
            return named  # which elements are taken was chosen one step before
        call = _chooser(first, wrong, here, _calls_to_ask(first, mend.change.other, meant, pair), port)
        cut = part_taken(port, first, wrong, here)
        if cut is not None:
            call, first = port.call_of(cut), cut
        elif changed.is_moved:
            first = _move_of(first, changed, proof, pair)
        fault = "operand"
    elif first.is_moved and not changed.is_moved:  # what pieces of it were put together
        made = made_as_buffer(first, port)
        return named if made is None else replace(named, source=made, function="", callers=())
    else:
        first = _move_of(first, changed, proof, pair) if changed.is_moved else first
        call = port.call_of(first)
    shown = [] if first is None else [first]
    finding = Finding(fault, call, shown, changed, reference.call_of(changed), depth=depth)
    found = claim_of(finding, pair)
    found = replace(found, source=since_taken(finding, found.source, pair))
    at, callers = found.source, map(str, found.callers)
    is_named = str(named.source) in callers or any(_is_given_table(value, begun, named, port) for value in shown)
    return named if is_named or (at is not None and named.source.holds(at.file, at.first)) else found


def _is_given_table(value: Value, begun: Sequence[Value], named: Claim, port: Side) -> bool:
    """Tell whether a value takes what is named, a table that is wrong: what is given one is right."""
    is_buffer = any(made_as_buffer(port.values[made], port) == named.source for made in value.producers)
    before = port.ancestors(value.index)
    return is_buffer or any(each.index in before and not port.weighted[each.index] for each in begun)


def _reached_in(port: Side, mend: Mend) -> Value | None:
    """Return the first value of the port that comes of a change: of a bias the product that lacks it, and no view."""
    if mend.reached is None:
        return None
    first = port.values[mend.reached]
    return port.computed(first) if mend.change.kind == "bias" else first


def _where_made(value: Value, named: Claim, pair: ForwardPair) -> Claim:
    """Return a claim on a value that is right elsewhere as one on what chose it, or on the line that makes it."""
    claim = claim_of(Finding("operand", pair.port.call_of(value), [value], None, None), pair)
    chosen = choice_before(value.lines[0], pair.port.lines_that_ran) if value.lines else None
    wrong, why = "makes another value here than the reference", "The reference has this one too, and uses another."
    return replace(claim, source=chosen or claim.source, reference=named.reference, wrong=wrong, why=why)


def _around_partner(call: Call, change: Change, pair: ForwardPair) -> Call:
    """Return a call of the port, or the one around the calls that hold no weights but those of a call left out."""
    if change.call is None:
        return call
    port, reference, left_out = pair.port, pair.reference, pair.reference.calls[change.call]
    within = (value for value in reference.values if reference.is_within(value.call, left_out))
    taken = {name for value in within for name in reference.parameters_of(value)}
    others = port.table.parameters.keys() - {own for name in taken for own in pair.back.partners.get(name, ())}
    return next((each for each in port.around(call.index) if any(port.holds(each, name) for name in others)), port.root)


def _is_unused(step: Value, pair: ForwardPair) -> bool:
    """Tell whether the port has the weights of a step of the reference, and computes no output from them."""
    names = [name for name in pair.reference.parameters_of(step) if name]
    return bool(names) and all(pair.port.used.isdisjoint(pair.back.partners.get(name, ())) for name in names)


def _chooser(first: Value, wrong: Collection[int], meant: Collection[int], calls: Sequence[Call], port: Side) -> Call:
    """Return the call that chose an operand of a value of the port, which is another than is meant."""
    taken = {each for made in first.producers for each in (made, port.computed(port.values[made]).index)}
    return chooser(port, calls, taken.intersection(wrong) or wrong, meant)


def _calls_to_ask(first: Value, wrong: int, meant: int, pair: ForwardPair) -> list[Call]:
    """Return the calls around a value that can have chosen its operand, innermost first.

    A module that uses its own parameter did not choose another module's: who called it took it for the other one.
    """
    port, reference = pair.port, pair.reference
    own, due = (pair.back.partners.get(reference.parameter(each), ()) for each in (wrong, meant))
    calls = port.with_code(first.call)
    has_own = (each for each in calls if own and due and any(port.holds(each, name) for name in own))
    first_of_both = next((each for each in has_own if any(port.holds(each, name) for name in due)), calls[0])
    return calls[calls.index(first_of_both) :]


def _move_of(first: Value, changed: Value, proof: Proof, pair: ForwardPair) -> Value:
    """Return the first view or copy of the port whose order of elements differs from the reference's.

    Where the port has nothing that the changed step is given, it is the last that puts elements into another order.
    """
    values, port = pair.reference.values, pair.port
    operands = [values[each] for each in proof.forward.operands_of(changed.index)]
    given = {each for operand in operands for each in pair.back_matches.within(operand.index, AGREE)}
    is_part = bool(operands) and changed.print.elements < operands[0].print.elements
    for made in (first.index, *first.producers):
        for value in (value for value in reversed(port.moves(made)) if not given.isdisjoint(value.producers)):
            base = port.values[value.producers[0]]
            if value.print.elements < base.print.elements if is_part else _is_out_of_place(value, pair):
                return value
    moves = (move for each in first.producers if not given and not port.parameter(each) for move in port.moves(each))
    return next((move for move in moves if move.operator in _PUTTING_IN_ORDER), first)


def _is_out_of_place(value: Value, pair: ForwardPair) -> bool:
    """Tell whether the elements of a value of the port lie otherwise than where the reference has the same axes."""
    axes = axes_of(value.print)
    near = [pair.reference.values[each].print for each in pair.matches.within(value.index, AGREE)]
    alike = [each for each in near if axes_of(each) == axes] or [
        each for each in near if not {*axes}.isdisjoint(axes_of(each))
    ]
    return bool(alike) and all(reordered_axes(value.print, each) for each in alike)


def places_of(proof: Proof, known: frozenset[str], named: str, pair: ForwardPair | None = None) -> list[ProofPlace]:
    """Return the places that a proof names, those in a module that is named already first."""
    found: dict[object, ProofPlace] = {}
    for mend in proof.mends:
        finding = _finding(proof, mend, known, pair)
        side = proof.forward.side
        made = made_at(side, side.calls[mend.change.call]) if mend.change.kind == MADE and mend.change.call else None
        used = since_taken(finding, _lines(side, finding.values[0], finding.call, finding.depth), pair)
        lines = made or set_at(side, mend.change, finding) or _with_guard(used, mend, proof) or used
        lines = _with_uses(lines, mend, proof)
        changed = _step_of(proof, mend) if mend.places else None
        around = None if changed is None else _call_to_blame(mend, changed, proof)
        at = None if changed is None or around is None else made or _lines(side, changed, around, finding.depth)
        found.setdefault((lines, finding.weights), ProofPlace([], finding, at, lines)).mends.append(mend)
    return sorted(found.values(), key=lambda place: place.finding.call.path != named)


def _with_guard(lines: SourceRange | None, mend: Mend, proof: Proof) -> SourceRange | None:
    """Return a statement that should not run with what decides that, where it runs elsewhere and is right there."""
    if lines is None or mend.change.kind not in SHORTENED or not mend.places:
        return None
    *_, on_line, _ = proof.forward.places_like(mend.places[0])
    return guard_of(lines) if len(on_line) > len(mend.places) else None


def _lines(side: Side, value: Value, call: Call, depth: int) -> SourceRange | None:
    line = line_of(side, value, call, depth)
    return None if line is None else lines_of(line)


def _of_reference(
    look: Explained, named: Claim, pair: ForwardPair, places: Sequence[ProofPlace], proof: Proof
) -> Claim:
    """Return a claim with the lines of the reference that are proved to be done otherwise in the port.

    It is no guess where the port does that, if the first value that the reference never computes is also the first that
    comes of the change, the port has all that the changed steps are given, and no module of the changed one's name is
    elsewhere.
    """
    change = proof.mends[0].change
    exchanged = _exchanged_parts(proof, pair) if change.kind == "parts" else ()
    if change.kind in (EXCHANGE, IN_TURN):
        exchanged = tuple(pair.reference.values[each].name for each in change.instead or {})
    if exchanged:
        return replace(_of_exchanged(named, exchanged, pair), evidence=Evidence.EXCHANGE)
    laid = None
    if change.kind in REORDERING:
        operand = "" if change.operand is None else pair.reference.parameter(change.operand)
        laid = _of_laid_out(named, (operand,) if operand else _put_together_with(proof, pair), pair)
    elif change.kind in SHORTENED and proof.mends[0].places:
        left_out = pair.reference.values[proof.forward.outs_of(proof.mends[0].places[0])[0]]
        operand = pair.reference.parameter(left_out.index) if left_out.is_moved else ""
        laid = _of_laid_out(named, (operand,), pair) if operand else None
    if laid is not None:
        return laid
    begun = look.finding.values[:1] if look.finding is not None else []
    place, meant = places[0], "" if change.operand is None else pair.reference.parameter(change.operand)
    if named.kind == "weights" and meant and meant not in pair.back.partners:  # the port cannot take what it has not
        return replace(named, reference=place.lines or named.reference, evidence=Evidence.INFERRED_PROOF)
    here = _in_port(named, proof, pair, begun)
    path, is_line = place.finding.call.path, str(place.lines) == str(here.reference)
    is_there = here.path == path or path not in pair.port.table.modules or (place.lines is not None and is_line)
    is_alone = len({each.finding.call.path for each in places}) == 1
    is_known = is_alone and is_there and here is named and _is_given_known(proof, pair)
    if change.kind == "number" and named.source is not None:
        is_known = is_known and chooses(named.source, change.new, pair.port.table.attributes.get(named.path, {}))
    if change.kind == "number":
        calls = (call for call in pair.port.calls.values() if call.path == here.path)
        here = next((found for each in calls if (found := where_made_with(here, each, pair.port))), here)
    if here is named and not is_known and look.finding is not None and not _is_lacking_alone(proof, pair):
        here = told_with_unknown_weights(named, look.finding, pair)
    evidence = Evidence.REVERSE_PROOF if is_known else Evidence.INFERRED_PROOF
    return replace(here, reference=place.lines or here.reference, evidence=evidence)


def _is_lacking_alone(proof: Proof, pair: ForwardPair) -> bool:
    """Tell whether the port lacks a step that takes neither a table nor a weight: none of these is wrong, then."""
    mend, reference = proof.mends[0], pair.reference
    if mend.change.kind not in SHORTENED or not mend.places:
        return False
    left_out = reference.values[proof.forward.outs_of(mend.places[0])[0]]
    taken = [made for made in left_out.producers if reference.values[made].print.elements > 1]
    return len(taken) == 1 and not reference.parameter(taken[0])


def _exchanged_parts(proof: Proof, pair: ForwardPair) -> tuple[str, ...]:
    """Return the weight of the reference whose product is cut in parts that are exchanged, if the port has these parts.

    ``gate, up = fused(x).chunk(2, -1)`` in the reference, and a port with a weight for each: these are exchanged.
    """
    reference, mend = pair.reference, proof.mends[0]
    cut = reference.values[proof.forward.outs_of(mend.places[0])[0]]
    names = filter(None, reference.parameters_of(reference.computed(cut)))
    return tuple(name for name in names if len(pair.back.partners.get(name, ())) > 1)


def _is_cut_of_joined(place: ProofPlace, proof: Proof, pair: ForwardPair) -> bool:
    """Tell whether parts are exchanged of what a weight gives that holds several of the reference's, one by one.

    ``q, k, v = self.fused(x).split(size, -1)``: no value tells whether that is wrong, or what loads ``fused.weight``.
    """
    mend, port = place.mends[0], pair.port
    if mend.change.kind != "parts" or not mend.places:
        return False
    cut = port.computed(port.values[proof.forward.outs_of(mend.places[0])[0]])
    return any(name in pair.weights.joined or name in pair.weights.unknown for name in port.parameters_of(cut) if name)


def _of_exchanged(named: Claim, names: Sequence[str], pair: ForwardPair) -> Claim:
    """Return where the port uses the first of the weights that the reference has in each other's place.

    A function of one's own that several lines call, ``rms(x, gain, eps)``, is given them.
    """
    port = pair.port
    own = {partner for name in names for partner in pair.back.partners.get(name, ())}
    users = (each for each in port.values if each.lines and not own.isdisjoint(port.parameters_of(each)))
    first = next(users, None)
    if first is None:
        return replace(named, wrong=_EXCHANGED, why=_EXCHANGED_HOW)
    depth = next((each for each in range(len(first.lines)) if not is_of_helper(port, first, each)), 0)
    found = claim_of(Finding("proved", port.call_of(first), [first], None, None, depth=depth), pair)
    weights = tuple(name for name in port.table.parameters if name in own)
    why = f"{listed([*map(repr, weights)])}: {_EXCHANGED_HOW[0].lower()}{_EXCHANGED_HOW[1:]}"
    return replace(found, reference=named.reference, wrong=_EXCHANGED, why=why, weights=weights)


def _put_together_with(proof: Proof, pair: ForwardPair) -> list[str]:
    """Return the weights of the reference that lie in the order in which it puts things together: not so in the port.

    ``linear(cat((patch, cls)))`` in the reference, and a port with one half of the weight for each; or a convolution
    that stands for ``linear(cat((x0, x1, x2, x3)))``: its order is that of the weight.
    """
    reference, own = pair.reference, pair.port.table.parameters
    whole = reference.values[proof.forward.outs_of(proof.mends[0].places[0])[0]]
    steps = [whole, *reference.uses(whole.index)] if whole.operator == "cat" else []
    names = dict.fromkeys(name for step in steps for name in reference.parameters_of(step) if name)

    def is_in_another_form(name: str) -> bool:
        partners, shape = pair.back.partners.get(name, ()), reference.table.parameters[name][1]
        is_cut = len(partners) > 1 or not pair.weights.joined.isdisjoint(partners)
        return is_cut or any(own[each][1] not in (shape, shape[::-1]) for each in partners)

    return list(filter(is_in_another_form, names))


def _of_laid_out(named: Claim, names: Sequence[str], pair: ForwardPair) -> Claim | None:
    """Return where the port uses weights whose elements the reference takes in another order; None for no weights."""
    port = pair.port
    own = tuple(dict.fromkeys(each for name in names for each in pair.back.partners.get(name, ())))
    first = next((each for each in port.values if each.lines and not {*own}.isdisjoint(port.parameters_of(each))), None)
    if first is None:
        return None
    found = claim_of(Finding("proved", port.call_of(first), [first], None, None), pair)
    these, was = ("a weight", "was") if len(own) == 1 else ("weights", "were")
    why = f"{listed([*map(repr, own)])} {was} loaded so, or the code takes {'it' if was == 'was' else 'them'} so."
    wrong = f"takes {these} in another order than the reference"
    return replace(
        found, reference=named.reference, wrong=wrong, why=why, evidence=Evidence.ORDER_OF_WEIGHT, weights=own
    )


#: What is said of weights that stand for each other, and where the code takes them.
_USED = " They are used at {}:{}."
_EXCHANGED = "uses weights in each other's place"
_EXCHANGED_HOW = "They were loaded so, or the code takes one for the other."
_LOADED_SO = "Its parts were loaded so, or the code takes one for the other."


def _finding(proof: Proof, mend: Mend, known: frozenset[str], pair: ForwardPair | None) -> Finding:
    """Return what a change says: of a weight that the other side has nowhere, that the weight is wrong."""
    side, change = proof.forward.side, mend.change
    if not mend.places:
        values = [side.values[index] for index in change.instead or ()]
        names = tuple(value.name for value in values if value.origin == "parameter")
        users = [next(side.uses(value.index), value) for value in values]
        return Finding("weights" if names else "proved", _call_around(side, users), users[:1], None, None, names)
    value = _step_of(proof, mend)
    unknown = () if pair is None or proof.is_reverse else pair.weights.unknown.intersection(side.parameters_of(value))
    if change.kind == "scaled" and unknown:  # as well as the step its weight may lack the factor
        return Finding("weights", side.call_of(value), [value], None, None, tuple(unknown))
    name = side.parameter(change.operand) if change.operand is not None and change.other is None else ""
    if name and (name not in known or (change.kind in REORDERING and not proof.is_reverse)):
        return Finding("weights", side.call_of(value), [value], None, None, (name,))
    copy = _copy_to_blame(side, change)
    blamed, call = (copy, side.call_of(copy)) if copy is not None else (value, _call_to_blame(mend, value, proof))
    depth = 0 if copy is not None else _depth_of(side, value, call, change)
    if proof.is_reverse or mend.reached is None or pair is None:
        return Finding("proved", call, [blamed], None, None, depth=depth)
    reached = pair.reference.values[mend.reached]
    is_right = not set(reached.producers).isdisjoint(pair.matches.within(value.index, AGREE))
    if change.kind in LENGTHENED and (is_right or kind_of(reached) != kind_of(value)) and side.weighted[value.index]:
        first = next(side.uses(value.index), value)
        call, beside, depth = place_of_missing(pair, reached, first, AGREE)
        around = call_of_missing(pair, reached, AGREE)
        return Finding("left-out", call, [beside or value, value], reached, around, depth=depth)
    return Finding("proved", call, [blamed], reached, pair.reference.call_of(reached), depth=depth)


def _depth_of(side: Side, value: Value, call: Call, change: Change) -> int:
    """Return which of the lines of a value that was changed is wrong: its own, or one that called its function.

    A caller chooses a number that it gives, and an operand that was computed outside.
    """
    if change.kind == "number" and value.lines and (number := number_of(change.old)) is not None:
        held = side.table.attributes.get("" if call.parent is None else call.path, {})
        return chooser_of(number, value.lines, held)
    if change.kind in ("operand", MEANT) and change.operand is not None:
        return depth_around(value, side.computed(side.values[change.operand]))
    return int(change.kind in SHORTENED and _is_whole_function(side, value, change.other))


def _is_whole_function(side: Side, value: Value, handed_on: int | None) -> bool:
    """Tell whether a function that gives a value is left out: what is handed on instead was computed outside of it."""
    if handed_on is None or len(value.lines) < 2:  # noqa: PLR2004 - the function's and its caller's
        return False
    other, callers = side.computed(side.values[handed_on]), value.lines[1:]
    is_inside = other.call == value.call and other.lines[-len(callers) :] == callers and len(other.lines) > len(callers)
    return not is_inside


def _call_around(side: Side, values: Sequence[Value]) -> Call:
    """Return the innermost call in which all of some values came about."""
    first, *others = values
    calls = (call for call in side.around(first.call) if all(side.is_within(each.call, call) for each in others))
    return next(calls, side.root)


def _step_of(proof: Proof, mend: Mend) -> Value:
    """Return what the first step that is changed gave."""
    return proof.forward.side.values[proof.forward.shown_at(mend.places[0])[0]]


def _copy_to_blame(side: Side, change: Change) -> Value | None:
    """Return the copy by which an operand got the wrong elements, or those of another value; None where there is none.

    Where the value that is meant was copied as well, the wrong one of two was taken; so it was where that was computed
    after the copy.
    """
    if change.operand is None or change.kind == "form":
        return None
    copy, meant = _copied(side, change.operand), change.other
    if copy is None or meant is None:
        return copy
    return copy if _copied(side, meant) is None and meant < copy.index else None


def _copied(side: Side, index: int) -> Value | None:
    """Return the last copy that chose the elements of a value, or repeated them."""
    pairs = pairwise(side.bases(index, of_one=False))
    return next((value for value, base in pairs if _chooses(side, value, base)), None)


def _chooses(side: Side, value: Value, base: Value) -> bool:
    """Tell whether a value is a copy that chose or repeated elements: several computed values put together are none."""
    if value.operator in ("cat", "stack"):
        return len({side.computed(side.values[each]).index for each in value.producers}) == 1
    return value.operator in COPIES or value.print.elements > base.print.elements


def _call_to_blame(mend: Mend, value: Value, proof: Proof) -> Call:
    """Return the call whose code does what is changed: the caller's, where a call is given something else.

    A call that was given the wrong value and has made the right one itself has chosen wrongly; so has one that would
    have to be given something else on every line that makes such a call.
    """
    side, change = proof.forward.side, mend.change
    if change.call is not None:
        call = side.calls[change.call]
        return call if change.kind in ("activation", MADE) or call.parent is None else side.calls[call.parent]
    call = side.call_of(value)
    is_choice = change.other is not None and side.is_within(side.values[change.other].call, call)
    is_given = change.operand is not None and not is_choice and _is_given(side, call, change.operand)
    if is_given and call.parent is not None and not _is_called_on_several_lines(call, mend, proof):
        call = side.calls[call.parent]
    while change.other is not None and call.parent is not None and not _has(side, call, change.other):
        call = side.calls[call.parent]
    return call


def _is_called_on_several_lines(call: Call, mend: Mend, proof: Proof) -> bool:
    """Tell whether the module of a call with code of its own is called on several lines, and changed for each."""
    side = proof.forward.side
    changed = (side.call_of(side.values[out]) for place in mend.places for out in proof.forward.outs_of(place))
    sites = {
        (each.site.file, each.site.line) for each in changed if each.site is not None and each.source == call.source
    }
    return call.source is not None and len(sites) > 1


def _is_given(side: Side, call: Call, index: int) -> bool:
    """Tell whether a call was given a value, or one that this shows in the same order of axes."""
    given = {each for _, each in side.table.inputs.get(call.index, ())}
    ends = (value for value in side.bases(index) if value.index in given or value.operator in _REORDERING)
    return any(value.index in given for value in islice(ends, 1))


def _has(side: Side, call: Call, index: int) -> bool:
    """Tell whether a call has a value: it was given it, or made it, or it is a weight, or can be made anywhere."""
    is_weight = side.computed(side.values[index]).origin in ("parameter", "buffer")
    comes_from = (side.values[each].origin for each in side.ancestors(index))
    return side.has(call, index) or is_weight or {"input", "parameter"}.isdisjoint(comes_from)

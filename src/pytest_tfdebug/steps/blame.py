"""Who is to blame for a gradient: the first place where it differs, the line, and what proves it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import counted, listed
from pytest_tfdebug.module_path import holder
from pytest_tfdebug.parity.claims import Claim, Evidence
from pytest_tfdebug.parity.find.values import explain, lines_of
from pytest_tfdebug.parity.result import ParityReport
from pytest_tfdebug.parity.settle import settle, settled
from pytest_tfdebug.records import Coverage
from pytest_tfdebug.steps.causes import CauseSearch
from pytest_tfdebug.steps.compare import BackwardPair
from pytest_tfdebug.steps.gradients import SAME

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pytest_tfdebug.records import Culprit, SourceRange
    from pytest_tfdebug.steps.causes import Cause
    from pytest_tfdebug.steps.compare import HeldGradients, Wrong
    from pytest_tfdebug.steps.remedies import Remedy
    from pytest_tfdebug.steps.table import Backward
    from pytest_tfdebug.values import Line

    #: Makes the port's backward again, with a change.
    Again = Callable[[Remedy], Backward]

logger = logging.getLogger(__name__)

#: Remedies that are tried to prove a cause: each is a forward and a backward.
_TRIALS = 6
_SUBJECT = "The backward differs from the reference's"
_ADVICE = "Mend the port's line: its forward agrees, so only training shows it."


def hold_backward(
    expected: Backward,
    actual: Backward,
    again: Again | None = None,
    unseen: frozenset[str] = frozenset(),
    trained: frozenset[str] = frozenset(),
) -> ParityReport:
    """Hold a backward to that of a reference.

    Args:
        expected: The reference's.
        actual: The port's.
        again: Makes the port's once more with a change, to prove a cause; None where nothing can be run again.
        unseen: Parameters of the port whose gradient does not count: no optimiser sees it.
        trained: Parameters of which steps have shown that their gradients are right; the loss is then, too.
    """
    pair = BackwardPair(expected, actual)
    compared = pair.compare(unseen, trained)
    culprit, notes = _blamed(pair, compared, again, is_trained=bool(trained))
    left_out = [*_unseen(compared)]
    return ParityReport(
        culprit,
        [],
        [],
        compared.values + compared.parameters,
        notes=[*notes, *left_out],
        unseen=left_out,
        facts=[*_facts(pair, compared)] if culprit is not None else [],
        subject=_SUBJECT,
        advice=_ADVICE if culprit is not None and culprit.kind == "gradient" else "",
        coverage=Coverage(compared.parameters, compared.parameters + len(compared.unpaired), root=True),
        by_values=True,
        agreement=_agreement(pair, compared),
    )


def _blamed(
    pair: BackwardPair, compared: HeldGradients, again: Again | None, *, is_trained: bool
) -> tuple[Culprit | None, list[str]]:
    if not pair.has_same_loss and not is_trained:
        return _of_loss(pair)
    notes = [] if pair.has_same_loss else [f"{_losses(pair)}: what is trained is the same."]
    return None if compared.first is None else _of_gradient(pair, compared.first, again), notes


def _agreement(pair: BackwardPair, compared: HeldGradients) -> str:
    told = f"gradients of {compared.values} values and {counted(compared.parameters, 'parameter')}"
    worst = f"worst {compared.worst / SAME:.1g} of tolerance"
    loss = f"loss, {pair.port.loss:.6g}, and the " if pair.has_same_loss else ""
    return f"Parity: the {loss}{told} agree ({worst})."


def _losses(pair: BackwardPair) -> str:
    return f"The loss is {pair.port.loss:.6g}, and the reference's {pair.reference.loss:.6g}"


def _of_loss(pair: BackwardPair) -> tuple[Culprit, list[str]]:
    """Return who is to blame where the forward itself differs, as the forward's values say."""
    port, reference = pair.port, pair.reference
    look = explain(reference.values, port.values, fails=True)
    told = f"{_losses(pair)}: the forward differs already."
    if look.claim is not None:
        return settle(look.claims)[0], [told, *look.notes]
    value = port.values.values[port.last or 0]
    call = pair.sides[1].call_of(value)
    wrong = "gives another loss"
    if reference.loss and port.loss:
        wrong = f"gives {port.loss / reference.loss:.6g} times the reference's loss"
    theirs = reference.values.values[reference.last or 0]
    lines = _source(value.lines), _source(theirs.lines)
    claim = Claim(call.path, "loss", Evidence.LOSS, call.class_name, told, wrong, *lines)
    return settled(claim), look.notes


def _of_gradient(pair: BackwardPair, wrong: Wrong, again: Again | None) -> Culprit:
    causes = CauseSearch(pair, wrong).causes()
    proved = None if again is None else _proved(causes, pair.reference, again)
    cause = proved or causes[0]
    side = pair.sides[1]
    call = side.calls[cause.call] if cause.call is not None else side.root
    if not cause.lines and wrong.parameter:
        path = holder(wrong.parameter)
        call = next((each for each in side.table.calls if each.path == path), call)
    unproved = Evidence.SEEN_IN_BACKWARD if cause.is_seen else Evidence.GRADIENT
    claim = Claim(
        call.path,
        "gradient",
        Evidence.GRADIENT_PROOF if proved is not None else unproved,
        call.class_name,
        _observed(pair, wrong),
        cause.wrong,
        _source(cause.lines),
        _source(cause.reference) or _source(_expected_lines(pair, wrong)),
        "" if proved is None else f"{_mended(proved)}, every gradient agrees",
    )
    return settled(claim)


def _observed(pair: BackwardPair, wrong: Wrong) -> str:
    if wrong.parameter:
        what = f"The parameter {wrong.parameter}"
    else:
        value = pair.port.values.values[wrong.value or 0]
        lines = _source(value.lines)
        what = f"What {value.operator or 'the forward'} gives" + (f" at {lines}" if lines else "")
    others = sum(len(mates) > 0 for mates in pair.across)
    told = "everything after it in the forward agrees" if others else "it is the first that differs"
    return f"{what} {wrong.effect}, and {told}."


def _expected_lines(pair: BackwardPair, wrong: Wrong) -> tuple[Line, ...]:
    """Return the reference's lines that use the value."""
    users = pair.reference.users()
    found = [user for mate in sorted(wrong.mates) for user in users.get(mate, ()) if user.lines]
    return found[0].lines if found else ()


def _mended(cause: Cause) -> str:
    if cause.mended or cause.remedy is None:
        return cause.mended
    return f"with {cause.remedy.factor:.4g} times what is sent back here"


def _facts(pair: BackwardPair, compared: HeldGradients) -> Iterator[str]:
    wrong = [each for each in compared.wrong if each.parameter]
    for effect in dict.fromkeys(str(each.effect) for each in wrong):
        names = [each.parameter for each in wrong if str(each.effect) == effect]
        told = effect.replace("gets", "get", 1).replace("its", "their", 1) if len(names) > 1 else effect
        yield f"{counted(len(names), 'parameter')} {told}: {listed(names, 3)}."
    if pair.has_same_loss:
        agree = counted(compared.parameters - len(wrong), "parameter")
        yield f"The loss agrees, {pair.port.loss:.6g}; so do the gradients of {agree}."


def _unseen(compared: HeldGradients) -> Iterator[str]:
    yield from uncompared(compared.unpaired, compared.missing)
    if compared.silent:
        yield f"Without a gradient on both sides, so that nothing was checked: {listed(compared.silent)}."


def uncompared(unpaired: Sequence[str], missing: Sequence[str]) -> Iterator[str]:
    """Say which parameters were not compared."""
    if unpaired:
        yield f"Not compared, for no parameter of the reference holds their numbers: {listed(unpaired)}."
    if missing:
        yield f"Parameters of the reference that the port does not hold: {listed(missing)}."


def _source(lines: Sequence[Line]) -> SourceRange | None:
    return lines_of(lines[0]) if lines else None


def _proved(causes: Sequence[Cause], expected: Backward, again: Again) -> Cause | None:
    """Run the port again with the change of each cause, and return the first with which every gradient agrees."""
    for cause in [each for each in causes if each.remedy is not None][:_TRIALS]:
        if cause.remedy is None:
            continue
        try:
            found = BackwardPair(expected, again(cause.remedy)).compare()
        except Exception:  # a change that does not run proves nothing, and must not cost the report
            logger.debug("a run with %s failed", cause.remedy, exc_info=True)
            continue
        if not found.wrong:
            return cause
    return None

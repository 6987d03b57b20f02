"""Who is to blame for a step: the first thing of a training that is done otherwise, and the change that shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError, counted
from pytest_tfdebug.module_path import holder
from pytest_tfdebug.parity.claims import Claim
from pytest_tfdebug.parity.find.values import lines_of
from pytest_tfdebug.parity.result import ParityReport
from pytest_tfdebug.parity.settle import settled
from pytest_tfdebug.records import Coverage
from pytest_tfdebug.steps.blame import hold_backward, uncompared
from pytest_tfdebug.steps.compare import BackwardPair
from pytest_tfdebug.steps.gradient_faults import GRADIENT
from pytest_tfdebug.steps.step_faults import StepFaults
from pytest_tfdebug.steps.training_pair import TrainingPair

if TYPE_CHECKING:
    from pytest_tfdebug.steps.blame import Again
    from pytest_tfdebug.steps.gradient_faults import StepFault
    from pytest_tfdebug.steps.training import Training

_SUBJECT = "The training differs from the reference's"


def hold_training(expected: Training, actual: Training, again: Again | None = None) -> ParityReport:
    """Hold a training to that of a reference: each step, and the backward of the first where a gradient differs."""
    pair = TrainingPair(expected, actual)
    if not pair.pairs.paired:
        raise TFDebugError(
            "No parameter of the port holds the numbers of one of the reference's, so that no step could be compared.\n"
            "Load the reference's weights into the port before the check."
        )
    fault = StepFaults(pair).first()
    if fault is not None and fault.wrong != GRADIENT:
        return _report(pair, fault)
    if pair.is_accumulated:
        report = _of_sums(pair)
    else:
        trained, unseen = frozenset[str](), pair.unseen(1)
        if fault is None:
            trained, unseen = frozenset(pair.pairs.paired), pair.silent
        scale = 1 / BackwardPair(expected.backward, actual.backward).scale  # of the loss, which a scaler undoes later
        remade = None if again is None else (lambda remedy: again(remedy).times(scale))
        report = hold_backward(expected.backward, actual.backward.times(scale), remade, unseen, trained)
    if not report:
        return report
    if fault is not None:
        return _report(pair, fault)
    told = f"{report.agreement} So do {counted(len(actual.steps), 'step')} of {actual.steps[0].optimizer}."
    return replace(report, agreement=told)


def _of_sums(pair: TrainingPair) -> ParityReport:
    """Return the report on a training that makes another number of backwards in a step: their values are others."""
    counts = [counted(len(side.steps[0].batches), "backward") for side in (pair.actual, pair.expected)]
    count = len(pair.pairs.paired)
    told = f"Parity: the gradients of {counted(count, 'parameter')} agree, of {counts[0]} here and {counts[1]} there; "
    told += "the values behind them were not compared."
    coverage = Coverage(count, count + len(pair.pairs.unpaired), root=True)
    left_out = [*uncompared(pair.pairs.unpaired, pair.pairs.missing)]
    return ParityReport(
        None,
        [],
        [],
        count,
        notes=left_out,
        unseen=left_out,
        subject=_SUBJECT,
        coverage=coverage,
        by_values=True,
        agreement=told,
    )


def _report(pair: TrainingPair, fault: StepFault) -> ParityReport:
    side = BackwardPair(pair.expected.backward, pair.actual.backward).sides[1]
    call, name = side.root, fault.parameters[0] if len(fault.parameters) == 1 else ""
    if name:
        path = holder(name)
        call = next((each for each in side.table.calls if each.path == path), call)
    source = fault.source or (lines_of(fault.lines[0]) if fault.lines else call.source)
    claim = Claim(
        call.path,
        "step",
        fault.evidence,
        call.class_name,
        fault.why,
        fault.wrong,
        source,
        lines_of(fault.reference[0]) if fault.reference else None,
        fault.proved,
    )
    culprit = settled(claim)
    count = len(pair.pairs.paired)
    return ParityReport(
        culprit, [], [], count, subject=_SUBJECT, coverage=Coverage(count, count, root=True), by_values=True
    )

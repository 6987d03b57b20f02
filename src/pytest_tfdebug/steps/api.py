"""``compare_steps``: a port's training held to a reference's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.steps.blame import hold_backward
from pytest_tfdebug.steps.blame_steps import hold_training
from pytest_tfdebug.steps.run import TrainedModel, plain_run
from pytest_tfdebug.steps.table import Backward
from pytest_tfdebug.steps.training import Training
from pytest_tfdebug.tracing.trace import check_model

if TYPE_CHECKING:
    import torch

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.steps.blame import Again
    from pytest_tfdebug.steps.run import Run


def compare_steps(
    reference: torch.nn.Module,
    port: torch.nn.Module,
    batch: Any,  # noqa: ANN401 - whatever the runs take
    *,
    run: Run | None = None,
    port_run: Run | None = None,
) -> ParityReport:
    """Hold the training of a port to that of a reference: name the line that spoils a gradient, or what a step does.

    Both get the same batch, the same random numbers and the same weights, which the caller has loaded. Gradients are
    compared of every value that both compute, whatever the names and the structure, and of every parameter, row by row.
    Both models are left as they were.

    Args:
        reference: The model that is right.
        port: The model under test.
        batch: What both are run with; tensors and anything around them.
        run: ``run(model, batch)`` returns a loss of one number, of which the backward is made; or it trains by itself,
            with its own backward, optimiser, scheduler and as many steps as it likes, and returns None. Each step
            of its optimiser is then compared too. By default it is ``model(**batch).loss``.
        port_run: The same for the port, where it is run otherwise.

    Returns:
        The report; false where something differs. ``report.culprit.kind`` is ``"gradient"``, or what a comparison of
        forwards says, or ``"loss"``, where the loss differs already, or ``"step"``, where the optimiser does otherwise.

    Raises:
        TFDebugError: If a run returns no loss, or one without a gradient.
    """
    check_model(reference, {}, "compare_steps")
    check_model(port, {}, "compare_steps")
    if reference is port:
        raise TFDebugError("The port is the reference itself, so nothing could differ: give two models.")
    run = run or plain_run
    theirs, own = TrainedModel(reference, run, batch, "reference"), TrainedModel(port, port_run or run, batch, "port")
    return held(theirs.made(), own.made(), own.backward)


def held(expected: Backward | Training, actual: Backward | Training, again: Again | None = None) -> ParityReport:
    """Hold what a run of the port made to what one of the reference made."""
    if isinstance(expected, Training) and isinstance(actual, Training):
        return hold_training(expected, actual, again)
    if isinstance(expected, Backward) and isinstance(actual, Backward):
        return hold_backward(expected, actual, again)
    told = {True: "makes steps by itself", False: "returns a loss"}
    raise TFDebugError(
        f"The run of the reference {told[isinstance(expected, Training)]}, and the port's "
        f"{told[isinstance(actual, Training)]}: let both do the same."
    )

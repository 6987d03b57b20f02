"""``compare_steps``: a port's training held to a reference's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.steps.blame import hold_backward
from pytest_tfdebug.steps.run import TrainedModel, plain_run
from pytest_tfdebug.tracing.trace import check_model

if TYPE_CHECKING:
    import torch

    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.steps.run import Run


def compare_steps(
    reference: torch.nn.Module,
    port: torch.nn.Module,
    batch: Any,  # noqa: ANN401 - whatever the runs take
    *,
    run: Run | None = None,
    port_run: Run | None = None,
) -> ParityReport:
    """Hold the backward of a port to that of a reference, and name the line that spoils a gradient.

    Both get the same batch, the same random numbers and the same weights, which the caller has loaded. Gradients are
    compared of every value that both compute, whatever the names and the structure, and of every parameter, row by row.
    Both models are left as they were.

    Args:
        reference: The model that is right.
        port: The model under test.
        batch: What both are run with; tensors and anything around them.
        run: ``run(model, batch)`` returns a loss of one number. By default it is ``model(**batch).loss``.
        port_run: The same for the port, where it is run otherwise.

    Returns:
        The report; false where something differs. ``report.culprit.kind`` is ``"gradient"``, or what a comparison of
        forwards says, or ``"loss"``, where the loss differs already.

    Raises:
        TFDebugError: If a run returns no loss, or one without a gradient.
    """
    check_model(reference, {}, "compare_steps")
    check_model(port, {}, "compare_steps")
    if reference is port:
        raise TFDebugError("The port is the reference itself, so nothing could differ: give two models.")
    run = run or plain_run
    theirs, own = TrainedModel(reference, run, batch, "reference"), TrainedModel(port, port_run or run, batch, "port")
    return hold_backward(theirs.backward(), own.backward(), own.backward)

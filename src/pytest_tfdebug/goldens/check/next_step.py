"""What to do about a check that failed: one table, by what is known of the failure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_tfdebug.parity.result import ParityReport

_UPDATE = "if the change is meant, run with --tf-golden=update."


class _FailedCheck(NamedTuple):
    """What the table asks of a failed check."""

    kind: str
    is_reference: bool
    has_own_inputs: bool
    is_drift: bool  # nothing jumps, and the environment is another


#: The first row that holds says what to do.
_TABLE: tuple[tuple[Callable[[_FailedCheck], bool], str], ...] = (
    (lambda it: it.kind == "inputs" and it.has_own_inputs, "Give port_inputs= the tensors of the reference's inputs."),
    (lambda it: it.kind == "inputs", f"Use fixed inputs (seeded, or written out); {_UPDATE}"),
    (lambda it: it.kind == "random", "Call .eval() on the model, or seed what it draws."),
    (lambda it: it.kind == "dtype", f"Give the model its dtype back; {_UPDATE}"),
    (lambda it: it.kind == "weights" and it.is_reference, "Fix how the port's weights are loaded or converted."),
    (
        lambda it: it.kind == "weights",
        f"Give the model fixed weights: seed it, or pytest_tfdebug.fill(model); {_UPDATE}",
    ),
    (lambda it: it.is_drift, "If the new environment explains it, run with --tf-golden=update."),
    (lambda it: it.is_reference, "Fix the port; do not update the golden."),
    (lambda _: True, "To accept the new values, run with --tf-golden=update."),
)


def next_step(report: ParityReport, *, is_reference: bool) -> str:
    """Return what to do about a failed check, in a sentence."""
    kind = report.culprit.kind if report.culprit is not None else ""
    failure = _FailedCheck(kind, is_reference, report.has_own_inputs, report.is_drift)
    return report.advice or next(told for holds, told in _TABLE if holds(failure))

"""An invariance check that has ended, as the record that pages and files are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.check_record import CheckRecord
from pytest_tfdebug.errors import counted
from pytest_tfdebug.invariance.calls.model_traits import unwrapped
from pytest_tfdebug.invariance.compare.aligned_traces import tensor_of
from pytest_tfdebug.parity.record.check import compared, culprit_record
from pytest_tfdebug.parity.record.forward import forward_record
from pytest_tfdebug.parity.tensors.elements import axis_names, element_grid

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pytest_tfdebug.check_record import ElementGrid
    from pytest_tfdebug.errors import InvarianceError
    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.checks.base import Outcome
    from pytest_tfdebug.invariance.explain.culprit import Located
    from pytest_tfdebug.records import SourceRange


def passed_record(
    test: str, name: str, outcome: Outcome, calls: Sequence[ObservedCall], at: SourceRange | None
) -> CheckRecord:
    """Return the record of a check that found nothing."""
    models, notes = ", ".join(dict.fromkeys(map(class_of, calls))), tuple(outcome.notes)
    told = notes[0] if notes else f"{models}: {counted(outcome.repeats, 'forward')} made again, with the same answer."
    return CheckRecord(test, _kind(name), "passed", told, model=models, at=at, repeats=outcome.repeats, notes=notes)


def failed_record(
    test: str, name: str, error: InvarianceError, at: SourceRange | None, *, in_detail: bool
) -> CheckRecord:
    """Return the record of a check that failed."""
    outcome: Outcome | None = error.outcome
    located = outcome.located if outcome is not None else None
    parity = located.parity if located is not None else None
    return CheckRecord(
        test,
        _kind(name),
        "failed",
        error.answer,
        model=class_of(error.call) if error.call is not None else "",
        at=at,
        diagnosis=outcome.diagnosis if outcome is not None else "",
        text=str(error) if in_detail else "",
        forward=forward_record(parity, _elements(located)) if in_detail and parity is not None and located else None,
        **{**(compared(parity) if parity is not None else {}), "culprit": culprit_record(error.culprit)},
    )


def _kind(name: str) -> str:
    """Return the check's name in records: that of the marker, where it has one of its own."""
    return "padding_invariant" if name == "padding" else name


def class_of(call: ObservedCall) -> str:
    """Return the class of the model that was called."""
    return type(unwrapped(call.model)).__name__


def _elements(located: Located) -> ElementGrid | None:
    """Return the elements of the tensor that shows the difference."""
    divergence = located.divergence
    if divergence is None or located.traces is None:
        return None
    expected, actual = (tensor_of(trace, divergence) for trace in (located.traces.expected, located.traces.actual))
    if expected is None or actual is None:
        return None
    axes = located.traces.axes_of(divergence)
    names = list(axis_names(tuple(expected.shape), (expected.shape[0], located.traces.real) if expected.dim() else ()))
    for place in axes[:1]:
        names[place] = "real token"
    allowed = located.tolerances.of(divergence.path, divergence.comparison.dtype)
    what = f"{divergence.direction} {divergence.leaf}".rstrip() + f" of {divergence.path}"
    return element_grid(what, expected, actual, allowed, names)

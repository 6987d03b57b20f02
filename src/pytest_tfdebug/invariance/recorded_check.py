"""An invariance check that has ended, as the record that pages and files are made from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.check_record import CheckRecord, TokenGrid
from pytest_tfdebug.errors import counted
from pytest_tfdebug.invariance.calls.model_traits import unwrapped
from pytest_tfdebug.invariance.compare.aligned_traces import off_by, tensor_of
from pytest_tfdebug.parity.record.check import compared, culprit_record
from pytest_tfdebug.parity.record.forward import forward_record
from pytest_tfdebug.parity.tensors.elements import axis_names, element_grid
from pytest_tfdebug.records import CallComparison, as_they_ended

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pytest_tfdebug.check_record import ElementGrid
    from pytest_tfdebug.errors import InvarianceError
    from pytest_tfdebug.invariance.calls.observed_call import ObservedCall
    from pytest_tfdebug.invariance.checks.base import Outcome
    from pytest_tfdebug.invariance.compare.aligned_traces import AlignedTraces
    from pytest_tfdebug.invariance.explain.culprit import Located
    from pytest_tfdebug.parity.tensors.tolerance import Tolerances
    from pytest_tfdebug.records import SourceRange

#: Most rows and columns of the grid of tokens; more tokens share a column.
_MODULES, _TOKENS = 200, 256


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
        tokens=token_grid(located) if in_detail and located is not None else None,
        **{**(compared(parity) if parity is not None else {}), "culprit": culprit_record(error.culprit)},
    )


def _kind(name: str) -> str:
    """Return the check's name in records: that of the marker, where it has one of its own."""
    return "padding_invariant" if name == "padding" else name


def class_of(call: ObservedCall) -> str:
    """Return the class of the model that was called."""
    return type(unwrapped(call.model)).__name__


def token_grid(located: Located) -> TokenGrid | None:
    """Return how far each real token is off after each module; None where no tensor runs along the tokens."""
    if located.traces is None:
        return None
    rows = list(_by_module(located.traces, located.tolerances))
    if not rows:
        return None
    shape = max((tuple(shares.shape) for _, shares in rows), key=lambda shape: (shape[0] * shape[1], shape))
    rows = [(name, shares) for name, shares in rows if tuple(shares.shape) == shape][-_MODULES:]
    tokens = shape[0] * shape[1]
    block = -(-tokens // _TOKENS)
    columns = -(-tokens // block)
    found: list[float] = []
    for _, shares in rows:
        padded = torch.nn.functional.pad(shares.flatten(), (0, columns * block - tokens))
        found += [float(f"{number:.4g}") for number in padded.reshape(columns, block).amax(1).tolist()]
    return TokenGrid(tuple(name for name, _ in rows), tokens, shape[0], tuple(found), block)


def _by_module(traces: AlignedTraces, allowed: Tolerances) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the name of each call and the shares of its output, ``(batch, tokens)``."""
    actual = {(call.path, call.call): call for call in traces.actual}
    for item in as_they_ended([CallComparison(call, None) for call in traces.expected]):
        expected, other = item.call, actual.get((item.call.path, item.call.call))
        for one in expected.outputs or ():
            axes = traces.axes.get((expected.path, expected.call, "output", one.leaf), ())
            two = next((leaf for leaf in (other.outputs if other else ()) or () if leaf.leaf == one.leaf), None)
            if axes and two is not None and one.tensor is not None and two.tensor is not None:
                if one.tensor.shape == two.tensor.shape and one.tensor.is_floating_point():
                    off = off_by(one.tensor, two.tensor, allowed.of(expected.path, one.dtype))
                    yield expected.name, traces.by_token(off, axes[0]).amax(2)
                break


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

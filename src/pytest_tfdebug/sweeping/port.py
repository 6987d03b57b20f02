"""A port, built anew for each variant of a configuration, beside its reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.errors import TFDebugError, listed
from pytest_tfdebug.goldens.port_call import port_call
from pytest_tfdebug.parity.compare import compare
from pytest_tfdebug.sweeping.reference import Answer, Forward, answer, apart, called, shared
from pytest_tfdebug.tracing.trace import trace

if TYPE_CHECKING:
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.sweeping.reference import Reference, Variant
    from pytest_tfdebug.sweeping.result import FieldRow
    from pytest_tfdebug.sweeping.search import Move

Build = Callable[[Any], Any]
Load = Callable[[Any, torch.nn.Module], object]

#: A port that agrees may be so many times as far from its reference as it is at the given configuration.
_SPREAD = 4.0


class _Held(NamedTuple):
    """A port of one variant, beside the reference whose weights it has."""

    port: Any
    reference: torch.nn.Module
    unmatched: str  # parameters that it has otherwise than the reference, in words
    answer: Answer | None  # what it gives; None where its parameters are not those of the reference

    def error(self, variant: Variant) -> float:
        """Return how far the port is from its reference."""
        return float("inf") if self.answer is None else apart(*shared(variant.answer, self.answer))

    def moved(self, before: _Held) -> float:
        """Return how far the port moved; inf where its parameters or shapes changed."""
        if _shapes(before.port) != _shapes(self.port):
            return float("inf")
        return 0.0 if before.answer is None or self.answer is None else apart(before.answer, self.answer)


class Port:
    """How a port is built, given weights, and called.

    Raises:
        TFDebugError: If it cannot be run with the configuration as it is, or differs there.
    """

    def __init__(self, build: Build, reference: Reference, load: Load | None, forward: Forward) -> None:
        self._build, self._reference, self._load, self._forward = build, reference, load, forward
        try:
            self._base = self._hold(reference.base)
        except Exception as error:
            raise TFDebugError(f"The port cannot be run with the configuration as it is: {_told(error)}") from error
        if self._base.unmatched:
            raise TFDebugError(
                f"The port's parameters are not the reference's: {self._base.unmatched}.\n"
                "Give load=lambda port, reference: ..., which copies the weights."
            )
        own = self._base.error(reference.base)
        if not own <= reference.bound:
            report = self._compared(self._base)
            told = f"\n{report}" if report is not None and not report.ok else ""
            raise TFDebugError(
                f"The port differs from {reference.name} by {own:.2g} of its output before any field changes, "
                f"so no field was compared.{told}"
            )
        self._bound = max(reference.bound, _SPREAD * own)

    def judged(self, row: FieldRow, move: Move) -> FieldRow | None:
        """Return a row with the verdict on the port; None where the port cannot be judged there."""
        if move.distance <= 2 * self._bound:
            return None
        try:
            before = self._hold(move.base) if move.changes else self._base
            after = self._hold(move.variant)
        except Exception as error:  # noqa: BLE001 - every port refuses in its own way
            return replace(row, verdict="refused", note=_told(error))
        if before.error(move.base) > self._bound:
            return None
        off, moved = after.error(move.variant), after.moved(before)
        row = replace(row, port_moved=moved, error=off, note="; ".join(filter(None, (row.note, after.unmatched))))
        if off <= self._bound:
            return replace(row, verdict="agrees")
        return replace(row, verdict="ignored" if moved <= self._bound else "differs", report=self._compared(after))

    def _hold(self, variant: Variant) -> _Held:
        reference, port = variant.build(), self._build(variant.config)
        unmatched = ""
        if isinstance(port, torch.nn.Module):
            port = port.float().eval()
        if self._load is not None:
            self._load(port, reference)
        elif isinstance(port, torch.nn.Module):
            unmatched = load_strictly(port, reference)
        else:
            raise TFDebugError(f"{type(port).__name__} is not a torch.nn.Module: give load=lambda port, reference: ...")
        given = None if unmatched else answer(port, self._reference.inputs, self._forward)
        return _Held(port, reference, unmatched, given)

    def _compared(self, held: _Held) -> ParityReport | None:
        """Return what a comparison of both forwards says; None where the port is called in a way of its own."""
        if held.unmatched or self._forward is not called or not isinstance(held.port, torch.nn.Module):
            return None
        inputs = dict(self._reference.inputs)
        try:
            call = port_call(held.port, (), inputs)
            return compare(trace(held.reference, **inputs), trace(held.port, *call.args, **call.kwargs))
        except Exception:  # noqa: BLE001 - what explains nothing must not cost the row
            return None


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def load_strictly(port: torch.nn.Module, reference: torch.nn.Module) -> str:
    """Give a port the weights of its reference by name; return what does not fit in words, and then load nothing.

    A name that the port lacks is no matter where it has another name of the same tensor: tied weights. Tables that a
    model computes it has itself.
    """
    own, theirs = (dict(each.named_parameters(remove_duplicate=False)) for each in (port, reference))
    taken = {id(theirs[name]) for name in own if name in theirs}
    wrong = {
        "the reference alone has": [name for name in theirs if name not in own and id(theirs[name]) not in taken],
        "the port alone has": [name for name in own if name not in theirs],
        "other shapes:": [name for name in own if name in theirs and own[name].shape != theirs[name].shape],
    }
    told = [f"{which} {listed(names, 2)}" for which, names in wrong.items() if names]
    for name in () if told else own:
        own[name].data.copy_(theirs[name])
    return "; ".join(told)


def _shapes(port: Any) -> dict[str, torch.Size]:  # noqa: ANN401 - of any runtime
    named = port.named_parameters(remove_duplicate=False) if isinstance(port, torch.nn.Module) else ()
    return {name: tensor.shape for name, tensor in named}

"""A port, built anew for each variant of a configuration, beside its reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from pytest_tfdebug.errors import TFDebugError, listed
from pytest_tfdebug.goldens.check.port_call import port_call
from pytest_tfdebug.parity.compare import compare
from pytest_tfdebug.sweeping.forwards import Answer, Forward, Inputs, answer, apart, called, shared
from pytest_tfdebug.tracing.trace import trace

if TYPE_CHECKING:
    from pytest_tfdebug.parity.result import ParityReport
    from pytest_tfdebug.sweeping.reference import Variant

Build = Callable[[Any], Any]
Load = Callable[[Any, torch.nn.Module], object]
Shapes = dict[str, tuple[int, ...]]


class Held(NamedTuple):
    """What a port gave for one variant.

    Args:
        answer: Its outputs; None where its parameters are not those of the reference.
        shapes: Its parameters, where the sweep loads them.
        unmatched: Parameters that it has otherwise than the reference, in words; empty where they fit.
    """

    answer: Answer | None
    shapes: Shapes
    unmatched: str = ""


class Refused(Exception):  # noqa: N818 - the port's error is what matters
    """A port raised."""


@dataclass(frozen=True)
class Port:
    """How a port is built, given weights, and called.

    Args:
        build: Returns the port for a configuration.
        inputs: The reference's inputs.
        load: Gives it the reference's weights; None where its state dict has the reference's names and shapes.
        forward: Calls it.
    """

    build: Build
    inputs: Inputs
    load: Load | None = None
    forward: Forward = called

    def hold(self, variant: Variant) -> Held:
        """Return what the port gives for a variant, with the weights of its reference.

        Raises:
            Refused: If it cannot be built, loaded or called.
        """
        reference = variant.build()
        try:
            port, shapes, unmatched = self._made(variant, reference)
            return Held(None if unmatched else answer(port, self.inputs, self.forward), shapes, unmatched)
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {error}".partition("\n")[0]) from error

    def _made(self, variant: Variant, reference: torch.nn.Module) -> tuple[Any, Shapes, str]:
        port = self.build(variant.config)
        if isinstance(port, torch.nn.Module):
            port = port.float().eval()
        if self.load is not None:
            self.load(port, reference)
            return port, {}, ""
        if not isinstance(port, torch.nn.Module):
            raise TFDebugError(f"{type(port).__name__} is no torch.nn.Module: give load=lambda port, reference: ...")
        unmatched = load_strictly(port, reference)
        return port, _shapes(port), unmatched

    def compared(self, variant: Variant) -> ParityReport | None:
        """Return what a comparison of both forwards says; None where the port is called in a way of its own."""
        reference = variant.build()
        try:
            port, _, unmatched = self._made(variant, reference)
            if unmatched or self.forward is not called or not isinstance(port, torch.nn.Module):
                return None
            call = port_call(port, (), dict(self.inputs))
            return compare(trace(reference, **self.inputs), trace(port, *call.args, **call.kwargs))
        except Exception:  # noqa: BLE001 - what explains nothing must not cost the row
            return None


def load_strictly(port: torch.nn.Module, reference: torch.nn.Module) -> str:
    """Give a port the weights of its reference by name; return what does not fit in words, and then load nothing.

    A name that the port lacks is no matter where it has another name of the same tensor: tied weights.
    """
    own, theirs = _shapes(port), _shapes(reference)
    held = dict(reference.named_parameters(remove_duplicate=False)) | dict(reference.named_buffers())
    taken = {id(held[name]) for name in own if name in held}
    missing = [name for name in theirs if name not in own and id(held[name]) not in taken]
    extra = [name for name in own if name not in theirs]
    reshaped = [name for name in own if name in theirs and own[name] != theirs[name]]
    told = [
        f"{which} {listed(names, 2)}"
        for which, names in (
            ("the reference alone has", missing),
            ("the port alone has", extra),
            ("other shapes:", reshaped),
        )
        if names
    ]
    if not told:
        state = reference.state_dict()
        with torch.no_grad():
            for name, tensor in _tensors(port).items():
                tensor.copy_(state[name])
    return "; ".join(told)


def _tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the tensors of a state dict that are trained; tables that a model computes it has itself."""
    named = dict(model.named_parameters(remove_duplicate=False))
    return {name: tensor for name, tensor in model.state_dict(keep_vars=True).items() if name in named}


def _shapes(model: torch.nn.Module) -> Shapes:
    return {name: tuple(tensor.shape) for name, tensor in _tensors(model).items()}


def error_of(variant: Variant, held: Held) -> float:
    """Return how far a port is from its reference."""
    return float("inf") if held.answer is None else apart(*shared(variant.answer, held.answer))


def moved(before: Held, after: Held) -> float:
    """Return how far a port moved between two variants; inf where its parameters or shapes changed."""
    if before.shapes != after.shapes:
        return float("inf")
    if before.answer is None or after.answer is None:
        return 0.0
    return apart(before.answer, after.answer)

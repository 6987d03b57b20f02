"""What a user would pick instead, and the floors: what the same bytes cost without any of it."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from transformers import model_addition_debugger_context
from transformers.debug_utils import DebugUnderflowOverflow

import pytest_tfdebug
from measuring.work import Kind, Place

if TYPE_CHECKING:
    from collections.abc import Callable

    from measuring.work import Work


def _bare(work: Work, _place: Place) -> Callable[[], object]:
    return work.forward


def _hooks(keep: Callable[[torch.Tensor], object]) -> Callable[[Work, Place], Callable[[], object]]:
    """Return hooks on every module that keep what ``keep`` makes of each input and output."""

    def make(work: Work, _place: Place) -> Callable[[], object]:
        def hooked() -> list[Any]:
            kept: list[Any] = []

            def hook(_module: object, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:  # noqa: ANN401
                outputs = output if isinstance(output, tuple) else (output,)
                values = (*args, *kwargs.values(), *outputs)
                kept.append([keep(value) for value in values if isinstance(value, torch.Tensor)])

            handles = [module.register_forward_hook(hook, with_kwargs=True) for module in work.model.modules()]
            work.forward()
            for handle in handles:
                handle.remove()
            return kept

        return hooked

    return make


def _transformers_debugger(work: Work, place: Place) -> Callable[[], object]:
    def debugged() -> None:
        with model_addition_debugger_context(work.model, str(place.scratch), do_prune_layers=False):
            work.forward()

    return debugged


def _debug_underflow_overflow(work: Work, _place: Place) -> Callable[[], object]:
    def debugged() -> None:
        DebugUnderflowOverflow(work.model)
        try:
            work.forward()
        finally:
            for module in work.model.modules():  # it has no removal of its own
                module._forward_hooks.clear()  # noqa: SLF001

    return debugged


def _localize_divergence(work: Work, _place: Place) -> Callable[[], object]:
    from pytest_torch import localize_divergence

    return lambda: localize_divergence(work.model, work.model, work.inputs, leaf_only=False)


def _torchlens(work: Work, _place: Place) -> Callable[[], object]:
    import torchlens

    def traced() -> Any:  # noqa: ANN401 - its own trace
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torchlens.trace(work.model, input_kwargs=dict(work.inputs))

    return traced


def _save_file(work: Work, place: Place) -> Callable[[], object]:
    tensors = _tensors(work)
    return lambda: save_file(tensors, place.scratch / "same.safetensors")


def _assert_close(work: Work, _place: Place) -> Callable[[], object]:
    first, second = _tensors(work), _tensors(work)
    return lambda: torch.testing.assert_close(first, second)


def _tensors(work: Work) -> dict[str, torch.Tensor]:
    """Return each distinct tensor of a trace once, in memory of its own: what a golden holds."""
    trace = pytest_tfdebug.trace(work.model, **work.inputs)
    distinct = {id(record.tensor): record.tensor for record in trace.records() if record.tensor is not None}
    return {str(number): tensor.contiguous().clone() for number, tensor in enumerate(distinct.values())}


#: The least that a trace can cost: a tensor that is kept cannot lend its memory to the next one.
KEEPING = "hooks that keep references"
BARE: tuple[Kind, ...] = tuple(
    Kind(section, "bare forward", _bare) for section in ("core", "goldens", "explaining", "overflow")
)
PEERS: tuple[Kind, ...] = (
    Kind("core", KEEPING, _hooks(lambda tensor: tensor)),
    Kind("core", "hooks that clone", _hooks(torch.clone)),
    Kind("core", "transformers debugger", _transformers_debugger),
    Kind("core", "pytest-torch localize_divergence", _localize_divergence),
    Kind("core", "torchlens trace", _torchlens),
    Kind("core", "assert_close over the same tensors", _assert_close),
    Kind("goldens", "save_file of the same bytes", _save_file),
    Kind("goldens", "assert_close over the same tensors", _assert_close),
    Kind("overflow", "transformers DebugUnderflowOverflow", _debug_underflow_overflow),
)

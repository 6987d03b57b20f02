"""Leave a model and its random numbers as they were found, whatever its forward does."""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch.nn.parameter import is_lazy

from pytest_tfdebug.tracing.capture import capture

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def preserved(model: torch.nn.Module) -> Iterator[None]:
    """Put back, on leaving the block, what a forward may change: random number generators and buffers.

    A forward in training mode draws dropout masks and updates running statistics; traced twice, it gives the same
    answer twice.
    """
    modes = [(module, module.training) for module in model.modules()]
    plain = [module for module, _ in modes if not isinstance(module, torch.jit.ScriptModule)]
    tables = [(module._buffers, dict(module._buffers)) for module in plain]  # noqa: SLF001 - to put back a rebound name
    buffers = {
        id(buffer): buffer
        for _, before in tables
        for buffer in before.values()
        if buffer is not None and not is_lazy(buffer) and buffer.layout == torch.strided
    }
    values = {key: capture(buffer) for key, buffer in buffers.items()}
    python_state = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            for table, before in tables:
                if table or before:
                    table.clear()
                    table.update(before)
            for key, buffer in buffers.items():
                _put_back(buffer, values[key])
            for module, training in modes:
                if module.training != training:
                    module.training = training
            random.setstate(python_state)
            if numpy is not None:
                numpy.random.set_state(numpy_state)


def _put_back(buffer: torch.Tensor, values: torch.Tensor | None) -> None:
    """Write the old values where the buffer holds others; compared, for ``.data`` writes are not counted by torch."""
    if values is None or (buffer.shape == values.shape and torch.equal(buffer, values)):
        return
    with torch.inference_mode(buffer.is_inference()), torch.no_grad():
        if buffer.shape != values.shape:
            buffer.data = values.clone()
        buffer.copy_(values)


def autocast_of(model: torch.nn.Module) -> tuple[str, torch.dtype] | None:
    """Return device type and dtype of the autocast that is on where the model is; None when it is off."""
    device = next((item.device.type for item in model.parameters()), "cpu")
    return (device, torch.get_autocast_dtype(device)) if torch.is_autocast_enabled(device) else None

"""Leave a model and its random numbers as they were found, whatever its forward does."""

from __future__ import annotations

import random
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.tracing.capture import capture

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def preserved(model: torch.nn.Module) -> Iterator[None]:
    """Put back, on leaving the block, what a forward may change: random number generators and buffers.

    A forward in training mode draws dropout masks and updates running statistics; traced twice, it gives the same
    answer twice.
    """
    buffers = [
        (module, name, buffer, None if buffer.is_inference() else buffer._version, capture(buffer))  # noqa: SLF001
        for module in model.modules()
        for name, buffer in module._buffers.items()  # noqa: SLF001 - a module's own table, to put back a rebound name
        if buffer is not None
    ]
    modes = [(module, module.training) for module in model.modules()]
    python_state = random.getstate()
    numpy = sys.modules.get("numpy")
    numpy_state = numpy.random.get_state() if numpy is not None else None
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
    with torch.random.fork_rng(devices):
        try:
            yield
        finally:
            for module, name, buffer, version, values in buffers:
                if module._buffers.get(name) is not buffer:  # noqa: SLF001
                    module._buffers[name] = buffer  # noqa: SLF001
                if version is not None and values is not None and buffer._version != version:  # noqa: SLF001
                    with torch.no_grad():
                        buffer.copy_(values)
            for module, training in modes:
                module.training = training
            random.setstate(python_state)
            if numpy is not None:
                numpy.random.set_state(numpy_state)

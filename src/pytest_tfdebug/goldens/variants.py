"""Goldens of one test for several environments: ``test_port@cuda.safetensors`` beside ``test_port.safetensors``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.goldens.paths import is_file_name
from pytest_tfdebug.tracing.capture import dtype_name

if TYPE_CHECKING:
    import torch

#: Names that stand for what the model is on or of, beside those that stand for themselves.
_OF_MODEL = ("device", "dtype")


def variants(model: torch.nn.Module, chosen: str | None) -> tuple[str, ...]:
    """Return the variants that may hold a model, the most special one first; the plain golden is tried after them.

    Args:
        model: The model under test.
        chosen: What was asked for: ``device``, ``dtype`` or a name; None to take what is there for the model's device
            and dtype.

    Raises:
        TFDebugError: If a name cannot stand in that of a file.
    """
    device, dtype = _device(model), _dtype(model)
    if chosen is None:
        return (f"{device}-{dtype}", device, dtype)
    if not isinstance(chosen, str) or not is_file_name(chosen) or "@" in chosen:
        raise TFDebugError(
            f"variant={chosen!r} of a golden is 'device', 'dtype' or a name of letters, digits and -_=,+. characters."
        )
    return (dict(zip(_OF_MODEL, (device, dtype), strict=True)).get(chosen, chosen),)


def _device(model: torch.nn.Module) -> str:
    first = next(iter((*model.parameters(), *model.buffers())), None)
    return "cpu" if first is None else first.device.type


def _dtype(model: torch.nn.Module) -> str:
    floats = (tensor for tensor in (*model.parameters(), *model.buffers()) if tensor.is_floating_point())
    first = next(floats, None)
    return "float32" if first is None else dtype_name(first.dtype)

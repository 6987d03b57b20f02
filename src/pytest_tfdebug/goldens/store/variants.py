"""Goldens of one test for several environments: ``test_port@cuda.safetensors`` beside ``test_port.safetensors``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.goldens.store.paths import is_file_name
from pytest_tfdebug.tensors import dtype_name

if TYPE_CHECKING:
    import torch


def variants(model: torch.nn.Module, chosen: str | None) -> tuple[str, ...]:
    """Return the variants that may hold a model, the most special one first; the plain golden is tried after them.

    Args:
        model: The model under test.
        chosen: What was asked for: ``device``, ``dtype`` or a name; None to take what is there for the model's device
            and dtype.

    Raises:
        TFDebugError: If a name cannot stand in that of a file.
    """
    tensors = [*model.parameters(), *model.buffers()]
    device = tensors[0].device.type if tensors else "cpu"
    dtype = next((dtype_name(tensor.dtype) for tensor in tensors if tensor.is_floating_point()), "float32")
    if chosen is None:
        return (f"{device}-{dtype}", device, dtype)
    if not isinstance(chosen, str) or not is_file_name(chosen) or "@" in chosen:
        raise TFDebugError(
            f"variant={chosen!r} of a golden is not 'device', 'dtype' or a name of letters, digits and characters of "
            "-_=,+."
        )
    return ({"device": device, "dtype": dtype}.get(chosen, chosen),)

"""A call's inputs <-> JSON and safetensors: nested plain values, tensors by name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pytest_tfdebug.errors import TFDebugError

#: Values that JSON holds as they are.
_PLAIN = (str, int, float, bool, type(None))
_DOCUMENT, _TENSORS = "inputs.json", "inputs.safetensors"


def save_inputs(directory: Path, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Write a call's inputs to ``inputs.json`` and ``inputs.safetensors``.

    Raises:
        TFDebugError: If an input is neither a tensor, a plain value, a dtype, a device nor a nesting of these.
    """
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    document = _encode({"args": args, "kwargs": dict(kwargs)}, tensors)
    save_file(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, directory / _TENSORS
    )
    (directory / _DOCUMENT).write_text(json.dumps(document, indent=1), encoding="utf-8")


def load_inputs(directory: str | Path) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword inputs that :func:`save_inputs` wrote."""
    from safetensors.torch import load_file

    tensors = load_file(Path(directory) / _TENSORS)
    document = json.loads((Path(directory) / _DOCUMENT).read_text(encoding="utf-8"))
    inputs = _decode(document, tensors)
    return inputs["args"], inputs["kwargs"]


def _encode(value: Any, tensors: dict[str, torch.Tensor]) -> Any:  # noqa: ANN401
    if isinstance(value, torch.Tensor):
        name = f"input_{len(tensors)}"
        tensors[name] = value
        return {"tensor": name}
    if isinstance(value, _PLAIN):
        return {"value": value}
    if isinstance(value, (torch.dtype, torch.device)):
        return {"torch": str(value).removeprefix("torch."), "device": isinstance(value, torch.device)}
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [_encode(item, tensors) for item in value]}
    if isinstance(value, Mapping):
        return {"dict": {str(key): _encode(item, tensors) for key, item in value.items()}}
    raise TFDebugError(f"an input of type {type(value).__name__} cannot be written to a file")


def _decode(bare: Any, tensors: dict[str, torch.Tensor]) -> Any:  # noqa: ANN401
    kind, content = next(iter(bare.items()))
    if kind == "tensor":
        return tensors[content]
    if kind == "value":
        return content
    if kind == "torch":
        return torch.device(content) if bare["device"] else getattr(torch, content)
    if kind == "dict":
        return {key: _decode(item, tensors) for key, item in content.items()}
    items = [_decode(item, tensors) for item in content]
    return items if kind == "list" else tuple(items)

"""A call's inputs <-> JSON and safetensors: nested values, tensors by name.

Values of a class (a named tuple, a dataclass, one that is registered with ``torch.utils._pytree``) are written as what
they are made of, and made again by their class, which is imported from where the test had it.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, cast

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.redaction import MASK, redacted
from pytest_tfdebug.secret_names import is_secret
from pytest_tfdebug.tracing.leaves import flattened, is_registered, unflattened

#: Values that JSON holds as they are.
_PLAIN = (str, int, float, bool, type(None))
_DOCUMENT, _TENSORS = "inputs.json", "inputs.safetensors"


def save_inputs(directory: Path, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Write a call's inputs to ``inputs.json`` and ``inputs.safetensors``, the secrets in their texts masked.

    Raises:
        TFDebugError: If an input is neither a tensor, a plain value, a dtype, a device nor a nesting of these, or its
            class cannot be imported.
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
        return {"value": redacted(value)}
    if isinstance(value, (torch.dtype, torch.device)):
        return {"torch": str(value).removeprefix("torch."), "device": isinstance(value, torch.device)}
    how, parts = _parts(value)
    if isinstance(parts, dict):
        encoded: Any = {
            name: {"value": MASK} if isinstance(part, str) and is_secret(name, part) else _encode(part, tensors)
            for name, part in parts.items()
        }
    else:
        encoded = [_encode(part, tensors) for part in parts]
    return {how: encoded, "class": [type(value).__module__, type(value).__qualname__]}


def _parts(value: Any) -> tuple[str, dict[str, Any] | list[Any]]:  # noqa: ANN401
    """Return how a value is made of others, and of which.

    Raises:
        TFDebugError: If that is not known, or its class cannot be imported.
    """
    kind = cast("type", type(value))
    if kind in (list, tuple):
        return kind.__name__, list(value)
    if kind is dict:
        return "dict", {str(key): item for key, item in value.items()}
    if _imported(kind.__module__, kind.__qualname__) is kind:
        if hasattr(kind, "_fields") or is_dataclass(kind):
            names = kind._fields if hasattr(kind, "_fields") else [item.name for item in fields(kind) if item.init]
            return "fields", {name: getattr(value, name) for name in names}
        if is_registered(kind):
            return "flat", list(flattened(value))
    plain = next((base for base in (list, tuple, dict) if isinstance(value, base)), None)
    plain = dict if isinstance(value, Mapping) else plain
    if plain is None:
        raise TFDebugError(f"an input of type {kind.__name__} cannot be written to a file")
    return _parts(plain(value))


def _decode(bare: Any, tensors: dict[str, torch.Tensor]) -> Any:  # noqa: ANN401
    how, content = next(iter(bare.items()))
    if how in ("tensor", "value"):
        return tensors[content] if how == "tensor" else content
    if how == "torch":
        return torch.device(content) if bare["device"] else getattr(torch, content)
    if isinstance(content, dict):
        parts: Any = {name: _decode(part, tensors) for name, part in content.items()}
        return _imported(*bare["class"])(**parts) if how == "fields" else parts
    parts = [_decode(part, tensors) for part in content]
    if how == "flat":
        return unflattened(_imported(*bare["class"]), *parts)
    return tuple(parts) if how == "tuple" else parts


def _imported(module: str, name: str) -> Any:  # noqa: ANN401 - a class, most often
    """Return what a module holds under a dotted name; None where there is no such thing, as for a local class."""
    try:
        return attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError):
        return None

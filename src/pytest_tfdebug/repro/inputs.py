"""A call's inputs <-> JSON and safetensors: nested values, tensors by name.

Values of a class (a named tuple, a dataclass, one that is registered with ``torch.utils._pytree``) are written as their
parts, and made again by their class, which is imported from where the test had it. The repro names these classes; no
others are imported, whatever the file says.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.redaction import MASK, redacted
from pytest_tfdebug.repro.reading import reading
from pytest_tfdebug.secret_names import is_secret
from pytest_tfdebug.tracing.bounds import TooLargeError, check_document, check_header, parsed
from pytest_tfdebug.tracing.leaves import flattened, is_registered, unflattened
from pytest_tfdebug.tracing.typed import each, typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: Values that JSON holds as they are.
_PLAIN = (str, int, float, bool, type(None))
#: Forms of values that only their class can make.
_OF_A_CLASS = ("fields", "flat")
_DOCUMENT, _TENSORS = "inputs.json", "inputs.safetensors"


def save_inputs(directory: Path, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[str]:
    """Write a call's inputs to ``inputs.json`` and ``inputs.safetensors``, the secrets in their texts masked.

    Returns:
        The names of the classes that reading them needs.

    Raises:
        TFDebugError: If an input is neither a tensor, a plain value, a dtype, a device nor a nesting of these, its
            class cannot be imported, or there are millions of plain values.
    """
    from safetensors.torch import save_file

    tensors: dict[str, torch.Tensor] = {}
    document = _encode({"args": args, "kwargs": dict(kwargs)}, tensors)
    save_file(
        {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}, directory / _TENSORS
    )
    text = json.dumps(document, indent=1).encode()
    try:
        check_document(text)
    except TooLargeError as error:
        raise TFDebugError(f"the inputs cannot be written: {error}") from error
    (directory / _DOCUMENT).write_bytes(text)
    return sorted(set(_classes(document)))


def load_inputs(directory: str | Path, names: Sequence[str] = ()) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the positional and keyword inputs that :func:`save_inputs` wrote.

    Args:
        directory: Where the two files are.
        names: The classes that may be used, as ``package.module.Name``.

    Raises:
        TFDebugError: If a file cannot be read, or needs another class.
    """
    from safetensors.torch import load_file

    directory = Path(directory)
    with reading(directory / _TENSORS):
        check_header(directory / _TENSORS)
        tensors = load_file(directory / _TENSORS)
    with reading(directory / _DOCUMENT):
        document = parsed((directory / _DOCUMENT).read_bytes())
        inputs = _decode(document, tensors, names)
        return typed(tuple, inputs["args"]), typed(dict, inputs["kwargs"])


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
    """Return the form of a nested value, and its parts.

    Raises:
        TFDebugError: If its form is unknown, or its class cannot be imported.
    """
    kind = cast("type", type(value))
    if kind in (list, tuple):
        return kind.__name__, list(value)
    if kind is dict:
        return "dict", {str(key): item for key, item in value.items()}
    if imported(kind.__module__, kind.__qualname__) is kind:
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


def _classes(bare: Any) -> Iterator[str]:  # noqa: ANN401 - JSON of our own
    """Yield the names of the classes that a document needs."""
    how, content = next(iter(bare.items()))
    if how in _OF_A_CLASS:
        yield ".".join(bare["class"])
    if how in (*_OF_A_CLASS, "list", "tuple", "dict"):
        for part in content.values() if isinstance(content, dict) else content:
            yield from _classes(part)


def _decode(bare: Any, tensors: dict[str, torch.Tensor], names: Sequence[str]) -> Any:  # noqa: ANN401
    how, content = next(iter(bare.items()))
    if how in ("tensor", "value"):
        return tensors[content] if how == "tensor" else content
    if how == "torch":
        return torch.device(content) if bare["device"] else typed(torch.dtype, getattr(torch, content))
    if isinstance(content, dict):
        parts: Any = {name: _decode(part, tensors, names) for name, part in content.items()}
        return _class_of(bare, names)(**parts) if how == "fields" else parts
    parts = [_decode(part, tensors, names) for part in typed(list, content)]
    if how == "flat":
        return unflattened(_class_of(bare, names), *parts)
    return tuple(parts) if how == "tuple" else parts


def _class_of(bare: dict[str, Any], names: Sequence[str]) -> Any:  # noqa: ANN401 - a class
    """Return the class of a value.

    Raises:
        ValueError: If the repro does not name it.
    """
    module, name = each((str, str), bare["class"])
    if f"{module}.{name}" not in names:
        raise ValueError(f"{module}.{name} is not one of the classes that the repro names")
    return imported(module, name)


def imported(module: str, name: str) -> Any:  # noqa: ANN401 - a class, most often
    """Return what a module holds under a dotted name; None if there is no such thing, as for a local class."""
    try:
        return attrgetter(name)(importlib.import_module(module))
    except (ImportError, AttributeError):
        return None

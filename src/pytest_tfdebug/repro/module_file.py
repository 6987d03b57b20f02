"""A module of any class <-> its weights as safetensors, and the rest as a file that is read with ``weights_only``.

The rest is the tree of its modules with their attributes, as ``torch.save`` writes them, without the secrets in their
texts. Reading it makes objects only of the classes that the repro names, and calls only the functions that it names.
"""

from __future__ import annotations

import importlib
import pickle
import zipfile
from types import BuiltinFunctionType, MethodType, SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.redaction import MASK, redact
from pytest_tfdebug.repro.reading import reading
from pytest_tfdebug.secret_names import is_secret_name
from pytest_tfdebug.tracing.bounds import check_header

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

MODULE, WEIGHTS = "model.pt", "model.safetensors"
_DEEPEST = 20
#: Bytes of a tree of modules, each of which takes about 500.
_LONGEST_TREE = 2_000_000


def save_module(directory: Path, model: torch.nn.Module) -> list[str]:
    """Write a module and return the names of the classes and functions that reading it needs.

    Raises:
        TFDebugError: If the module cannot be read again from what was written.
        pickle.PicklingError: If a part of it has no name to import it by.
    """
    from safetensors.torch import save_file

    tensors = dict(_stored(model))
    places = {id(tensor) for tensor in tensors.values()}
    torch.save(model, directory / MODULE, pickle_module=_pickling(places))
    names = sorted(torch.serialization.get_unsafe_globals_in_checkpoint(directory / MODULE))
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    save_file(weights, directory / WEIGHTS)
    try:
        _check_size(directory / MODULE)
    except ValueError as error:
        raise TFDebugError(f"{type(model).__name__} cannot be written: {error}") from error
    try:
        _tree(directory, names)
    except (pickle.UnpicklingError, ImportError, AttributeError, TypeError) as error:
        raise TFDebugError(f"{type(model).__name__} cannot be written without code in it ({_brief(error)})") from error
    return names


def load_module(directory: Path, names: Sequence[str]) -> torch.nn.Module:
    """Read a module that :func:`save_module` wrote.

    Args:
        directory: Where its two files are.
        names: The classes and functions that may be used, as ``package.module.Name``.

    Raises:
        TFDebugError: If a file cannot be read, or needs another class or function.
    """
    from safetensors.torch import load_file

    with reading(directory / MODULE):
        _check_size(directory / MODULE)
        model = _tree(directory, names)
        tensors = dict(_tensors(model))
    with reading(directory / WEIGHTS):
        check_header(directory / WEIGHTS)
        weights = load_file(directory / WEIGHTS)
        for name, tensor in tensors.items():
            if name in weights:
                tensor.data = weights[name]
    return model


def method_of(module: torch.nn.Module, name: str) -> MethodType:
    """Return a method of a module, bound to it: a hook, most often."""
    function = getattr(type(module), name)
    if not isinstance(module, torch.nn.Module) or not callable(function):
        raise pickle.UnpicklingError(f"{name} is no method of a module")
    return MethodType(function, module)


def function_of_torch(name: str) -> BuiltinFunctionType:
    """Return one of torch's own functions, such as ``torch.relu``, which has no module of its own."""
    function = getattr(torch, name)
    if not isinstance(function, BuiltinFunctionType):
        raise pickle.UnpicklingError(f"{name} is no function of torch")
    return function


def _tree(directory: Path, names: Sequence[str]) -> torch.nn.Module:
    """Read the modules, whose stored tensors are still empty."""
    with torch.serialization.safe_globals([(_named(name), name) for name in names]):
        model: torch.nn.Module = torch.load(directory / MODULE, map_location="cpu", weights_only=True)
    return model


def _check_size(file: Path) -> None:
    """Check that the modules' file does not grow when it is unpacked, and that its tree is not too large to read.

    Raises:
        ValueError, zipfile.BadZipFile: If a part is compressed or too large, or the file is no such archive.
    """
    with zipfile.ZipFile(file) as archive:
        for part in archive.infolist():
            if part.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"its part {part.filename} is compressed, as torch.save compresses none")
            if part.filename.endswith("/data.pkl") and part.file_size > _LONGEST_TREE:
                raise ValueError(f"its modules take {part.file_size:,} bytes; up to {_LONGEST_TREE:,} are read")


def _tensors(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters()
    yield from model.named_buffers()


def _stored(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors that safetensors can hold: dense ones, of real numbers."""
    for name, tensor in _tensors(model):
        is_plain = type(tensor) in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        if is_plain and tensor.layout == torch.strided and not tensor.is_quantized and not tensor.is_complex():
            yield name, tensor


def _pickling(stored: set[int]) -> SimpleNamespace:
    """Return a pickle module for ``torch.save`` that writes an empty tensor for each that is stored elsewhere."""

    class Pickler(pickle.Pickler):
        def reducer_override(self, value: Any) -> Any:  # noqa: ANN401 - any object
            if isinstance(value, torch.Tensor):
                return _empty(value).__reduce_ex__(2) if id(value) in stored else NotImplemented  # type: ignore[no-untyped-call] # of torch
            if isinstance(value, MethodType) and isinstance(value.__self__, torch.nn.Module):
                return method_of, (value.__self__, value.__name__)
            name = getattr(value, "__name__", "")
            if isinstance(value, BuiltinFunctionType) and getattr(torch, name, None) is value:
                return function_of_torch, (name,)
            if (
                isinstance(value, type)
                or not hasattr(value, "__dict__")
                or (callable(value) and hasattr(value, "__code__"))
            ):
                return NotImplemented
            reduced = value.__reduce_ex__(2)
            if isinstance(reduced, tuple) and len(reduced) > 2 and isinstance(reduced[2], dict):  # noqa: PLR2004
                return (*reduced[:2], _cleaned(reduced[2]), *reduced[3:])
            return reduced

    return SimpleNamespace(Pickler=Pickler, dumps=pickle.dumps, __name__="pickle")


def _empty(tensor: torch.Tensor) -> torch.Tensor:
    nothing = torch.empty(0, dtype=tensor.dtype)
    if not isinstance(tensor, torch.nn.Parameter):
        return nothing
    return torch.nn.Parameter(nothing, requires_grad=tensor.requires_grad)


def _cleaned(value: Any, depth: int = 0, *, is_secret: bool = False) -> Any:  # noqa: ANN401 - any attribute
    """Return a value with the secrets in its texts masked; the same object if there are none."""
    if isinstance(value, str):
        return MASK if is_secret and value else redact(value)
    if type(value) not in (dict, list, tuple) or depth > _DEEPEST:
        return value
    if isinstance(value, dict):
        cleaned: Any = {
            key: _cleaned(item, depth + 1, is_secret=is_secret or (isinstance(key, str) and is_secret_name(key)))
            for key, item in value.items()
        }
        same = all(cleaned[key] is item for key, item in value.items())
    else:
        cleaned = type(value)(_cleaned(item, depth + 1, is_secret=is_secret) for item in value)
        same = all(new is old for new, old in zip(cleaned, value, strict=True))
    return value if same else cleaned


def _named(name: str) -> Any:  # noqa: ANN401 - a class or a function
    """Return the class or function of a dotted name, whose last part is its name in the module."""
    module, _, own = name.rpartition(".")
    return getattr(importlib.import_module(module), own)


def _brief(error: BaseException) -> str:
    return redact(str(error).partition("\n")[0] or type(error).__name__)

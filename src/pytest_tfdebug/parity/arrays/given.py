"""Whatever a runtime leaves -> labels and tensors: iterables, dicts, files, directories, and arrays of any library.

A directory is read in the order of the numbers that its files' names begin with, else of the times at which they were
last written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_tfdebug.errors import TFDebugError

#: What :func:`labelled` takes.
Arrays: TypeAlias = "Iterable[tuple[str, Any]] | Mapping[str, Any] | str | os.PathLike[str]"
#: The same in words, for its error.
_KINDS = "(label, array) pairs, a dict of arrays, an .npz or .safetensors file, or a directory of dumps"


def labelled(arrays: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every array with its label, as a torch tensor on the CPU, in the order in which they are given.

    Nested dicts give ``outer.inner`` labels, lists ``outer.0``.

    Raises:
        TFDebugError: If it is none of :data:`Arrays`, or an array is of no kind that can be read.
    """
    if isinstance(arrays, (str, os.PathLike)):
        pairs: Iterable[object] = _read(Path(arrays))
    elif isinstance(arrays, Mapping):
        pairs = [("", arrays)]
    elif isinstance(arrays, Iterable) and not hasattr(arrays, "dtype"):
        pairs = arrays
    else:
        raise TFDebugError(f"{type(arrays).__name__} holds no labelled arrays: give {_KINDS}.")
    for pair in pairs:
        if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):  # noqa: PLR2004
            raise TFDebugError(f"{type(pair).__name__} is no pair (label, array): give {_KINDS}.")
        for label, array in _flat(*pair):
            yield label, as_tensor(label, array)


def _flat(label: str, held: object) -> Iterator[tuple[str, object]]:
    """Yield the arrays of nested dicts and sequences; None stands for no array."""
    if isinstance(held, (Mapping, list, tuple)):
        for key, part in held.items() if isinstance(held, Mapping) else enumerate(held):
            yield from _flat(".".join(filter(None, (label, str(key)))), part)
    elif held is not None:
        yield label, held


def as_tensor(label: str, array: Any) -> torch.Tensor:  # noqa: ANN401 - arrays of any library
    """Return what ``numpy.asarray`` or DLPack takes as a torch tensor, bfloat16 and float8 of ml_dtypes too.

    Raises:
        TFDebugError: If it cannot be read.
    """
    if isinstance(array, torch.Tensor):
        return array.detach().cpu()
    if hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray):
        with suppress(RuntimeError, TypeError, ValueError, BufferError, AttributeError):
            return torch.utils.dlpack.from_dlpack(array).cpu()  # it has no name for some dtypes and devices
    try:
        plain = np.array(array, order="C")
        if plain.dtype.kind == "V":  # ml_dtypes
            return torch.from_numpy(plain.view(f"i{plain.itemsize}")).view(getattr(torch, plain.dtype.name))
        return torch.from_numpy(plain)
    except (TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise TFDebugError(
            f"{label!r} is a {type(array).__name__} that neither numpy.asarray nor DLPack can read as numbers: {error}"
        ) from error


def _read(path: Path) -> Iterator[tuple[str, Any]]:
    files = sorted((file for file in path.rglob("*") if file.suffix in _READERS), key=_order) if path.is_dir() else []
    for file in files:
        yield file.relative_to(path).with_suffix("").as_posix(), dict(_read(file))
    if files:
        return
    if path.suffix not in _READERS or not path.is_file():
        raise TFDebugError(f"{path} holds no arrays: give one of {', '.join(_READERS)}, or a directory of such files.")
    try:
        yield from _READERS[path.suffix](path)
    except Exception as error:  # whatever a library raises for a damaged file
        raise TFDebugError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _order(file: Path) -> tuple[list[int], int]:
    if file.name[:1].isdigit():
        return [int(number) for number in re.findall(r"\d+", file.name)], 0
    return [], file.stat().st_mtime_ns


def _safetensors(path: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in file.offset_keys():  # in the order of writing; keys() sorts them
            yield name, file.get_tensor(name)


_READERS: dict[str, Callable[[Path], Iterable[tuple[str, Any]]]] = {
    ".npz": lambda path: np.load(path, allow_pickle=False).items(),
    ".npy": lambda path: [("", np.load(path, allow_pickle=False))],
    ".safetensors": _safetensors,
    ".pt": lambda path: [("", torch.load(path, map_location="cpu", weights_only=True))],
}

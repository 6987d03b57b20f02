"""Whatever a runtime leaves -> labels and tensors: iterables, dicts, files, directories, and arrays of any library.

A directory is read in the order of the numbers that its files' names begin with, else of the times at which they were
last written. A ``.bin`` says neither shape nor dtype: an ``index.json`` beside it does.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch

from pytest_tfdebug.errors import TFDebugError

#: What :func:`labelled` takes.
Arrays: TypeAlias = "Iterable[tuple[str, Any]] | Mapping[str, Any] | str | os.PathLike[str]"
#: The same in words, for its error.
_KINDS = "(label, array) pairs, a dict of arrays, an .npz or .safetensors file, or a directory of dumps"
#: What describes raw files: ``{"layer0.q": {"file": "0003.bin", "shape": [1, 8, 64], "dtype": "bfloat16"}, ...}``.
_INDEX = "index.json"


def labelled(arrays: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every array with its label, as a torch tensor on the CPU, in the order in which they are given.

    Args:
        arrays: An iterable of ``(label, array)``, a dict (nested ones give ``outer.inner`` labels, lists ``outer.0``),
            the path of an ``.npz`` or safetensors file, or of a directory of dumps.

    Raises:
        TFDebugError: If it is none of these, or an array is of no kind that can be read.
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
    """Return an array of any library as a torch tensor.

    Args:
        label: What it is called, for the error.
        array: What ``numpy.asarray`` or DLPack takes; bfloat16 and float8 of ml_dtypes too.

    Raises:
        TFDebugError: If it cannot be read.
    """
    if isinstance(array, torch.Tensor):
        return array.detach().cpu()
    if hasattr(array, "__dlpack__") and not isinstance(array, np.ndarray):
        try:
            return torch.utils.dlpack.from_dlpack(array).cpu()
        except (RuntimeError, TypeError, ValueError, BufferError, AttributeError):
            pass  # a dtype or a device that DLPack has no name for
    try:
        plain = np.ascontiguousarray(array).reshape(np.shape(array))
        kind = getattr(torch, plain.dtype.name, None)
        if plain.dtype.kind == "V" and isinstance(kind, torch.dtype):  # ml_dtypes
            bits = {1: np.uint8, 2: np.int16}[plain.itemsize]
            return torch.from_numpy(plain.view(bits).copy()).view(kind)
        return torch.from_numpy(plain if plain.flags.writeable else plain.copy())
    except (TypeError, ValueError, KeyError, RuntimeError) as error:
        raise TFDebugError(
            f"{label!r} is a {type(array).__name__} that neither numpy.asarray nor DLPack can read as numbers: {error}"
        ) from error


def _read(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield what a file holds, or the files of a directory."""
    if path.is_dir() and not (path / _INDEX).is_file():
        files = sorted((file for file in path.rglob("*") if file.suffix in _READERS), key=_order)
        if not files:
            raise TFDebugError(
                f"{path} holds no arrays: no {', '.join(_READERS)} file.\n"
                f"Raw files need an {_INDEX}, see docs/runtimes.md."
            )
        for file in files:
            yield file.relative_to(path).with_suffix("").as_posix(), dict(_read(file))
        return
    read = _raw if path.is_dir() else _READERS.get(path.suffix)
    if read is None or not path.exists():
        raise TFDebugError(f"{path} holds no arrays: give one of {', '.join(_READERS)}, or a directory of such files.")
    try:
        yield from read(path)
    except Exception as error:  # whatever a library raises for a damaged file
        raise TFDebugError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _order(file: Path) -> tuple[list[int], int]:
    is_numbered = file.name[:1].isdigit()
    return (
        ([int(number) for number in re.findall(r"\d+", file.name)], 0) if is_numbered else ([], file.stat().st_mtime_ns)
    )


def _raw(folder: Path) -> Iterator[tuple[str, Any]]:
    for label, entry in json.loads((folder / _INDEX).read_text(encoding="utf-8")).items():
        held = bytearray((folder / entry["file"]).read_bytes())
        yield label, torch.frombuffer(held, dtype=getattr(torch, entry["dtype"])).reshape(entry["shape"])


def _safetensors(path: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in file.offset_keys():  # in the order of writing; keys() sorts them
            yield name, file.get_tensor(name)


def _pt(path: Path) -> Iterable[tuple[str, Any]]:
    return [("", torch.load(path, map_location="cpu", weights_only=True))]


_READERS: dict[str, Callable[[Path], Iterable[tuple[str, Any]]]] = {
    ".npz": lambda path: np.load(path, allow_pickle=False).items(),
    ".npy": lambda path: [("", np.load(path, allow_pickle=False))],
    ".safetensors": _safetensors,
    ".pt": _pt,
}

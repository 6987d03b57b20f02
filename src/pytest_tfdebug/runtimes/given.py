"""Whatever a runtime leaves -> labels and tensors: iterables, dicts, files, directories, and arrays of any library."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pytest_tfdebug.errors import TFDebugError
from pytest_tfdebug.runtimes.dumps import read_file

#: What :func:`labelled` takes.
Arrays: TypeAlias = "Iterable[tuple[str, Any]] | Mapping[str, Any] | str | os.PathLike[str]"
#: The same in words, for its error.
_KINDS = "(label, array) pairs, a dict of arrays, an .npz or .safetensors file, or a directory of dumps"


def labelled(arrays: object) -> Iterator[tuple[str, Any]]:
    """Yield every array with its label, as a torch tensor on the CPU, in the order in which they are given.

    Args:
        arrays: An iterable of ``(label, array)``, a dict (nested ones give ``outer.inner`` labels, lists ``outer.0``),
            the path of an ``.npz`` or safetensors file, or of a directory of dumps.

    Raises:
        TFDebugError: If it is none of these, or an array is of no kind that can be read.
    """
    for label, array in _flat(arrays):
        yield label, as_tensor(label, array)


def _flat(arrays: object) -> Iterator[tuple[str, object]]:
    if isinstance(arrays, (str, os.PathLike)):
        yield from read_file(Path(arrays))
    elif isinstance(arrays, Mapping):
        yield from _nested("", arrays)
    elif isinstance(arrays, Iterable) and not hasattr(arrays, "dtype"):
        for pair in arrays:
            if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):  # noqa: PLR2004
                raise TFDebugError(f"{type(pair).__name__} is no pair (label, array): give {_KINDS}.")
            yield from _nested(*pair)
    else:
        raise TFDebugError(f"{type(arrays).__name__} holds no labelled arrays: give {_KINDS}.")


def _nested(label: str, held: object) -> Iterator[tuple[str, object]]:
    """Yield the arrays of nested dicts and sequences; None stands for no array."""
    if isinstance(held, Mapping):
        parts: Iterable[tuple[object, object]] = held.items()
    elif isinstance(held, (list, tuple)):
        parts = enumerate(held)
    else:
        if held is not None:
            yield label, held
        return
    for key, part in parts:
        yield from _nested(f"{label}.{key}" if label else str(key), part)


def as_tensor(label: str, array: Any) -> Any:  # noqa: ANN401 - arrays of any library; torch is imported here alone
    """Return an array of any library as a torch tensor.

    Args:
        label: What it is called, for the error.
        array: What ``numpy.asarray`` or DLPack takes; bfloat16 and float8 of ml_dtypes too.

    Raises:
        TFDebugError: If it cannot be read.
    """
    import numpy as np
    import torch

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

"""Arrays in files: an ``.npz``, a safetensors file, or a directory of dumps as C++ engines and vLLM write them.

A directory is read in the order of the times at which its files were last written, numbered names in their numbers'
order. A ``.bin`` says neither shape nor dtype: an ``index.json`` beside it does.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pytest_tfdebug.errors import TFDebugError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: What describes raw files: ``{"layer0.q": {"file": "0003.bin", "shape": [1, 8, 64], "dtype": "bfloat16"}, ...}``.
INDEX = "index.json"


def read_file(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the arrays of a file or directory with their labels.

    Raises:
        TFDebugError: If there is none, or a file cannot be read.
    """
    if path.is_dir():
        yield from _directory(path)
        return
    read = _READERS.get(path.suffix)
    if read is None or not path.is_file():
        raise TFDebugError(f"{path} holds no arrays: give one of {', '.join(_READERS)}, or a directory of such files.")
    try:
        yield from read(path)
    except TFDebugError:
        raise
    except Exception as error:  # whatever a library raises for a damaged file
        raise TFDebugError(f"{path} cannot be read: {type(error).__name__}: {error}") from error


def _directory(folder: Path) -> Iterator[tuple[str, Any]]:
    if (folder / INDEX).is_file():
        yield from _indexed(folder)
        return
    files = sorted((file for file in folder.rglob("*") if file.suffix in _READERS), key=_order)
    if not files:
        raise TFDebugError(
            f"{folder} holds no arrays: no {', '.join(_READERS)} file. Raw files need an {INDEX}, see docs/runtimes.md."
        )
    for file in files:
        name = file.relative_to(folder).with_suffix("").as_posix()
        for label, array in read_file(file):
            yield f"{name}.{label}" if label else name, array


def _order(file: Path) -> tuple[list[int | str], int]:
    """Order by the numbers in the names where they begin with one, else by when they were written."""
    numbers = [int(number) for number in re.findall(r"\d+", file.name)]
    return (list(numbers), 0) if file.name[:1].isdigit() else ([], file.stat().st_mtime_ns)


def _indexed(folder: Path) -> Iterator[tuple[str, Any]]:
    import torch

    index = folder / INDEX
    try:
        entries = json.loads(index.read_text(encoding="utf-8"))
        for label, entry in entries.items():
            kind = getattr(torch, entry["dtype"])
            held = bytearray((folder / entry["file"]).read_bytes())
            yield label, torch.frombuffer(held, dtype=kind).reshape(entry["shape"])
    except (OSError, KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise TFDebugError(f"{index} does not describe the files beside it: {type(error).__name__}: {error}") from error


def _npz(path: Path) -> Iterator[tuple[str, Any]]:
    import numpy as np

    with np.load(path, allow_pickle=False) as file:
        yield from file.items()


def _npy(path: Path) -> Iterator[tuple[str, Any]]:
    import numpy as np

    yield "", np.load(path, allow_pickle=False)


def _safetensors(path: Path) -> Iterator[tuple[str, Any]]:
    from safetensors import safe_open

    with safe_open(path, framework="pt") as file:
        for name in file.offset_keys():  # in the order of writing; keys() sorts them
            yield name, file.get_tensor(name)


def _pt(path: Path) -> Iterator[tuple[str, Any]]:
    import torch

    held = torch.load(path, map_location="cpu", weights_only=True)
    yield from held.items() if isinstance(held, dict) else (("", held),)


_READERS: dict[str, Callable[[Path], Iterator[tuple[str, Any]]]] = {
    ".npz": _npz,
    ".npy": _npy,
    ".safetensors": _safetensors,
    ".pt": _pt,
}

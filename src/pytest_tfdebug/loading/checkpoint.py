"""The tensors of a checkpoint, read one at a time: of a directory, a file, or a state dict."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from pytest_tfdebug.errors import TFDebugError, a_or_an, listed

#: What a checkpoint may be given as.
Source = str | Path | Mapping[str, Any]
_PICKLED = (".bin", ".pt", ".pth", ".ckpt")
#: Names under which training loops keep the state dict among other things.
_INSIDE = ("state_dict", "model_state_dict", "model", "module")
#: Files of a directory, in the order in which transformers and peft look for them.
_USUAL = ("model.safetensors", "adapter_model.safetensors", "pytorch_model.bin", "adapter_model.bin")
_WHAT = "Give a directory with *.safetensors or pytorch_model*.bin, one such file, or a state dict."


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, each read when it is asked for."""

    label: str  # what it was read from: a path, or ``a state dict``
    readers: Mapping[str, Callable[[], torch.Tensor]]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tensors, in the order of the files."""
        return tuple(self.readers)

    def tensor(self, name: str) -> torch.Tensor:
        """Return a tensor; of safetensors it is the file's own memory, and nothing is copied."""
        return self.readers[name]().detach()


def open_checkpoint(source: Source) -> Checkpoint:
    """Return the tensors of a directory, a file or a state dict.

    Pickled files are read with ``weights_only``, so that they can run nothing.

    Raises:
        TFDebugError: If there is no such file, it cannot be read, or it holds no tensor.
    """
    if isinstance(source, Mapping):
        label, readers = "a state dict", _of_state(source)
    elif not isinstance(source, (str, os.PathLike)):
        raise TFDebugError(f"audit needs a checkpoint and got {a_or_an(type(source).__name__)}.\n{_WHAT}")
    else:
        path = Path(source)
        if not path.exists():
            raise TFDebugError(f"There is no checkpoint {str(path)!r}: no such file or directory.\n{_WHAT}")
        label, readers = str(path), {}
        for file in _files(path) if path.is_dir() else [path]:
            readers.update(_of_file(file))
    if not readers:
        raise TFDebugError(f"{label} holds no tensor, so there is nothing to look for in the model.\n{_WHAT}")
    return Checkpoint(label, readers)


def _files(folder: Path) -> list[Path]:
    """Return the files of a directory that hold its weights: those of the index, the usual one, or all."""
    for index in sorted(folder.glob("*.index.json")):
        try:
            named = sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as error:
            raise TFDebugError(f"{index} is no index of weights: {type(error).__name__}: {error}.") from error
        missing = [name for name in named if Path(name).name != name or not (folder / name).is_file()]
        if missing:
            raise TFDebugError(f"{index} names files that are not beside it: {listed(missing)}.")
        return [folder / name for name in named]
    usual = next((folder / name for name in _USUAL if (folder / name).is_file()), None)
    if usual is not None:
        return [usual]
    return sorted(folder.glob("*.safetensors")) or sorted(
        each for each in folder.iterdir() if each.suffix in _PICKLED and each.is_file()
    )


def _of_file(path: Path) -> Mapping[str, Callable[[], torch.Tensor]]:
    try:
        if path.suffix in _PICKLED:
            return _of_state(torch.load(path, map_location="cpu", weights_only=True, mmap=True))
        handle = safe_open(path, "pt")
        return {name: partial(handle.get_tensor, name) for name in handle.keys()}  # type: ignore[no-untyped-call] # noqa: SIM118 - no mapping
    except (SafetensorError, OSError, RuntimeError, ValueError, EOFError) as error:
        told = str(error).strip().partition("\n")[0]
        raise TFDebugError(f"{path} cannot be read as a checkpoint: {told}\n{_WHAT}") from error
    except Exception as error:  # what unpickling raises is of every kind
        raise TFDebugError(f"{path} cannot be read as weights alone: {type(error).__name__}.\n{_WHAT}") from error


def _of_state(state: Any) -> dict[str, Callable[[], torch.Tensor]]:  # noqa: ANN401 - whatever was pickled
    inside = next((state[key] for key in _INSIDE if isinstance(state, Mapping) and key in state), None)
    if isinstance(inside, Mapping):
        return _of_state(inside)
    tensors = state.items() if isinstance(state, Mapping) else ()
    return {str(name): partial(_itself, tensor) for name, tensor in tensors if isinstance(tensor, torch.Tensor)}


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor

"""What a golden was recorded with, environment and weights, and what has changed since."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.parameter import is_lazy

from pytest_tfdebug.environment import as_text, environment, git_state
from pytest_tfdebug.redaction import redacted
from pytest_tfdebug.tensors import dtype_name, readable
from pytest_tfdebug.tracing.record.wrappers import named_tensors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

#: Fields of the environment that a number can depend on. A golden is shared, so paths and flags of the hub stay out.
_FIELDS = (
    *("python", "torch", "cuda", "transformers", "safetensors", "pytest_tfdebug", "os", "cpu", "gpu"),
    *("default_dtype", "tf32", "deterministic", "threads", "attention_implementation"),
)


def provenance(model: torch.nn.Module) -> dict[str, Any]:
    """Return versions, device, dtype, numeric flags, seed and commit, as JSON values."""
    known = environment(model)
    first = next(iter((*model.parameters(), *model.buffers())), None)
    commit, dirty = _commit(Path.cwd())
    return {
        **redacted({name: known[name] for name in _FIELDS}),
        "device": "cpu" if first is None else first.device.type,
        "dtype": None if first is None else dtype_name(first.dtype),
        "seed": torch.initial_seed(),
        "git_commit": commit,
        "git_dirty": dirty,
    }


@cache
def _commit(_directory: Path) -> tuple[str | None, bool | None]:
    """Return the commit of the repository that a directory is in, asked once for each, and whether it is changed."""
    return git_state()


def changes(recorded: Mapping[str, Any], present: Mapping[str, Any]) -> Iterator[str]:
    """Yield ``torch 2.12.0 -> 2.13.0`` for each field that differs, the commit and the seed left out."""
    for name in (*_FIELDS, "device", "dtype"):
        is_chosen = name != "attention_implementation" or None not in (recorded.get(name), present.get(name))
        if name in recorded and recorded[name] != present.get(name) and is_chosen:  # a port may have no choice of it
            old, new = ("none" if it is None else as_text(it) for it in (recorded[name], present.get(name)))
            yield f"{name} {old} -> {new}"


#: 64-bit words in a row of the table whose row and column sums are hashed.
_ROW = 1024
_WORD = 8


@torch.no_grad()
def fingerprint(model: torch.nn.Module) -> dict[str, str]:
    """Return a hash of every parameter and buffer by name, tied ones under each of their names.

    A hash function would read 1 GB a second; here the bytes are summed as 64-bit integers along the rows and the
    columns of a table, at the speed of memory, and the sums are hashed. It tells changed, permuted and cast weights
    apart; it is no defence against someone who wants two models to look alike.
    """
    named = named_tensors(model)
    hashes = {key: hash_of(tensor) for key, tensor in {id(tensor): tensor for _, tensor in named}.items()}
    return {name: hashes[id(tensor)] for name, tensor in named}


def hash_of(tensor: torch.Tensor) -> str:
    """Return the hash of a tensor."""
    shape = [] if tensor.is_nested else list(tensor.shape)
    digest = blake2b(f"{tensor.dtype}{shape}".encode(), digest_size=8)
    values = None if is_lazy(tensor) else readable(tensor)
    if values is None:
        return digest.hexdigest()
    flat = values.detach().contiguous().flatten().view(torch.uint8)
    if flat.storage_offset() % _WORD:
        flat = flat.clone()
    words = flat[: flat.numel() // _WORD * _WORD].view(torch.int64)
    table = words[: words.numel() // _ROW * _ROW].view(-1, _ROW)
    rest = flat[table.numel() * _WORD :]
    for part in (table.sum(0), table.sum(1), rest):
        digest.update(part.cpu().numpy().tobytes())
    return digest.hexdigest()

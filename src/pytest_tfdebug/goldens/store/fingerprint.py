"""Which weights a golden was recorded with, in a few bytes a parameter."""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch.nn.parameter import is_lazy

from pytest_tfdebug.tensors import readable
from pytest_tfdebug.tracing.record.wrappers import named_tensors

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

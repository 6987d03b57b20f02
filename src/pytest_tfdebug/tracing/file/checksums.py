"""Checksums of a file: of each tensor and of what is said of them, so that damage is never taken for another value."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from zlib import crc32

from pytest_tfdebug.errors import GoldenError
from pytest_tfdebug.tensors import dtype_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

#: What to do about a file that is damaged.
ADVICE = "Take it from version control once more."
_SUMS, _OWN = "checksums", "checksum"


def with_checksums(header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the text of a header with the checksums (CRC-32) of the tensors and its own."""
    whole = {**header, _SUMS: [_checksum(name, tensor) for name, tensor in sorted(tensors.items())]}
    return _text({**whole, _OWN: crc32(_text(whole).encode())})


def verify(header: Mapping[str, Any], tensors: Mapping[str, torch.Tensor]) -> None:
    """Compare the checksums of a file with what it holds."""
    whole = {key: value for key, value in header.items() if key != _OWN}
    known = header.get(_SUMS)
    if header.get(_OWN) != crc32(_text(whole).encode()) or not isinstance(known, list):
        raise GoldenError(_told("its header is"))
    if len(known) != len(tensors):
        raise GoldenError(_told(f"{len(known)} tensors were written, and {len(tensors)} are"))
    for (name, tensor), checksum in zip(sorted(tensors.items()), known, strict=True):
        if checksum != _checksum(name, tensor):
            raise GoldenError(_told(f"the bytes of its tensor {name!r} are"))


def _told(what: str) -> str:
    return f"is damaged: {what} not what was written (checksum).\n{ADVICE}"


def _checksum(name: str, tensor: torch.Tensor) -> int:
    import torch

    form = f"{name}{dtype_name(tensor.dtype)}{list(tensor.shape)}".encode()
    return crc32(tensor.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data, crc32(form))


def _text(header: Mapping[str, Any]) -> str:
    return json.dumps(header, separators=(",", ":"), sort_keys=True)

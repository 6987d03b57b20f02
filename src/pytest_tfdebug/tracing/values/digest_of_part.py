"""The digest of a whole tensor of which only a part is here: zeros stand for the rest.

Digests of all parts put together are the digest of the whole: each element stands in one of them, and sums add up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pytest_tfdebug.tracing.record.ranks import within
from pytest_tfdebug.tracing.values.digest import digest_of, elements_of

if TYPE_CHECKING:
    from pytest_tfdebug.records import Digest, Part


def digest_of_part(held: torch.Tensor, part: Part, kept: int, at: torch.Tensor | None) -> tuple[Digest, torch.Tensor]:
    """Return the digest of a whole tensor with zeros for what is not held, and which of its elements and tops are."""
    at = torch.empty(0, dtype=torch.int64) if at is None else at
    whole, owner = held, torch.ones(part.shape, dtype=torch.bool)
    if part.shape != tuple(held.shape):
        whole, owner = held.new_zeros(part.shape), torch.zeros(part.shape, dtype=torch.bool)
        within(whole, part, held.shape).copy_(held)
        within(owner, part, held.shape).fill_(True)  # noqa: FBT003 - torch's own
    if held.is_complex():
        owner = torch.stack((owner, owner), -1)
    digest = digest_of(whole, kept, at=at, with_norm=False)
    return digest, torch.cat((elements_of(owner, kept), owner.reshape(-1)[at]))

"""Fixes of rotary-embedding-torch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, module_of, numbers


class _Rotated(torch.nn.Module):
    """Queries and keys that are rotated."""

    def __init__(self, rotary: Any) -> None:
        super().__init__()
        self.rotary = rotary

    def forward(self, q: torch.Tensor, k: torch.Tensor) -> Any:
        """Return both, rotated."""
        return self.rotary.rotate_queries_and_keys(q, k)


def _rotated(package: Any) -> Any:
    rotary = module_of(package, "rotary_embedding_torch").RotaryEmbedding(8, use_xpos=True)
    return _Rotated(rotary), {"q": numbers(2, 2, 6, 8), "k": numbers(2, 2, 6, 8, seed=4)}


def _fix(commit: str) -> Fix:
    return Fix("rotary-embedding-torch", commit, "rotary_embedding_torch/rotary_embedding_torch.py", _rotated)


FIXES = (_fix("2605ece"), _fix("22cac59"))

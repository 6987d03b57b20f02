"""Fixes of sentence-transformers."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, module_of, numbers

_INPUTS = {"token_embeddings": numbers(2, 4, 6), "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])}


class _Pooled(torch.nn.Module):
    """Pooling that is given a dict of its own, for it writes into that."""

    def __init__(self, pooling: Any) -> None:
        super().__init__()
        self.pooling = pooling

    def forward(self, token_embeddings: torch.Tensor, attention_mask: torch.Tensor) -> Any:
        """Return one embedding of each row."""
        features = {"token_embeddings": token_embeddings, "attention_mask": attention_mask}
        return self.pooling(features)["sentence_embedding"]


def _pooled(package: Any) -> Any:
    return _Pooled(module_of(package, "models.Pooling").Pooling(6, pooling_mode="lasttoken")), _INPUTS


FIXES = (Fix("sentence-transformers", "6b524f8c", "sentence_transformers/models/Pooling.py", _pooled),)

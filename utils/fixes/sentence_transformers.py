"""Fixes of sentence-transformers."""

from __future__ import annotations

import torch

from fixes.fix import Fix, made, numbers

_FEATURES = {"token_embeddings": numbers(2, 4, 6), "attention_mask": torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])}

FIXES = (
    Fix(
        "sentence-transformers",
        "6b524f8c",
        "sentence_transformers/models/Pooling.py",
        made("models.Pooling", "Pooling", {"features": _FEATURES}, 6, pooling_mode="lasttoken"),
    ),
)

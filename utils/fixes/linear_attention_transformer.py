"""Fixes of linear-attention-transformer."""

from __future__ import annotations

import torch

from fixes.fix import Fix, made

_NAME = "linear_attention_transformer"

FIXES = (
    Fix(
        "linear-attention-transformer",
        "dc2a661",
        f"{_NAME}/{_NAME}.py",
        made(
            _NAME,
            "LinearAttentionTransformerLM",
            {"x": torch.arange(1, 17).view(2, 8)},
            num_tokens=20,
            dim=16,
            depth=2,
            max_seq_len=8,
            heads=2,
            causal=True,
            use_axial_pos_emb=False,
        ),
    ),
)

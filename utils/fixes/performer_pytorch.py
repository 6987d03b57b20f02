"""Fixes of performer-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, made

_IDS = {"x": torch.arange(1, 17).view(2, 8)}
_SIZES: dict[str, Any] = {"num_tokens": 20, "max_seq_len": 8, "dim": 16, "depth": 2, "heads": 2}


def _fix(commit: str, **given: Any) -> Fix:
    build = made("performer_pytorch", "PerformerLM", _IDS, **{**_SIZES, **given})
    return Fix("performer-pytorch", commit, "performer_pytorch/performer_pytorch.py", build)


FIXES = (
    _fix("98532fc", causal=True),
    _fix("87951d0", dim_head=64, rotary_position_emb=True),
    _fix("08525a4", dim_head=8),
)

"""Fixes of block-recurrent-transformer-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, made

_NAME = "block_recurrent_transformer_pytorch"
_SIZES: dict[str, Any] = {"num_tokens": 20, "dim": 16, "depth": 2, "dim_head": 8, "heads": 2}


def _fix(commit: str) -> Fix:
    inputs = {"x": torch.arange(1, 17).view(2, 8)}
    build = made(_NAME, "BlockRecurrentTransformer", inputs, max_seq_len=8, block_width=4, **_SIZES)
    return Fix("block-recurrent-transformer-pytorch", commit, f"{_NAME}/{_NAME}.py", build)


FIXES = (_fix("34031e2"),)

"""Fixes of RETRO-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, made

_INPUTS = {"seq": torch.arange(1, 17).view(2, 8), "retrieved": torch.arange(1, 33).view(2, 2, 2, 4) % 19 + 1}
_SIZES: dict[str, Any] = {
    "num_tokens": 20,
    "max_seq_len": 8,
    "enc_dim": 16,
    "enc_depth": 1,
    "dec_dim": 16,
    "dec_depth": 2,
    "dec_cross_attn_layers": (1,),
    "chunk_size": 4,
}


def _fix(commit: str) -> Fix:
    build = made("retro_pytorch", "RETRO", _INPUTS, **_SIZES)
    return Fix("RETRO-pytorch", commit, "retro_pytorch/retro_pytorch.py", build)


FIXES = (_fix("fb36dba"), _fix("e33fed8"))

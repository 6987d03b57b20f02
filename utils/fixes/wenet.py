"""Fixes of wenet."""

from __future__ import annotations

import torch

from fixes.fix import Fix, made, numbers

_FRAMES = numbers(2, 6, 8)
_BIAS = torch.zeros(2, 6, 6)
_BIAS[1, :, 4:] = torch.finfo(torch.float32).min

FIXES = (
    Fix(
        "wenet",
        "2494c016",
        "wenet/transformer/attention.py",
        made(
            "transformer.attention",
            "ShawRelPositionMultiHeadedAttention",
            {"query": _FRAMES, "key": _FRAMES, "value": _FRAMES, "mask": _BIAS},
            2,
            8,
            0.0,
            use_sdpa=True,
        ),
    ),
)

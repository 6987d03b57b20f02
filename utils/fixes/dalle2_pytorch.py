"""Fixes of DALLE2-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, made, numbers

_SIZES: dict[str, Any] = {"dim": 16, "num_timesteps": 100, "max_text_len": 6, "depth": 2, "heads": 2, "dim_head": 8}
_EMBEDS: dict[str, Any] = {
    "image_embed": numbers(2, 16),
    "diffusion_timesteps": torch.tensor([3, 70]),
    "text_embed": numbers(2, 16, seed=4),
    "text_encodings": numbers(2, 4, 16, seed=5),
}


def _fix(commit: str, inputs: dict[str, Any], **given: Any) -> Fix:
    build = made("dalle2_pytorch", "DiffusionPriorNetwork", {**_EMBEDS, **inputs}, **{**_SIZES, **given})
    return Fix("DALLE2-pytorch", commit, "dalle2_pytorch/dalle2_pytorch.py", build)


FIXES = (
    _fix("3b2cf7b", {"self_cond": numbers(2, 16, seed=6)}, self_cond=True),
    _fix("8bbc956", {"text_cond_drop_prob": 1.0}),
)

"""Fixes of timm."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, module_of, numbers

_TOKENS = {"x": numbers(2, 6, 32)}


def _made(module: str, name: str, inputs: dict[str, Any], *args: Any, **given: Any) -> Build:
    def build(package: Any) -> Any:
        made = getattr(module_of(package, module), name)(*args, **given)
        made.fused_attn = False  # which the fixes are not about
        return made, inputs

    return build


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("timm", commit, f"timm/{file}", build)


FIXES = (
    _fix("76d16698", "layers/mlp.py", _made("layers.mlp", "Mlp", _TOKENS, 32, 64, norm_layer=torch.nn.LayerNorm)),
    _fix(
        "2d734d90",
        "layers/attention2d.py",
        _made("layers.attention2d", "Attention2d", {"x": numbers(2, 32, 4, 5)}, 32, 32, num_heads=4),
    ),
    _fix(
        "4cca568b",
        "models/eva.py",
        _made("models.eva", "EvaAttention", {**_TOKENS, "attn_mask": torch.arange(5, -1, -1).expand(2, 6) > 0}, 32, 4),
    ),
)

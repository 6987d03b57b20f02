"""Fixes of local-attention."""

from __future__ import annotations

from typing import Any

from fixes.fix import Fix, made, numbers

_HEADS = {name: numbers(2, 2, 8, 8, seed=seed) for seed, name in enumerate("qkv")}


def _fix(commit: str, inputs: dict[str, Any], **given: Any) -> Fix:
    build = made("local_attention", "LocalAttention", inputs, window_size=4, causal=True, **given)
    return Fix("local-attention", commit, "local_attention/local_attention.py", build)


FIXES = (
    _fix("270adde", _HEADS, exact_windowsize=True),
    _fix("ab766fd", {**_HEADS, "attn_bias": numbers(2, 4, 8)}, dim=8),
)

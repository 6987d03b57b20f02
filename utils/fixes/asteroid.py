"""Fixes of asteroid."""

from __future__ import annotations

from typing import Any

from fixes.fix import Fix, made, numbers


def _fix(commit: str, file: str, module: str, name: str, inputs: dict[str, Any], *args: Any, **given: Any) -> Fix:
    return Fix("asteroid", commit, f"asteroid/{file}", made(module, name, inputs, *args, **given))


FIXES = (
    _fix("9c543ecd", "masknn/norms.py", "masknn.norms", "CumLN", {"x": numbers(2, 8, 6)}, 8),
    _fix(
        "8c971d78",
        "models/fasnet.py",
        "models.fasnet",
        "FasNetTAC",
        {"x": numbers(2, 2, 128)},
        2,
        enc_dim=8,
        feature_dim=8,
        hidden_dim=8,
        n_layers=1,
        window_ms=2,
        context_ms=2,
        sample_rate=4000,
        tac_hidden_dim=8,
        chunk_size=4,
        hop_size=2,
    ),
    _fix("4e231ed7", "masknn/blocks.py", "masknn.blocks", "DPRNNBlock", {"x": numbers(2, 8, 4, 6)}, 8, 8),
    _fix(
        "d5916a81",
        "masknn/attention.py",
        "masknn.attention",
        "ImprovedTransformedLayer",
        {"x": numbers(3, 8, 6)},
        8,
        2,
        8,
    ),
    _fix("f56a2324", "masknn/norms.py", "masknn.norms", "FeatsGlobLN", {"x": numbers(2, 8, 6)}, 8),
)

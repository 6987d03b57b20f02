"""Fixes of perceiver-pytorch."""

from __future__ import annotations

from typing import Any

from fixes.fix import Fix, made, numbers

_SIZES: dict[str, Any] = {
    "num_freq_bands": 3,
    "max_freq": 10.0,
    "depth": 3,
    "num_latents": 6,
    "latent_dim": 16,
    "latent_heads": 2,
    "cross_dim_head": 8,
    "latent_dim_head": 8,
    "num_classes": 5,
}
_IMAGES = {"data": numbers(2, 5, 7, 3)}


def _fix(commit: str, file: str = "perceiver_pytorch", **given: Any) -> Fix:
    build = made(file, "Perceiver", _IMAGES, **{**_SIZES, **given})
    return Fix("perceiver-pytorch", commit, f"perceiver_pytorch/{file}.py", build)


FIXES = (
    _fix("e5a81bd", weight_tie_layers=True, self_per_cross_attn=2),
    _fix("edb9511"),
    _fix("483a6ed"),
    _fix("3010a29", weight_tie_layers=True),
    _fix("b6df32c", "experimental", weight_tie_layers=True),
)

"""Fixes of neuraloperator."""

from __future__ import annotations

from typing import Any

from fixes.fix import Build, Fix, made, numbers

_WAVES: dict[str, Any] = {"n_modes": (4, 4), "hidden_channels": 8, "in_channels": 2, "out_channels": 1, "n_layers": 2}
_SHAPES: dict[str, Any] = {
    "uno_out_channels": [4, 4, 4],
    "uno_n_modes": [[4, 4]] * 3,
    "uno_scalings": [[1.0, 1.0]] * 3,
    "lifting_channels": 8,
    "projection_channels": 8,
}
_EVEN, _ODD = {"x": numbers(2, 2, 8, 8)}, {"x": numbers(2, 2, 9, 9)}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("neuraloperator", commit, f"neuralop/{file}.py", build)


FIXES = (
    _fix("4b3e15ae", "layers/spectral_convolution", made("models", "FNO", _ODD, **_WAVES)),
    _fix(
        "3e7f17b3",
        "layers/coda_layer",
        made(
            "layers.coda_layer",
            "CODALayer",
            {"x": numbers(2, 4, 8, 8)},
            [4, 4],
            n_heads=2,
            token_codimension=2,
            per_channel_attention=False,
            factorization=None,
        ),
    ),
    _fix("20be3bd7", "models/uno", made("models.uno", "UNO", _EVEN, 2, 1, 8, n_layers=3, **_SHAPES)),
    _fix("a371d089", "layers/mlp", made("layers.mlp", "MLP", {"x": numbers(2, 8, 6, 6)}, 8, 4, 16)),
)

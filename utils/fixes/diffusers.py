"""Fixes of diffusers."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, numbers


def _prx(package: Any) -> Any:
    sizes = {"hidden_size": 32, "num_heads": 4, "depth": 2, "context_in_dim": 32, "axes_dim": [4, 4]}
    model = package.PRXTransformer2DModel(in_channels=4, patch_size=2, **sizes)
    states = {"hidden_states": numbers(2, 4, 8, 8), "encoder_hidden_states": numbers(2, 5, 32)}
    return model, {**states, "timestep": torch.tensor([0.3, 0.7])}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("diffusers", commit, f"src/diffusers/models/{file}", build)


FIXES = (_fix("8d415a6f48", "transformers/transformer_prx.py", _prx),)

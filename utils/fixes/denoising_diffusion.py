"""Fixes of denoising-diffusion-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, module_of, numbers

_INPUTS = {"x": numbers(2, 3, 16, 16), "time": torch.tensor([3, 70])}


def _unet(**given: Any) -> Build:
    def build(package: Any) -> Any:
        made = module_of(package, "denoising_diffusion_pytorch")
        return made.Unet(dim=16, dim_mults=(1, 2), **given), _INPUTS

    return build


def _karras(package: Any) -> Any:
    karras = module_of(package, "karras_unet")
    return karras.Attention(32, heads=2, dim_head=16), {"x": numbers(2, 32, 4, 4)}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("denoising-diffusion-pytorch", commit, f"denoising_diffusion_pytorch/{file}", build)


FIXES = (
    _fix("840d3ff", "karras_unet.py", _karras),
    _fix("7b51e30", "denoising_diffusion_pytorch.py", _unet()),
    _fix("84731bb", "denoising_diffusion_pytorch.py", _unet(resnet_block_groups=4)),
)

"""Fixes of MONAI."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, made, module_of, numbers

_VOLUME = {"x": numbers(2, 4, 4, 6, 4)}


def _cascades(package: Any) -> Any:
    nets = "apps.reconstruction.networks.nets"
    unet = module_of(package, f"{nets}.complex_unet").ComplexUnet(spatial_dims=2, features=(2, 2, 2, 2, 2, 2))
    coils = module_of(package, f"{nets}.coil_sensitivity_model").CoilSensitivityModel(
        spatial_dims=2, features=(2, 2, 2, 2, 2, 2)
    )
    model = module_of(package, f"{nets}.varnet").VariationalNetworkModel(coils, unet, num_cascades=2)
    sampled = (torch.arange(32) % 2 == 0) | (torch.arange(32) - 16).abs().le(3)
    mask = sampled.view(1, 1, 1, 32, 1)
    return model, {"masked_kspace": numbers(2, 3, 32, 32, 2) * mask, "mask": mask}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("MONAI", commit, f"monai/{file}.py", build)


FIXES = (
    _fix("1c00ea22e", "networks/nets/swin_unetr", made("networks.nets.swin_unetr", "PatchMerging", _VOLUME, 4)),
    _fix(
        "ad6a4339c",
        "networks/nets/resnet",
        made(
            "networks.nets.resnet",
            "ResNet",
            {"x": numbers(2, 3, 16, 16)},
            "basic",
            [1, 1, 1, 1],
            [4, 8, 8, 8],
            spatial_dims=2,
            conv1_t_size=3,
            num_classes=5,
        ),
    ),
    _fix(
        "5a644e4ed",
        "networks/blocks/segresnet_block",
        made("networks.blocks.segresnet_block", "ResBlock", _VOLUME, 3, 4, "batch", kernel_size=5),
    ),
    _fix("f4b654455", "apps/reconstruction/networks/nets/varnet", _cascades),
    _fix(
        "dea3f701e",
        "networks/nets/highresnet",
        made("networks.nets.highresnet", "HighResBlock", {"x": numbers(2, 4, 6, 6, 6)}, 3, 4, 8, dilation=2),
    ),
    _fix(
        "7f88a469f",
        "networks/nets/swin_unetr",
        made(
            "networks.nets.swin_unetr",
            "SwinUNETR",
            {"x_in": numbers(2, 1, 64, 64)},
            img_size=(64, 64),
            in_channels=1,
            out_channels=2,
            depths=(1, 1, 1, 1),
            num_heads=(2, 2, 2, 2),
            feature_size=12,
            spatial_dims=2,
        ),
    ),
)

"""Fixes of MONAI."""

from __future__ import annotations

from fixes.fix import Build, Fix, made, numbers

_VOLUME = {"x": numbers(2, 4, 4, 6, 4)}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("MONAI", commit, f"monai/networks/{file}.py", build)


FIXES = (
    _fix("1c00ea22e", "nets/swin_unetr", made("networks.nets.swin_unetr", "PatchMerging", _VOLUME, 4)),
    _fix(
        "ad6a4339c",
        "nets/resnet",
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
        "blocks/segresnet_block",
        made("networks.blocks.segresnet_block", "ResBlock", _VOLUME, 3, 4, "batch", kernel_size=5),
    ),
)

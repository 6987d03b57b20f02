"""Fixes of kornia."""

from __future__ import annotations

import torch

from fixes.fix import Build, Fix, made, numbers

_FRAMES = torch.tensor([[[[4.0, 2.0, 8.0], [-1.0, 5.0, 9.0]], [[3.0, -2.0, 20.0], [2.0, 4.0, 15.0]]]])
_DOTS = numbers(2, 1, 12, 12).gt(2).float()


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("kornia", commit, f"kornia/{file}.py", build)


FIXES = (
    _fix(
        "fdb2d31c0",
        "feature/responses",
        made("feature.responses", "BlobDoGSingle", {"input": numbers(2, 1, 16, 16)}),
    ),
    _fix(
        "90f7dedde",
        "feature/orientation",
        made("feature.orientation", "LAFOrienter", {"laf": _FRAMES, "img": numbers(1, 1, 32, 32)}, patch_size=8),
    ),
    _fix(
        "637d1a5f6",
        "contrib/vit",
        made(
            "contrib.vit",
            "VisionTransformer",
            {"x": numbers(2, 3, 16, 16)},
            image_size=16,
            patch_size=8,
            in_channels=3,
            embed_dim=32,
            depth=2,
            num_heads=4,
        ),
    ),
    _fix(
        "1339e4b52",
        "contrib/distance_transform",
        made("contrib.distance_transform", "DistanceTransform", {"image": _DOTS}),
    ),
    _fix("8c60023dc", "filters/sobel", made("filters.sobel", "SpatialGradient", {"input": numbers(2, 3, 8, 8)})),
    _fix(
        "3e638aef5",
        "geometry/transform/affwarp",
        made(
            "geometry.transform.affwarp",
            "Resize",
            {"input": numbers(2, 3, 16, 24)},
            (6, 8),
            align_corners=False,
            antialias=True,
        ),
    ),
)

"""Fixes of vit-pytorch."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, made, numbers

_SIZES: dict[str, Any] = {"num_classes": 10, "dim": 32, "depth": 2, "heads": 4, "mlp_dim": 64, "dim_head": 8}
_VIT = {"image_size": 32, "patch_size": 8, **_SIZES}
_OLD = {name: size for name, size in _VIT.items() if name != "dim_head"}
_VIDEO = {"image_size": 16, "frames": 4, "image_patch_size": 8, "frame_patch_size": 2, **_SIZES}
_IMAGES = {"img": numbers(2, 3, 32, 32)}
_PACKED = {"batched_images": [[numbers(3, 32, 32), numbers(3, 16, 32, seed=4)], [numbers(3, 16, 16, seed=5)]]}
_STAGES = {
    f"s{stage}_{name}": size for stage in (1, 2, 3) for name, size in (("emb_dim", 16), ("heads", 2), ("depth", 1))
}
_TWINS = {
    f"s{stage}_{name}": size
    for stage in (1, 2, 3, 4)
    for name, size in (("emb_dim", 16), ("patch_size", 2), ("local_patch_size", 2), ("global_k", 2), ("depth", 1))
}
_BLOCKED: dict[str, Any] = {"image_size": 32, "patch_size": 4, "num_classes": 10, "dim": 16, "heads": 2, "dim_head": 8}
_SEEN = torch.ones(2, 8, 8, dtype=torch.bool)
_SEEN[1, 4:] = False


def _fix(commit: str, file: str, name: str, inputs: dict[str, Any], **given: Any) -> Fix:
    return Fix("vit-pytorch", commit, f"vit_pytorch/{file}.py", made(file, name, inputs, **given))


FIXES = (
    _fix("141239c", "simple_vit_with_value_residual", "SimpleViT", _IMAGES, **_VIT),
    _fix("3cff5e5", "vit_3d", "ViT", {"video": numbers(2, 3, 4, 16, 16)}, **_VIDEO),
    _fix("64a07f5", "cvt", "CvT", {"x": numbers(2, 3, 32, 32) / 100}, num_classes=10, **_STAGES),
    _fix("5578ac4", "simple_vit_with_fft", "SimpleViT", _IMAGES, freq_patch_size=8, **_VIT),
    _fix(
        "81661e3",
        "max_vit",
        "MaxViT",
        {"x": numbers(2, 3, 16, 16)},
        num_classes=10,
        dim=16,
        depth=(2,),
        dim_head=16,
        window_size=2,
    ),
    _fix("26df10c", "nest", "NesT", _IMAGES, **_BLOCKED, num_heirarchies=2, block_repeats=(1, 1)),
    _fix("7807f24", "twins_svt", "TwinsSVT", {"x": numbers(2, 3, 64, 64)}, num_classes=10, **_TWINS),
    _fix("96f66d2", "na_vit", "NaViT", _PACKED, **_VIT),
    _fix("4c29328", "rvt", "RvT", _IMAGES, **_VIT),
    _fix("825a948", "vit_pytorch", "ViT", {"img": numbers(1, 3, 32, 32)}, **_OLD),
    _fix(
        "3f2cbc6",
        "vit_pytorch",
        "ViT",
        {"img": numbers(2, 3, 32, 32), "mask": _SEEN},
        **{**_VIT, "patch_size": 4, "heads": 2},
    ),
)

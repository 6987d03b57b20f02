"""Fixes of kornia."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, made, numbers

_FRAMES = torch.tensor([[[[4.0, 2.0, 8.0], [-1.0, 5.0, 9.0]], [[3.0, -2.0, 20.0], [2.0, 4.0, 15.0]]]])


def _fix(commit: str, file: str, name: str, inputs: dict[str, Any], **given: Any) -> Fix:
    return Fix("kornia", commit, f"kornia/feature/{file}.py", made(f"feature.{file}", name, inputs, **given))


FIXES = (
    _fix("fdb2d31c0", "responses", "BlobDoGSingle", {"input": numbers(2, 1, 16, 16)}),
    _fix("90f7dedde", "orientation", "LAFOrienter", {"laf": _FRAMES, "img": numbers(1, 1, 32, 32)}, patch_size=8),
)

"""Fixes of segmentation_models.pytorch."""

from __future__ import annotations

from fixes.fix import Fix, made, numbers

_NAME = "segmentation_models_pytorch"

FIXES = (
    Fix(
        "segmentation_models.pytorch",
        "28ea9f8",
        f"{_NAME}/decoders/dpt/decoder.py",
        made(
            "decoders.dpt.decoder",
            "ReadoutConcatBlock",
            {"features": numbers(4, 8, 2, 2), "prefix_tokens": numbers(4, 1, 8, seed=4)},
            8,
            has_prefix_tokens=True,
        ),
    ),
)

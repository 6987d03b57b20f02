"""Fixes of wenet."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, made, numbers

_FRAMES = numbers(2, 6, 8)
_BIAS = torch.zeros(2, 6, 6)
_BIAS[1, :, 4:] = torch.finfo(torch.float32).min
_SPEECH = {"xs": numbers(2, 31, 16), "xs_lens": torch.tensor([31, 21])}
_SIZES: dict[str, Any] = {"output_size": 8, "attention_heads": 2, "num_blocks": 2}


def _conformer(**given: Any) -> Build:
    return made("transformer.encoder", "ConformerEncoder", _SPEECH, 16, linear_units=16, **_SIZES, **given)


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("wenet", commit, f"wenet/{file}.py", build)


FIXES = (
    _fix(
        "2494c016",
        "transformer/attention",
        made(
            "transformer.attention",
            "ShawRelPositionMultiHeadedAttention",
            {"query": _FRAMES, "key": _FRAMES, "value": _FRAMES, "mask": _BIAS},
            2,
            8,
            0.0,
            use_sdpa=True,
        ),
    ),
    _fix("f8625763", "transformer/subsampling", _conformer()),
    _fix("b41169fc", "transformer/encoder", _conformer(pos_enc_layer_type="abs_pos")),
)

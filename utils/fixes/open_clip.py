"""Fixes of open_clip."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, made, module_of, numbers

_TEXT = {"context_length": 8, "vocab_size": 64, "width": 32, "heads": 4, "layers": 2}


def _captions(package: Any) -> Any:
    model = module_of(package, "coca_model").CoCa(
        32,
        multimodal_cfg=_TEXT,
        text_cfg={**_TEXT, "embed_cls": True, "output_tokens": True},
        vision_cfg={
            "image_size": 32,
            "patch_size": 8,
            "width": 32,
            "head_width": 8,
            "layers": 2,
            "attentional_pool": True,
            "attn_pooler_heads": 4,
            "output_tokens": True,
        },
        init_logit_bias=-10.0,
    )
    return model, {"image": numbers(2, 3, 32, 32), "text": torch.arange(1, 17).view(2, 8)}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("open_clip", commit, f"src/open_clip/{file}", build)


FIXES = (
    _fix("596fbe7", "coca_model.py", _captions),
    _fix(
        "6a5068e",
        "transformer.py",
        made("transformer", "AttentionalPooler", {"x": numbers(4, 4, 16)}, 32, 16, n_head=4, n_queries=4),
    ),
)

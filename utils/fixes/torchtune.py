"""Fixes of torchtune."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, module_of, numbers

_IDS = {"tokens": torch.arange(2, 18).view(2, 8)}
_SIZES = {"vocab_size": 64, "num_layers": 2, "num_heads": 4, "num_kv_heads": 2, "embed_dim": 32, "max_seq_len": 16}


def _vision(package: Any) -> Any:
    clip = module_of(package, "models.clip")
    sizes = {"tile_size": 8, "patch_size": 4, "embed_dim": 32, "num_layers": 2, "num_heads": 4}
    model = clip.clip_vision_encoder(**sizes, out_indices=[0, 2], max_num_tiles=1)
    return model, {"images": numbers(2, 1, 1, 3, 8, 8), "aspect_ratio": torch.ones(2, 1, 2, dtype=torch.long)}


def _gemma(package: Any) -> Any:
    model = module_of(package, "models.gemma").gemma(**_SIZES, head_dim=8, intermediate_dim=48)
    return model, {**_IDS, "input_pos": torch.arange(0, 16, 2)}


def _eps(package: Any) -> Any:
    transformer = module_of(package, "models.llama2.transformer")
    return transformer.TransformerDecoder(**_SIZES, norm_eps=1e-2), _IDS


def _rotary(package: Any) -> Any:
    positions = module_of(package, "modules.position_embeddings")
    made = positions.VisionRotaryPositionalEmbeddings(patch_size=4, tile_size=16, dim=16)
    return made, {"x": numbers(2, 17, 4, 16)}


def _lora(package: Any) -> Any:
    attention = module_of(package, "models.clip._component_builders").lora_clip_attention
    sizes = {"embed_dim": 32, "num_heads": 4, "num_kv_heads": 4, "head_dim": 8, "lora_rank": 2, "lora_alpha": 4}
    states = numbers(2, 6, 32)
    return attention(lora_modules=["q_proj", "v_proj"], **sizes, attn_bias=True), {"x": states, "y": states}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("torchtune", commit, f"torchtune/{file}", build)


FIXES = (
    _fix("00a10bd6e", "modules/vision_transformer.py", _vision),
    _fix("e6fc83209", "models/gemma/transformer.py", _gemma),
    _fix("08844cbd6", "models/llama2/transformer.py", _eps),
    _fix("dda297784", "modules/position_embeddings.py", _rotary),
    _fix("dedc209c5", "models/clip/_component_builders.py", _lora),
)

"""Fixes of litgpt, whose package was once ``lit_gpt``."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, module_of

_SMALL = {"block_size": 16, "n_layer": 2, "n_head": 4, "n_embd": 32, "vocab_size": 64, "padded_vocab_size": 64}
_LLAMA = {"norm_class_name": "RMSNorm", "intermediate_size": 48, "bias": False, "rotary_percentage": 1.0}
_GEMMA = {**_LLAMA, "mlp_class_name": "GemmaMLP", "gelu_approximate": "tanh", "parallel_residual": False}
_LORA = {"lora_r": 2, "lora_alpha": 4, "lora_query": True, "lora_value": True}


def _made(module: str, **given: Any) -> Build:
    def build(package: Any) -> Any:
        held = module_of(package, module)
        return held.GPT(held.Config(**_SMALL, **given)), {"idx": torch.arange(2, 18).view(2, 8)}

    return build


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("litgpt", commit, f"litgpt/{file}", build)


FIXES = (
    _fix("025a6688", "lora.py", _made("lora", **_GEMMA, **_LORA)),
    _fix("c7ae8669", "adapter.py", _made("adapter", **_GEMMA, scale_embeddings=True, adapter_start_layer=1)),
    _fix("73adb38a", "adapter_v2.py", _made("adapter_v2", **_GEMMA, scale_embeddings=True)),
)

"""Fixes of OLMo."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Fix, module_of

_SIZES: dict[str, Any] = {
    "d_model": 16,
    "n_heads": 2,
    "n_layers": 2,
    "mlp_ratio": 2,
    "rope": True,
    "max_sequence_length": 16,
    "vocab_size": 20,
    "embedding_size": 20,
    "eos_token_id": 0,
    "pad_token_id": 0,
    "init_device": "cpu",
    "attention_dropout": 0.0,
}


def _olmo(package: Any) -> Any:
    config = module_of(package, "config")
    sizes = config.ModelConfig(block_type=config.BlockType.llama, **_SIZES)
    return module_of(package, "model").Olmo(sizes), {"input_ids": torch.arange(1, 17).view(2, 8)}


FIXES = (Fix("OLMo", "6c4b8e15", "olmo/model.py", _olmo),)

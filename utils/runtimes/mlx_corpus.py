"""Model types that both transformers and mlx-lm implement, at tiny seeded configurations."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import PreTrainedModel

_SIZES = {
    "vocab_size": 99,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "initializer_range": 0.1,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "attn_implementation": "eager",
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
_DEEPSEEK = {
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_shared_experts": 1,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "num_key_value_heads": 4,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
}
_GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128}
#: Model type -> what its configuration needs beside the sizes. mlx-lm agrees on the first, differs on the rest.
TYPES: dict[str, dict[str, Any]] = {
    "llama": {"rms_norm_eps": 1e-5},
    "mistral": {"head_dim": 16},
    "qwen2": {},
    "qwen3": {"head_dim": 16},
    "gemma3_text": {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 4, "sliding_window_pattern": 2},
    "phi": {},
    "phi3": {},
    "stablelm": {},
    "cohere": {},
    "olmo2": {},
    "olmoe": {**_EXPERTS, "num_key_value_heads": 4},
    "granite": {
        "logits_scaling": 2.0,
        "residual_multiplier": 0.5,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.2,
    },
    "granitemoe": {**_LOCAL, "logits_scaling": 2.0, "residual_multiplier": 0.5},
    "glm4": {"head_dim": 16},
    "glm4_moe": {**_DEEPSEEK, "head_dim": 16, "num_key_value_heads": 2},
    "nemotron": {},
    "mixtral": {**_LOCAL},
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 48},
    "helium": {"head_dim": 16},
    "smollm3": {},
    "ernie4_5": {"head_dim": 16},
    "seed_oss": {"head_dim": 16},
    "hunyuan_v1_dense": {"head_dim": 16},
    "deepseek_v3": {**_DEEPSEEK, "num_hidden_layers": 2},
    "mamba": {"state_size": 8, "expand": 2, "use_mambapy": False},
    "mamba2": {"state_size": 8, "num_heads": 8, "head_dim": 16, "expand": 2, "n_groups": 1, "chunk_size": 4},
    "dots1": {**_DEEPSEEK, "head_dim": 16, "num_key_value_heads": 2},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8, "head_dim": 16},
    "ministral3": {"head_dim": 16},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"], **_EXPERTS, "num_dense_layers": 1},
    "nemotron_h": {"hybrid_override_pattern": "*-", "head_dim": 16},
    "gptj": {**_GPT, "rotary_dim": 8},
    "laguna": {**_EXPERTS, "head_dim": 16},
    "gemma": {"head_dim": 16},
    "gemma2": {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 4},
    "starcoder2": {},
    "glm": {"head_dim": 16},
    "jamba": {
        **_EXPERTS,
        "mamba_d_state": 8,
        "mamba_dt_rank": 4,
        "use_mamba_kernels": False,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
    },
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32, "moe_layer_start_index": 1},
    "glm4_moe_lite": {**_DEEPSEEK},
    "olmo3": {"sliding_window": 4, "num_hidden_layers": 4},  # every fourth has full attention, and mlx-lm asks for one
    "internlm3": {"head_dim": 16},
}
QUIET = [*TYPES][:33]
IDS = torch.arange(1, 13)[None] * 7 % 99


def reference(kind: str, **more: Any) -> PreTrainedModel:
    """Return a tiny seeded model of a type, with every one-dimensional parameter off its 0 or 1."""
    from transformers import AutoConfig, AutoModelForCausalLM

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = AutoConfig.for_model(kind, **{**_SIZES, **TYPES[kind], **more})
        model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().float()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() == 1:
                    parameter.add_(0.1 * torch.randn_like(parameter))
                elif not parameter.any():
                    parameter.normal_(0, 0.1)
    return model


def mlx_config(model: PreTrainedModel) -> dict[str, Any]:
    """Return a model's configuration as transformers 4 writes it and mlx-lm reads it: rotary parameters at the top."""
    config: dict[str, Any] = {"num_hidden_layers": model.config.num_hidden_layers, **model.config.to_dict()}
    rope = config.get("rope_parameters") or {}
    if "full_attention" in rope:  # one for each kind of layer
        config["rope_local_base_freq"] = rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    for key, value in rope.items():
        if key != "rope_type":
            config.setdefault(key, value)
    if rope:
        config["rope_scaling"] = None if rope["rope_type"] == "default" else {**rope, "type": rope["rope_type"]}
    return config


def mlx_model(model: PreTrainedModel, module: Any = None, *, dtype: str = "float32") -> Any:
    """Return mlx-lm's model with the weights of a reference, through its own ``sanitize``.

    Args:
        model: The reference.
        module: The module that holds its classes; that of mlx-lm without one.
        dtype: Name of the dtype of its weights.
    """
    import mlx.core as mx
    from mlx_lm.utils import _get_classes

    config = mlx_config(model)
    kind, arguments = _get_classes(config) if module is None else (module.Model, module.ModelArgs)
    port = kind(arguments.from_dict(config))
    with TemporaryDirectory() as folder:  # the names of the checkpoint are not always those of the model
        model.save_pretrained(folder)
        weights = mx.load(str(Path(folder) / "model.safetensors"))
    if hasattr(port, "sanitize"):
        weights = port.sanitize(weights)
    port.load_weights([(name, held.astype(getattr(mx, dtype))) for name, held in weights.items()])
    port.eval()
    mx.eval(port.parameters())
    return port

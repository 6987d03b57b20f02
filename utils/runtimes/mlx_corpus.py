"""Model types that both transformers and mlx-lm implement, at tiny seeded configurations.

As a script it prints which ports of mlx-lm are quiet as they are.
"""

from __future__ import annotations

import logging
from typing import Any

import mlx.core as mx
import torch
from mlx_lm.utils import load_model
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

import command
from pytest_tfdebug import compare, trace
from pytest_tfdebug.mlx import arrays
from sweep_ports import saved

# fmt: off
_SIZES = {
    "vocab_size": 99, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "initializer_range": 0.1, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2, "attn_implementation": "eager",
}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LOCAL = {"num_local_experts": 4, "num_experts_per_tok": 2}
_DEEPSEEK = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1, "n_group": 2,
    "topk_group": 1, "first_k_dense_replace": 1, "num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": 24,
    "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
}
_HEADS, _SCALED = {"head_dim": 16}, {"logits_scaling": 2.0, "residual_multiplier": 0.5}
_GLM = {**_DEEPSEEK, **_HEADS, "num_key_value_heads": 2}
#: Model type -> what its configuration needs beside the sizes. mlx-lm agrees on the first, differs on the rest.
TYPES: dict[str, dict[str, Any]] = {
    "llama": {"rms_norm_eps": 1e-5}, "mistral": _HEADS, "qwen2": {}, "qwen3": _HEADS,
    "gemma3_text": {**_HEADS, "query_pre_attn_scalar": 16, "sliding_window": 4, "sliding_window_pattern": 2},
    "phi": {}, "phi3": {}, "stablelm": {}, "cohere": {}, "olmo2": {}, "olmoe": {**_EXPERTS, "num_key_value_heads": 4},
    "granite": {**_SCALED, "embedding_multiplier": 3.0, "attention_multiplier": 0.2},
    "granitemoe": {**_LOCAL, **_SCALED}, "glm4": _HEADS, "glm4_moe": _GLM, "nemotron": {}, "mixtral": _LOCAL,
    "qwen2_moe": {**_EXPERTS, "shared_expert_intermediate_size": 48}, "helium": _HEADS, "smollm3": {},
    "ernie4_5": _HEADS, "seed_oss": _HEADS, "hunyuan_v1_dense": _HEADS,
    "deepseek_v3": {**_DEEPSEEK, "num_hidden_layers": 2},
    "mamba": {"state_size": 8, "expand": 2, "use_mambapy": False},
    "mamba2": {**_HEADS, "state_size": 8, "num_heads": 8, "expand": 2, "n_groups": 1, "chunk_size": 4}, "dots1": _GLM,
    "falcon_h1": {**_HEADS, "mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8},
    "ministral3": _HEADS, "lfm2_moe": {**_EXPERTS, "layer_types": ["conv", "full_attention"], "num_dense_layers": 1},
    "nemotron_h": {**_HEADS, "hybrid_override_pattern": "*-"},
    "gptj": {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128, "rotary_dim": 8},
    "laguna": {**_EXPERTS, **_HEADS}, "gemma": _HEADS,
    "gemma2": {**_HEADS, "query_pre_attn_scalar": 16, "sliding_window": 4}, "starcoder2": {}, "glm": _HEADS,
    "jamba": {**_EXPERTS, "mamba_d_state": 8, "mamba_dt_rank": 4, "use_mamba_kernels": False, "attn_layer_period": 2,
              "attn_layer_offset": 1},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 32, "moe_layer_start_index": 1},
    "glm4_moe_lite": _DEEPSEEK,
    "olmo3": {"sliding_window": 4, "num_hidden_layers": 4},  # every fourth has full attention, and mlx-lm asks for one
    "internlm3": _HEADS,
}
# fmt: on
QUIET = [*TYPES][:33]
IDS = torch.arange(1, 13)[None] * 7 % 99


def reference(kind: str, **more: Any) -> PreTrainedModel:
    """Return a tiny seeded model of a type, with every one-dimensional parameter off its 0 or 1."""
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


def mlx_model(model: PreTrainedModel, module: Any = None, *, dtype: str = "float32") -> Any:
    """Return mlx-lm's model with the weights of a reference, through its own loader.

    Args:
        model: The reference.
        module: The module that holds its classes; that of mlx-lm without one.
        dtype: Name of the dtype of its weights.
    """
    classes = {} if module is None else {"get_model_classes": lambda **_: (module.Model, module.ModelArgs)}
    with saved(model, model.config) as folder:
        port, *_ = load_model(folder, **classes)
    port.set_dtype(getattr(mx, dtype))
    mx.eval(port.parameters())
    return port


def main() -> None:
    """Print a row for each type."""
    parser = command.parser(__doc__, "only", "dtype", only=[*TYPES])
    options = parser.parse_args()
    command.quiet()
    logging.disable(logging.WARNING)
    mx.set_default_device(mx.cpu)
    table = command.Table("mlx-lm", "quiet", "differs", "paired", "arrays", "farthest", "")
    for kind in options.only:
        try:
            model = reference(kind)
            found = arrays(mlx_model(model, dtype=options.dtype), mx.array(IDS.numpy()))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a kernel that MLX has not
            print(f"{kind}: not run: {type(error).__name__}: {str(error).splitlines()[0][:90]}")
            continue
        report = compare(trace(model, input_ids=IDS, use_cache=False), found)
        farthest = max((array.distance for array in report.arrays if array.partners), default=0.0)
        told = "" if report.ok else str(report).splitlines()[0]
        quiet = int(report.ok), int(not report.ok)
        table.add(kind, (*quiet, report.tensors, len(report.arrays), f"{farthest:.1e}", told))
    table.total()


if __name__ == "__main__":
    main()

"""Makes a configuration small, so that a model of it runs in a second."""

from __future__ import annotations

from typing import Any

import torch

from pytest_tfdebug.errors import TFDebugError

#: Entries and their small values; the vocabulary stays, since special tokens are at its end.
_SIZES = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "num_layers", "encoder_layers", "decoder_layers", "depth"), 2),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "encoder_attention_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "n_routed_experts", "num_experts", "num_local_experts"), 4),
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "embedding_size", "embed_dim", "projection_dim"), 32),
    **dict.fromkeys(("intermediate_size", "d_ff", "ffn_dim", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner"), 64),
    **dict.fromkeys(("num_key_value_heads", "num_experts_per_tok"), 2),
    **dict.fromkeys(("head_dim", "d_kv", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "rotary_dim"), 8),
    **dict.fromkeys(("kv_lora_rank", "q_lora_rank", "moe_intermediate_size", "state_size"), 8),
    **dict.fromkeys(("n_group", "topk_group"), 1),
}
#: Entries with one item for each layer.
_BY_LAYER = ("layer_types", "mlp_layer_types", "layers_block_type")
#: Entries that some architectures derive, or refuse at these sizes.
_DERIVED = ("head_dim", "v_head_dim", "num_key_value_heads")
#: A model with at most this many parameters is run as it is configured.
_SMALL = 20_000_000


def small(model_class: Any, config: Any) -> Any:  # noqa: ANN401 - classes of transformers
    """Return the configuration, or the first of smaller ones that a model can be built from.

    Raises:
        TFDebugError: If none of the smaller ones gives a model.
    """
    if _size(model_class, config) <= _SMALL:
        return config
    told = f"more than {_SMALL:,} parameters at small sizes"
    for without in ((), _DERIVED[:1], _DERIVED):
        try:
            smaller = type(config).from_dict(_shrunk(config.to_dict(), without))
            if _size(model_class, smaller) <= _SMALL:
                return smaller
        except Exception as error:  # noqa: BLE001, PERF203 - every architecture refuses in its own way
            told = f"{type(error).__name__}: {error}"
    raise TFDebugError(
        f"No small {model_class.__name__} could be built ({told}).\n"
        "Give a small configuration: hidden_size=32, two layers."
    )


def is_small(model: torch.nn.Module) -> bool:
    """Tell whether a model is small enough to be run again and again."""
    return sum(parameter.numel() for parameter in model.parameters()) <= _SMALL


def _size(model_class: Any, config: Any) -> int:  # noqa: ANN401
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in model_class(config).parameters())


def _shrunk(entries: dict[str, Any], without: tuple[str, ...]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for name, value in entries.items():
        if isinstance(value, dict) and name.endswith("_config"):
            made[name] = _shrunk(value, without)
        elif name in _BY_LAYER and isinstance(value, list) and value:
            made[name] = [value[0], value[-1]]
        elif name in without:
            made[name] = None
        elif name in _SIZES and isinstance(value, int):
            made[name] = min(value, _SIZES[name])
        else:
            made[name] = value
    return made

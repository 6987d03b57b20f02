"""Hand-written ports with three fields pinned each: a sweep finds all of them, whatever the port's structure is."""

import pytest
import torch
from handwritten.bare_qwen3 import BareQwen3
from handwritten.rope_llama import RopeLlama
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

import pytest_tfdebug

SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 72,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "head_dim": 8,
    "pad_token_id": 0,
}
#: Fields of the reference that neither port was written for.
UNWRITTEN = {"hidden_act", "rope_type", "max_position_embeddings", "attention_bias"}
WINDOWS = {"use_sliding_window", "sliding_window", "max_window_layers", "layer_types"}


def rope_llama(config):
    """Pins the epsilon, the base of the rotary embedding, and two layers."""
    sizes = {
        "heads": config.num_attention_heads,
        "groups": config.num_key_value_heads,
        "inner": config.intermediate_size,
    }
    return RopeLlama(config.vocab_size, config.hidden_size, **sizes, units=2, eps=1e-6, base=1e4)


def load_rope_llama(port, reference):
    theirs = reference.state_dict()
    own = {
        "words.weight": theirs["model.embed_tokens.weight"],
        "scale.gain": theirs["model.norm.weight"],
        "out.weight": theirs["lm_head.weight"],
    }
    for layer in range(2):
        path, unit = f"model.layers.{layer}", f"units.{layer}"
        part = {name: theirs[f"{path}.self_attn.{name}_proj.weight"] for name in "qkvo"}
        wide = {name: theirs[f"{path}.mlp.{name}_proj.weight"] for name in ("gate", "up", "down")}
        own |= {
            f"{unit}.scale_a.gain": theirs[f"{path}.input_layernorm.weight"],
            f"{unit}.scale_b.gain": theirs[f"{path}.post_attention_layernorm.weight"],
            f"{unit}.mixer.to_q.weight": part["q"],
            f"{unit}.mixer.to_kv.weight": torch.cat([part["k"], part["v"]]),
            f"{unit}.mixer.back.weight": part["o"],
            f"{unit}.widen.both.weight": torch.cat([wide["gate"], wide["up"]]),
            f"{unit}.widen.narrow.weight": wide["down"],
        }
    port.load_state_dict(own)


class LateQwen3:
    """Pins the epsilon, the base of the rotary embedding, and that no window is used; made once weights are known."""

    def __init__(self, config):
        self.config = config

    def load(self, reference):
        theirs, config = reference.state_dict(), self.config
        own = {
            "embedding": theirs["model.embed_tokens.weight"],
            "final": theirs["model.norm.weight"],
            "unembedding": theirs["lm_head.weight"],
        }
        for layer in range(config.num_hidden_layers):
            path = f"model.layers.{layer}"
            q, k, v = (
                theirs[f"{path}.self_attn.{part}_proj.weight"].unflatten(0, (2, -1, config.head_dim)) for part in "qkv"
            )
            own |= {
                f"{layer}_wqkv": torch.cat((paired(q), paired(k), v), 1).flatten(0, 2),
                f"{layer}_q_scale": paired(theirs[f"{path}.self_attn.q_norm.weight"][:, None])[:, 0],
                f"{layer}_k_scale": paired(theirs[f"{path}.self_attn.k_norm.weight"][:, None])[:, 0],
                f"{layer}_wo": theirs[f"{path}.self_attn.o_proj.weight"],
                f"{layer}_n1": theirs[f"{path}.input_layernorm.weight"],
                f"{layer}_n2": theirs[f"{path}.post_attention_layernorm.weight"],
                f"{layer}_wug": torch.cat([theirs[f"{path}.mlp.{part}_proj.weight"] for part in ("up", "gate")]),
                f"{layer}_wd": theirs[f"{path}.mlp.down_proj.weight"],
            }
        own = {name: weight.clone() for name, weight in own.items()}
        self.model = BareQwen3(own, layers=config.num_hidden_layers, groups=2, base=1e4, eps=1e-6)

    def __call__(self, input_ids):
        return self.model(input_ids)


def paired(rows):
    order = torch.arange(rows.shape[-2]).view(2, -1).T.flatten()
    return rows[..., order, :]


@pytest.mark.parametrize(
    ("reference", "config", "arguments", "pinned", "refused"),
    [
        (
            LlamaForCausalLM,
            LlamaConfig(**SIZES),
            {"build": rope_llama, "load": load_rope_llama},
            {"rms_norm_eps", "rope_theta", "num_hidden_layers", "mlp_bias", *UNWRITTEN},
            {"head_dim", "hidden_size", "num_attention_heads"},
        ),
        (
            Qwen3ForCausalLM,
            Qwen3Config(**SIZES),
            {"build": LateQwen3, "load": LateQwen3.load},
            {"rms_norm_eps", "rope_theta", *WINDOWS, *UNWRITTEN},
            {"num_key_value_heads"},
        ),
    ],
    ids=["rope_llama", "bare_qwen3"],
)
def test_each_field_that_a_port_pins_is_found(reference, config, arguments, pinned, refused):
    report = pytest_tfdebug.sweep(reference, config, **arguments)

    verdicts = {
        name: {row.field for row in report.rows if row.verdict == name} for name in ("ignored", "differs", "refused")
    }
    assert verdicts["ignored"] | verdicts["differs"] == pinned
    assert verdicts["refused"] == refused

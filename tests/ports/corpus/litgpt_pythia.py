"""GPT-NeoX in litgpt: parallel residual, half of each head rotated, biases, the fused rows in another order."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, names_of
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

MODEL = "litgpt.model"
ATTENTION, BLOCK, MLP = "class CausalSelfAttention", "class Block", "class GptNeoxMLP"


def build(load):
    reference = shaken(
        GPTNeoXForCausalLM(
            GPTNeoXConfig(
                vocab_size=64,
                hidden_size=32,
                num_hidden_layers=3,
                num_attention_heads=4,
                intermediate_size=128,
                max_position_embeddings=32,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
            )
        )
    )
    config = load("litgpt.config").Config(
        name="tiny",
        block_size=32,
        n_layer=3,
        n_embd=32,
        padded_vocab_size=64,
        n_head=4,
        rotary_percentage=0.5,
        intermediate_size=128,
    )
    port = load(MODEL).GPT(config).eval()
    names = [(r"^embed_out", "lm_head"), (r"attention\.query_key_value", "attn.qkv")]
    port = carried(port, reference, [*names_of(PORT.rename), *names], unmixed)
    ids = tokens(64)
    return Case(reference, port, reference_kwargs={"input_ids": ids, "use_cache": False}, port_args=(ids,))


NAMES = {
    "norm_1": "input_layernorm",
    "norm_2": "post_attention_layernorm",
    "attn.proj": "attention.dense",
    "mlp.fc": "mlp.dense_h_to_4h",
    "mlp.proj": "mlp.dense_4h_to_h",
}


def unmixed(weights):
    """Put the queries of all heads before the keys and the values."""
    for name in [name for name in weights if "query_key_value" in name]:
        weights[name] = weights[name].unflatten(0, (4, 3, -1)).transpose(0, 1).flatten(0, 2)
    return weights


def keep_rows_by_head(block):
    """Load the fused projection with the rows as the reference has them."""
    with torch.no_grad():
        for parameter in block.attn.qkv.parameters():
            parameter.copy_(parameter.unflatten(0, (3, 4, -1)).transpose(0, 1).flatten(0, 2))


def forget_bias(block):
    """Leave the bias of the second layer of the MLP at zero."""
    with torch.no_grad():
        block.mlp.proj.bias.zero_()


RESIDUAL = ("mlp_output + attn_output + hidden_states",)

BUGS = (
    Bug(
        "residual not parallel",
        ("",),
        MODEL,
        "                x_normed = self.norm_2(x)\n            x = attention_output + x",
        "                x_normed = self.norm_2(attention_output + x)\n            x = attention_output + x",
        BLOCK,
    ),
    Bug(
        "norm shared",
        ("",),
        MODEL,
        "            if not self.config.shared_attention_norm:\n                x_normed = self.norm_2(x)",
        "            if not self.config.shared_attention_norm:\n                x_normed = self.norm_1(x)",
        BLOCK,
        reference_lines=("self.post_attention_layernorm(hidden_states)",),
    ),
    Bug(
        "attention not added",
        ("",),
        MODEL,
        "                x_normed = self.norm_2(x)\n            x = attention_output + x",
        "                x_normed = self.norm_2(x)\n            x = 0 * attention_output + x",
        BLOCK,
        reference_lines=RESIDUAL,
    ),
    Bug(
        "residual missing",
        ("",),
        MODEL,
        "return self.post_mlp_norm(self.mlp(x_normed)) + x",
        "return self.post_mlp_norm(self.mlp(x_normed)) + attention_output",
        BLOCK,
        reference_lines=RESIDUAL,
    ),
    Bug(
        "relu instead of gelu",
        ("mlp",),
        MODEL,
        "x = F.gelu(x, approximate=self.config.gelu_approximate)\n        return",
        "x = F.relu(x)\n        return",
        MLP,
    ),
    Bug(
        "tanh in the activation",
        ("transformer.h.0.mlp",),
        MODEL,
        "x = F.gelu(x, approximate=self.config.gelu_approximate)\n        return",
        "x = F.gelu(x, approximate='tanh')\n        return",
        MLP,
        in_layer=False,
    ),
    Bug(
        "whole heads rotated",
        ("attn",),
        MODEL,
        "q = torch.cat((q_roped, q[..., rope_n_elem:]), dim=-1)  # (B, nh_q, T, hs)",
        "q = torch.cat((q_roped, q_roped), dim=-1)  # (B, nh_q, T, hs)",
        ATTENTION,
    ),
    Bug(
        "rotation of the last entries",
        ("attn",),
        MODEL,
        "            k_roped = apply_rope(k[..., :rope_n_elem], cos, sin)\n        q = torch.cat",
        "            k_roped = apply_rope(k[..., -rope_n_elem:], cos, sin)\n        q = torch.cat",
        ATTENTION,
        shows=("roped = (x * cos) + (rotated * sin)",),
    ),
    Bug(
        "rotated by the sine alone",
        ("attn",),
        MODEL,
        "roped = (x * cos) + (rotated * sin)",
        "roped = (x * sin) + (rotated * sin)",
        "def apply_rope(",
    ),
    Bug(
        "key and value swapped",
        ("attn",),
        MODEL,
        "q, k, v = qkv.split((query_size",
        "q, v, k = qkv.split((query_size",
        ATTENTION,
    ),
    Bug(
        "scale of the rotated entries",
        ("attn",),
        MODEL,
        "math.sqrt(self.config.attention_scores_scalar or self.config.head_size)",
        "math.sqrt(self.config.rope_n_elem)",
        ATTENTION,
        shows=("y = F.scaled_dot_product_attention(",),
    ),
    Bug(
        "heads not brought back",
        ("attn",),
        MODEL,
        "        return y.transpose(1, 2)\n\n    def build_kv_cache",
        "        return y\n\n    def build_kv_cache",
        ATTENTION,
        shows=("y = y.reshape(B, T,",),
    ),
    Bug(
        "positions halved",
        ("",),
        MODEL,
        "torch.arange(seq_len, device=device).float() / condense_ratio",
        "torch.arange(seq_len, device=device).float() / 2",
        in_layer=False,
        shows=("cos = self.cos[:T]", "sin = self.sin[:T]"),
    ),
    Bug(
        "embedding scaled",
        ("",),
        MODEL,
        "x = self.transformer.wte(idx)  # token",
        "x = self.transformer.wte(idx) * self.config.n_embd**0.5  # token",
        in_layer=False,
    ),
    Bug("rows by head", ("attn.qkv", "attn"), change=keep_rows_by_head),
    Bug("bias not loaded", ("mlp.proj", "mlp"), change=forget_bias),
)

PORT = Port(
    "litgpt-pythia",
    "litgpt",
    (MODEL, "litgpt.config"),
    build,
    BUGS,
    "transformer.h.1",
    {
        "transformer.wte": "gpt_neox.embed_in",
        "transformer.h.*": "gpt_neox.layers.*",
        "transformer.ln_f": "gpt_neox.final_layer_norm",
    }
    | {f"transformer.h.*.{ours}": f"gpt_neox.layers.*.{theirs}" for ours, theirs in NAMES.items()},
)

"""Llama in litgpt: one fused projection for query, key and value, grouped queries, rotary tables in the root."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, fused, names_of
from transformers import LlamaConfig, LlamaForCausalLM

MODEL = "litgpt.model"


def build(load):
    reference = shaken(
        LlamaForCausalLM(
            LlamaConfig(
                vocab_size=64,
                hidden_size=32,
                intermediate_size=72,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                max_position_embeddings=32,
                rms_norm_eps=1e-5,
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
        n_query_groups=2,
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        norm_class_name="RMSNorm",
        mlp_class_name="LLaMAMLP",
        intermediate_size=72,
    )
    port = load(MODEL).GPT(config).eval()
    ids = tokens(64)
    port = carried(port, reference, names_of(PORT.rename), joined)
    return Case(reference, port, reference_kwargs={"input_ids": ids, "use_cache": False}, port_args=(ids,))


def joined(weights):
    return fused(weights, [f"self_attn.{part}_proj" for part in "qkv"], "self_attn.qkv")


def roll_fused_rows(block):
    """Give the fused projection its rows in another order: key, value, query."""
    with torch.no_grad():
        block.attn.qkv.weight.copy_(block.attn.qkv.weight.roll(32, 0))


def transpose_output(block):
    """Load the output projection transposed."""
    with torch.no_grad():
        block.attn.proj.weight.copy_(block.attn.proj.weight.T.clone())


ATTENTION, LLAMA_MLP, BLOCK = "class CausalSelfAttention", "class LLaMAMLP", "class Block"

BUGS = (
    Bug("gelu instead of silu", ("mlp",), MODEL, "F.silu(x_fc_1)", "F.gelu(x_fc_1)", LLAMA_MLP),
    Bug("gate and up swapped", ("mlp",), MODEL, "F.silu(x_fc_1) * x_fc_2", "F.silu(x_fc_2) * x_fc_1", LLAMA_MLP),
    Bug(
        "residual of the attention missing",
        ("",),
        MODEL,
        "        else:\n            x = attention_output + x\n",
        "        else:\n            x = attention_output\n",
        BLOCK,
        reference_lines=("hidden_states = residual + hidden_states",),
    ),
    Bug(
        "residual after the norm",
        ("",),
        MODEL,
        "        else:\n            x = attention_output + x\n",
        "        else:\n            x = attention_output + x_normed\n",
        BLOCK,
        reference_lines=("hidden_states = residual + hidden_states",),
    ),
    Bug(
        "second norm skipped",
        ("",),
        MODEL,
        "            x = attention_output + x\n            x_normed = self.norm_2(x)",
        "            x = attention_output + x\n            x_normed = x",
        BLOCK,
        reference_lines=(
            "return self.weight * hidden_states",
            "self.post_attention_layernorm(hidden_states)",
            "torch.rsqrt(variance",
            "hidden_states.pow(2)",
        ),
    ),
    Bug(
        "grouped keys tiled",
        ("attn",),
        MODEL,
        "k.repeat_interleave(q_per_kv, dim=1)",
        "k.repeat(1, q_per_kv, 1, 1)",
        ATTENTION,
    ),
    Bug(
        "query and key slices swapped",
        ("attn",),
        MODEL,
        "q, k, v = qkv.split((query_size, key_size, value_size), dim=-1)",
        "q, v, k = qkv.split((query_size, key_size, value_size), dim=-1)",
        ATTENTION,
    ),
    Bug(
        "softmax scale of the model's width",
        ("attn",),
        MODEL,
        "self.config.attention_scores_scalar or self.config.head_size)",
        "self.config.attention_scores_scalar or self.config.n_embd)",
        ATTENTION,
        shows=("F.scaled_dot_product_attention(",),
    ),
    Bug("mask missing", ("attn",), MODEL, "is_causal=mask is None", "is_causal=False", ATTENTION),
    Bug(
        "keys not rotated",
        ("attn",),
        MODEL,
        "k = torch.cat((k_roped, k[..., rope_n_elem:])",
        "k = torch.cat((k[..., :rope_n_elem], k[..., rope_n_elem:])",
        ATTENTION,
        reference_lines=("k_embed = (k * cos) + (rotate_half(k) * sin)",),
    ),
    Bug(
        "halves of the rotation swapped",
        ("attn",),
        MODEL,
        "rotated = torch.cat((-x2, x1), dim=-1)  # (B",
        "rotated = torch.cat((x2, -x1), dim=-1)  # (B",
    ),
    Bug(
        "position offset",
        ("",),
        MODEL,
        "cos = self.cos[:T].unsqueeze(0)\n            sin = self.sin[:T].unsqueeze(0)",
        "cos = self.cos[1:T + 1].unsqueeze(0)\n            sin = self.sin[:T].unsqueeze(0)",
        in_layer=False,
    ),
    Bug(
        "rotary base",
        ("",),
        MODEL,
        "base=self.config.rope_base,",
        "base=500000,",
        in_layer=False,
        shows=("cos = self.cos[:T]", "sin = self.sin[:T]"),
    ),
    Bug(
        "final norm missing",
        ("",),
        MODEL,
        "        x = self.transformer.ln_f(x)\n",
        "",
        in_layer=False,
        shows=("self.lm_head(x)",),
        reference_lines=(
            "return self.weight * hidden_states",
            "self.norm(hidden_states)",
            "torch.rsqrt(variance",
            "hidden_states.pow(2)",
        ),
    ),
    Bug("epsilon", ("norm_1", "norm_2"), MODEL, "torch.rsqrt(norm_x + self.eps)", "torch.rsqrt(norm_x + 1e-2)"),
    Bug("fused rows in another order", ("attn.qkv", "attn"), change=roll_fused_rows),
    Bug("output projection transposed", ("attn.proj", "attn"), change=transpose_output),
)

PORT = Port(
    "litgpt-llama",
    "litgpt",
    ("litgpt.model", "litgpt.config"),
    build,
    BUGS,
    "transformer.h.1",
    {
        "transformer.wte": "model.embed_tokens",
        "transformer.h.*": "model.layers.*",
        "transformer.h.*.norm_1": "model.layers.*.input_layernorm",
        "transformer.h.*.norm_2": "model.layers.*.post_attention_layernorm",
        "transformer.h.*.attn": "model.layers.*.self_attn",
        "transformer.h.*.attn.proj": "model.layers.*.self_attn.o_proj",
        "transformer.h.*.mlp.fc_1": "model.layers.*.mlp.gate_proj",
        "transformer.h.*.mlp.fc_2": "model.layers.*.mlp.up_proj",
        "transformer.h.*.mlp.proj": "model.layers.*.mlp.down_proj",
        "transformer.ln_f": "model.norm",
    },
)

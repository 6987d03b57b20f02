"""Phi in litgpt: one norm for both branches, a sum in another order, fused projections, half of each head rotated."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, fused, names_of
from transformers import PhiConfig, PhiForCausalLM

MODEL = "litgpt.model"
ATTENTION, BLOCK, MLP = "class CausalSelfAttention", "class Block", "class GptNeoxMLP"


def build(load):
    reference = shaken(
        PhiForCausalLM(
            PhiConfig(
                vocab_size=64,
                hidden_size=32,
                num_hidden_layers=3,
                num_attention_heads=4,
                intermediate_size=72,
                max_position_embeddings=32,
                partial_rotary_factor=0.5,
            )
        )
    )
    config = load("litgpt.config").Config.from_name(
        "phi-2",
        n_layer=3,
        n_embd=32,
        n_head=4,
        head_size=8,
        vocab_size=64,
        padded_vocab_size=64,
        block_size=32,
        intermediate_size=72,
        rotary_percentage=0.5,
    )
    port = load(MODEL).GPT(config).eval()
    names = [*names_of(PORT.rename), (r"self_attn\.qkv", "attn.qkv")]
    port = carried(port, reference, names, joined)
    ids = tokens(64)
    return Case(reference, port, reference_kwargs={"input_ids": ids, "use_cache": False}, port_args=(ids,))


NAMES = {"norm_1": "input_layernorm", "attn.proj": "self_attn.dense", "mlp.fc": "mlp.fc1", "mlp.proj": "mlp.fc2"}


def joined(weights):
    return fused(weights, [f"self_attn.{part}_proj" for part in "qkv"], "self_attn.qkv")


def forget_bias(block):
    """Leave out the bias of the fused projection."""
    with torch.no_grad():
        block.attn.qkv.bias.zero_()


GELU = "x = F.gelu(x, approximate=self.config.gelu_approximate)\n        return"

BUGS = (
    Bug(
        "activation skipped",
        ("mlp",),
        MODEL,
        GELU,
        "return",
        MLP,
        reference_lines=("self.activation_fn(hidden_states)",),
    ),
    Bug("relu instead of gelu", ("mlp",), MODEL, GELU, "x = F.relu(x)\n        return", MLP),
    Bug(
        "residual missing",
        ("",),
        MODEL,
        "return self.post_mlp_norm(self.mlp(x_normed)) + x",
        "return self.post_mlp_norm(self.mlp(x_normed)) + attention_output",
        BLOCK,
        reference_lines=("attn_outputs + feed_forward_hidden_states + residual",),
    ),
    Bug(
        "attention added twice",
        ("",),
        MODEL,
        "                x_normed = self.norm_2(x)\n            x = attention_output + x",
        "                x_normed = self.norm_2(x)\n            x = attention_output + attention_output + x",
        BLOCK,
        shows=("return self.post_mlp_norm(self.mlp(x_normed)) + x",),
    ),
    Bug(
        "branches one after the other",
        ("",),
        MODEL,
        "return self.post_mlp_norm(self.mlp(x_normed)) + x",
        "return self.post_mlp_norm(self.mlp(self.norm_1(x))) + x",
        BLOCK,
    ),
    Bug(
        "keys not rotated",
        ("attn",),
        MODEL,
        "k = torch.cat((k_roped, k[..., rope_n_elem:]), dim=-1)  # (B, nh_k, T, hs)",
        "pass",
        ATTENTION,
        reference_lines=("key_states = torch.cat((key_rot, key_pass), dim=-1)", "k_embed = (k * cos)"),
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
        "sign of the rotation",
        ("attn",),
        MODEL,
        "rotated = torch.cat((-x2, x1), dim=-1)",
        "rotated = torch.cat((x2, -x1), dim=-1)",
        "def apply_rope(",
    ),
    Bug(
        "last norm skipped",
        ("",),
        MODEL,
        "x = self.transformer.ln_f(x)",
        "pass",
        in_layer=False,
        reference_lines=("self.final_layernorm(hidden_states)",),
    ),
    Bug("bias of the fused projection missing", ("attn.qkv", "attn"), change=forget_bias),
)

PORT = Port(
    "litgpt-phi",
    "litgpt",
    (MODEL,),
    build,
    BUGS,
    "transformer.h.1",
    {
        "transformer.wte": "model.embed_tokens",
        "transformer.h.*": "model.layers.*",
        "transformer.ln_f": "model.final_layernorm",
    }
    | {f"transformer.h.*.{ours}": f"model.layers.*.{theirs}" for ours, theirs in NAMES.items()},
)

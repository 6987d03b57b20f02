"""Gemma 2 in litgpt: scaled embeddings, four norms a layer, caps on scores and logits, sliding windows."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, fused, names_of
from transformers import Gemma2Config, Gemma2ForCausalLM

MODEL = "litgpt.model"
ATTENTION, BLOCK, MLP = "class CausalSelfAttention", "class Block", "class GemmaMLP"


def build(load):
    reference = shaken(
        Gemma2ForCausalLM(
            Gemma2Config(
                vocab_size=64,
                hidden_size=32,
                intermediate_size=72,
                num_hidden_layers=3,
                num_attention_heads=4,
                num_key_value_heads=2,
                head_dim=8,
                query_pre_attn_scalar=8,
                max_position_embeddings=32,
                sliding_window=4,
                layer_types=["full_attention", "sliding_attention", "full_attention"],
                final_logit_softcapping=3.0,
                attn_logit_softcapping=3.0,
                attn_implementation="eager",
            )
        )
    )
    config = load("litgpt.config").Config(
        name="Gemma-2-tiny",
        block_size=32,
        n_layer=3,
        n_embd=32,
        padded_vocab_size=64,
        n_head=4,
        n_query_groups=2,
        head_size=8,
        rotary_percentage=1.0,
        parallel_residual=False,
        bias=False,
        scale_embeddings=True,
        norm_class_name="RMSNorm",
        norm_eps=1e-6,
        post_attention_norm=True,
        post_mlp_norm=True,
        mlp_class_name="GemmaMLP",
        gelu_approximate="tanh",
        intermediate_size=72,
        attention_scores_scalar=8,
        attention_logit_softcapping=3.0,
        final_logit_softcapping=3.0,
        sliding_window_size=4,
        sliding_window_indices=[0, 1, 0],
    )
    port = load(MODEL).GPT(config).eval()
    port = carried(port, reference, names_of(PORT.rename), joined)
    ids = tokens(64)
    return Case(reference, port, reference_kwargs={"input_ids": ids, "use_cache": False}, port_args=(ids,))


NAMES = {
    "norm_1": "input_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "norm_2": "pre_feedforward_layernorm",
    "post_mlp_norm": "post_feedforward_layernorm",
    "attn.proj": "self_attn.o_proj",
    "mlp.fc_1": "mlp.gate_proj",
    "mlp.fc_2": "mlp.up_proj",
    "mlp.proj": "mlp.down_proj",
}


def joined(weights):
    return fused(weights, [f"self_attn.{part}_proj" for part in "qkv"], "self_attn.qkv")


def add_one_to_norms(block):
    """Load the norms' weights with the one that the forward adds already in them."""
    with torch.no_grad():
        block.norm_2.weight.add_(1.0)


NORM = ("output = self._norm(x.float())", "x.pow(2).mean(", "output * (1.0 + self.weight.float())")

BUGS = (
    Bug(
        "norm without the one",
        ("norm_1",),
        MODEL,
        "weight = (1 + self.weight) if self.add_unit_offset else self.weight",
        "weight = self.weight",
        shows=("return (x_normed * weight.float())",),
    ),
    Bug(
        "embedding not scaled",
        ("",),
        MODEL,
        "x = x * torch.tensor(self.config.n_embd**0.5, dtype=x.dtype)",
        "pass",
        in_layer=False,
        reference_lines=("self.embed_scale", "super().forward(input_ids)"),
    ),
    Bug(
        "scores not capped",
        ("attn",),
        MODEL,
        "scores = do_softcapping(scores, self.config.attention_logit_softcapping)",
        "pass",
        ATTENTION,
        reference_lines=("attn_weights / softcap", "torch.tanh(attn_weights)", "attn_weights * softcap"),
    ),
    Bug(
        "scores capped after the mask",
        ("attn",),
        MODEL,
        "scores = scores + mask\n",
        "scores = do_softcapping(scores + mask, self.config.attention_logit_softcapping)\n",
        ATTENTION,
    ),
    Bug(
        "logits not capped",
        ("",),
        MODEL,
        "            return clamp_head(self.lm_head(x))  # (B, T",
        "            return self.lm_head(x)  # (B, T",
        in_layer=False,
        reference_lines=("logits / self.config.final_logit", "torch.tanh(logits)", "logits * self.config.final_logit"),
    ),
    Bug(
        "cap not multiplied back",
        ("attn",),
        MODEL,
        "return torch.tanh(x / thresh) * thresh",
        "return torch.tanh(x / thresh)",
        reference_lines=("attn_weights * softcap",),
    ),
    Bug(
        "window off by one",
        ("attn",),
        MODEL,
        "window_start = max(0, i - self.config.sliding_window_size + 1)",
        "window_start = max(0, i - self.config.sliding_window_size)",
        shows=("scores = scores + mask", "sliding_window_mask[i, window_start : i + 1] = 0.0"),
    ),
    Bug(
        "window missing",
        ("attn",),
        MODEL,
        '        if self.apply_sliding_window_attention:\n            """',
        '        if False:\n            """',
        shows=("scores = scores + mask", "mask = torch.ones(q.size(2)", "mask.masked_fill_("),
    ),
    Bug(
        "norm after the attention skipped",
        ("",),
        MODEL,
        "        attention_output = self.post_attention_norm(attention_output)\n",
        "",
        BLOCK,
        reference_lines=("self.post_attention_layernorm(hidden_states)", *NORM),
    ),
    Bug(
        "norm after the MLP before it",
        ("",),
        MODEL,
        "return self.post_mlp_norm(self.mlp(x_normed)) + x",
        "return self.mlp(self.post_mlp_norm(x_normed)) + x",
        BLOCK,
    ),
    Bug(
        "gelu without tanh",
        ("transformer.h.0.mlp",),
        MODEL,
        "x = F.gelu(x_fc_1, approximate=self.config.gelu_approximate) * x_fc_2",
        "x = F.gelu(x_fc_1) * x_fc_2",
        MLP,
        in_layer=False,
    ),
    Bug(
        "silu instead of gelu",
        ("mlp",),
        MODEL,
        "x = F.gelu(x_fc_1, approximate=self.config.gelu_approximate) * x_fc_2",
        "x = F.silu(x_fc_1) * x_fc_2",
        MLP,
    ),
    Bug(
        "scale of the model's width",
        ("attn",),
        MODEL,
        "math.sqrt(self.config.attention_scores_scalar or self.config.head_size)",
        "math.sqrt(self.config.n_embd)",
        ATTENTION,
        shows=("scores = q @ k.mT * scale",),
    ),
    Bug(
        "values tiled",
        ("attn",),
        MODEL,
        "v = v.repeat_interleave(q_per_kv, dim=1)",
        "v = v.repeat(1, q_per_kv, 1, 1)",
        ATTENTION,
    ),
    Bug(
        "rotary base",
        ("",),
        MODEL,
        "base=self.config.rope_base,",
        "base=1000000,",
        in_layer=False,
        shows=("cos = self.cos[:T]", "sin = self.sin[:T]"),
    ),
    Bug("norm's one loaded too", ("norm_2",), change=add_one_to_norms),
)

PORT = Port(
    "litgpt-gemma2",
    "litgpt",
    (MODEL, "litgpt.config"),
    build,
    BUGS,
    "transformer.h.1",
    {
        "transformer.wte": "model.embed_tokens",
        "transformer.h.*": "model.layers.*",
        "transformer.h.*.attn": "model.layers.*.self_attn",
    }
    | {f"transformer.h.*.{ours}": f"model.layers.*.{theirs}" for ours, theirs in NAMES.items()}
    | {"transformer.ln_f": "model.norm"},
)

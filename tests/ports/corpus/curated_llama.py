"""Llama in curated-transformers: other nesting, rotary modules in each attention, a mask class of its own."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from transformers import LlamaConfig, LlamaForCausalLM

ATTENTION, EMBEDDINGS = "curated_transformers.layers.attention", "curated_transformers.layers.embeddings"
LAYER, FORWARD = "curated_transformers.layers.transformer", "curated_transformers.models.transformer"
FEED_FORWARD, NORM = "curated_transformers.layers.feedforward", "curated_transformers.layers.normalization"


def build(load):
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
    )
    reference = shaken(LlamaForCausalLM(config))
    package = load("curated_transformers.models.llama")
    causal_lm = package.LlamaCausalLM
    port = causal_lm(causal_lm.config_from_hf(config.to_dict() | {"torch_dtype": "float32"})).float().eval()
    port.load_state_dict(causal_lm.state_dict_from_hf(reference.state_dict()))
    ids = tokens(64)
    mask = load(ATTENTION).AttentionMask(torch.ones_like(ids, dtype=torch.bool))
    kwargs = {"input_ids": ids, "use_cache": False}
    return Case(reference, port, reference_kwargs=kwargs, port_args=(ids, mask))


def swap_gate_and_intermediate(layer):
    """Load the weight of the gate into the other projection, and the reverse."""
    with torch.no_grad():
        gate = layer.ffn.gate.weight.clone()
        layer.ffn.gate.weight.copy_(layer.ffn.intermediate.weight)
        layer.ffn.intermediate.weight.copy_(gate)


RESIDUAL = ("hidden_states = residual + hidden_states",)
NORM_LINES = (
    "self.post_attention_layernorm(hidden_states)",
    "torch.rsqrt(variance",
    "hidden_states.pow(2)",
    "return self.weight * hidden_states",
)

BUGS = (
    Bug(
        "gate not activated",
        ("ffn",),
        FEED_FORWARD,
        "self.activation(self.gate(input)) * self.intermediate(input)",
        "self.gate(input) * self.activation(self.intermediate(input))",
    ),
    Bug("epsilon", ("attn_input_layer_norm", "ffn_input_layer_norm"), NORM, ".add(self.eps)", ".add(1e-2)"),
    Bug(
        "norm without its weight",
        ("attn_input_layer_norm",),
        NORM,
        ".to(input.dtype) * self.weight",
        ".to(input.dtype)",
        reference_lines=("return self.weight * hidden_states.to(input_dtype)",),
    ),
    Bug(
        "residual of the attention missing",
        ("",),
        LAYER,
        "self.attn_residual_layer_norm(input + attn_out)",
        "self.attn_residual_layer_norm(attn_out)",
        reference_lines=RESIDUAL,
    ),
    Bug(
        "residual of the feed-forward missing",
        ("",),
        LAYER,
        "self.ffn_residual_layer_norm(residual + output)",
        "self.ffn_residual_layer_norm(output)",
        reference_lines=RESIDUAL,
    ),
    Bug(
        "norm before the feed-forward skipped",
        ("",),
        LAYER,
        "self.ffn(self.ffn_input_layer_norm(ffn_in))",
        "self.ffn(ffn_in)",
        reference_lines=NORM_LINES,
    ),
    Bug(
        "parallel attention",
        ("",),
        LAYER,
        "            ffn_in = residual",
        "            ffn_in = input",
        shows=("self.ffn(self.ffn_input_layer_norm(ffn_in))",),
        reference_lines=NORM_LINES,
    ),
    Bug(
        "softmax scale missing",
        ("mha.attention_scorer",),
        ATTENTION,
        "attn_scores /= math.sqrt(width)",
        "pass",
        shows=(
            "torch.where(self.bool_mask, input, blocked_value)",
            "query @ key.transpose(-2, -1)",
            "attn_scores.softmax(dim=-1)",
            "combined_mask.apply_logit_mask",
        ),
    ),
    Bug(
        "grouped values tiled",
        ("mha",),
        ATTENTION,
        "value.repeat_interleave(n_tiling, dim=1)",
        "value.repeat(1, n_tiling, 1, 1)",
    ),
    Bug(
        "key and value swapped",
        ("mha",),
        ATTENTION,
        "        return query, key, value\n\n    def _query_key_value_separate",
        "        return query, value, key\n\n    def _query_key_value_separate",
    ),
    Bug(
        "mask off by one",
        ("mha.attention_scorer",),
        ATTENTION,
        "combined_mask = combined_mask.merge_mask(causal_mask)",
        "combined_mask = AttentionMask(causal_mask.bool_mask.roll(1, -1))",
    ),
    Bug(
        "sign of the rotation",
        ("mha.rotary_embeds.rotary_embeds", "mha.rotary_embeds"),
        EMBEDDINGS,
        "rot_cos * input + rot_sin * self._rotate(input)",
        "rot_cos * input - rot_sin * self._rotate(input)",
    ),
    Bug(
        "rotation interleaved",
        ("mha.rotary_embeds.rotary_embeds", "mha.rotary_embeds"),
        EMBEDDINGS,
        "        input_1 = -input[..., half_idx:]\n        input_2 = input[..., :half_idx]\n        return torch.cat([input_1, input_2], dim=-1)",
        "        half_idx += 0\n        return torch.stack([-input[..., 1::2], input[..., ::2]], dim=-1).flatten(-2)",
        shows=("rot_sin * self._rotate(input)",),
    ),
    Bug(
        "rotary base",
        ("mha.rotary_embeds.rotary_embeds", "mha.rotary_embeds"),
        EMBEDDINGS,
        "base, -torch.arange(0, width, 2",
        "2 * base, -torch.arange(0, width, 2",
        shows=("rot_cos = self.cos[", "rot_sin = self.sin[", "rot_cos * input + rot_sin"),
    ),
    Bug(
        "rotary positions offset",
        ("mha.rotary_embeds.rotary_embeds", "mha.rotary_embeds"),
        EMBEDDINGS,
        "rot_cos = self.cos[:seq_len, :]",
        "rot_cos = self.cos[1 : seq_len + 1, :]",
    ),
    Bug(
        "final norm missing",
        ("decoder",),
        FORWARD,
        "layer_outputs[-1] = self.output_layer_norm(layer_outputs[-1])",
        "pass",
        in_layer=False,
        reference_lines=(
            "return self.weight * hidden_states",
            "self.norm(hidden_states)",
            "torch.rsqrt(variance",
            "hidden_states.pow(2)",
        ),
    ),
    Bug(
        "norm of the last layer but one",
        ("", "decoder"),
        FORWARD,
        "self.output_embeddings(decoder_output.last_hidden_layer_state)",
        "self.output_embeddings(decoder_output.all_outputs[-2])",
        in_layer=False,
    ),
    Bug(
        "gate and intermediate weights swapped",
        ("ffn.gate", "ffn.intermediate", "ffn"),
        change=swap_gate_and_intermediate,
    ),
)

PORT = Port(
    "curated-llama",
    "curated_transformers",
    ("curated_transformers.layers", "curated_transformers.models"),
    build,
    BUGS,
    "decoder.layers.1",
    {
        "decoder.embeddings.piece_embeddings": "model.embed_tokens",
        "decoder.layers.*": "model.layers.*",
        "decoder.layers.*.mha": "model.layers.*.self_attn",
        "decoder.layers.*.mha.query": "model.layers.*.self_attn.q_proj",
        "decoder.layers.*.mha.key": "model.layers.*.self_attn.k_proj",
        "decoder.layers.*.mha.value": "model.layers.*.self_attn.v_proj",
        "decoder.layers.*.mha.output": "model.layers.*.self_attn.o_proj",
        "decoder.layers.*.ffn": "model.layers.*.mlp",
        "decoder.layers.*.ffn.gate": "model.layers.*.mlp.gate_proj",
        "decoder.layers.*.ffn.intermediate": "model.layers.*.mlp.up_proj",
        "decoder.layers.*.ffn.output": "model.layers.*.mlp.down_proj",
        "decoder.layers.*.attn_input_layer_norm": "model.layers.*.input_layernorm",
        "decoder.layers.*.ffn_input_layer_norm": "model.layers.*.post_attention_layernorm",
        "decoder.output_layer_norm": "model.norm",
        "output_embeddings": "lm_head",
    },
)

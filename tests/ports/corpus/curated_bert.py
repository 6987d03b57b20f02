"""BERT in curated-transformers: it returns the outputs of all layers, where the reference returns the last alone."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried
from transformers import BertConfig, BertModel

ATTENTION, EMBEDDINGS = "curated_transformers.layers.attention", "curated_transformers.models.bert.encoder"
LAYER, FORWARD = "curated_transformers.layers.transformer", "curated_transformers.models.transformer"
FEED_FORWARD = "curated_transformers.layers.feedforward"


def build(load):
    reference = shaken(
        BertModel(
            BertConfig(
                vocab_size=64,
                hidden_size=32,
                num_hidden_layers=3,
                num_attention_heads=4,
                intermediate_size=72,
                max_position_embeddings=32,
            ),
            add_pooling_layer=False,
        )
    )
    config = load("curated_transformers.models.bert.config").BERTConfig(
        embedding_width=32,
        hidden_width=32,
        intermediate_width=72,
        n_attention_heads=4,
        n_hidden_layers=3,
        n_pieces=64,
        n_positions=32,
    )
    port = load(EMBEDDINGS).BERTEncoder(config).eval()
    port = carried(port, reference, NAMES.items())
    ids = tokens(64)
    mask = load(ATTENTION).AttentionMask(torch.ones_like(ids, dtype=torch.bool))
    return Case(
        reference,
        port,
        reference_kwargs={"input_ids": ids},
        port_kwargs={"piece_ids": ids, "attention_mask": mask},
        arranged=lambda output: output.all_outputs[-1],
    )


#: In this order: a later name is part of what an earlier one leaves.
NAMES = {
    "embeddings.word_embeddings": "embeddings.piece_embeddings",
    "embeddings.token_type_embeddings": "embeddings.type_embeddings",
    "embeddings.LayerNorm": "embeddings.embed_output_layer_norm",
    "encoder.layer": "layers",
    "attention.self": "mha",
    "attention.output.dense": "mha.output",
    "attention.output.LayerNorm": "attn_residual_layer_norm",
    "intermediate.dense": "ffn.intermediate",
    "output.dense": "ffn.output",
    "output.LayerNorm": "ffn_residual_layer_norm",
}


def swap_key_and_value(layer):
    """Load the key's projection as the value's, and the reverse."""
    key, value = layer.mha.key.weight, layer.mha.value.weight
    key.data, value.data = value.data, key.data


ATTEND = ("attn_output, attn_weights = attention_interface(",)

BUGS = (
    Bug(
        "residual of the attention missing",
        ("",),
        LAYER,
        "self.attn_residual_layer_norm(input + attn_out)",
        "self.attn_residual_layer_norm(attn_out)",
        reference_lines=("self.LayerNorm(hidden_states + input_tensor)",),
    ),
    Bug(
        "residual of the feed-forward from the input",
        ("",),
        LAYER,
        "self.ffn_residual_layer_norm(residual + output)",
        "self.ffn_residual_layer_norm(input + output)",
    ),
    Bug(
        "softmax scale missing",
        ("mha.attention_scorer",),
        ATTENTION,
        "attn_scores /= math.sqrt(width)",
        "pass",
        shows=("torch.where(self.bool_mask, input, blocked_value)", "attn_scores.softmax(dim=-1)"),
        reference_lines=ATTEND,
    ),
    Bug(
        "softmax over the queries",
        ("mha.attention_scorer",),
        ATTENTION,
        "attn_scores.softmax(dim=-1)",
        "attn_scores.softmax(dim=-2)",
    ),
    Bug(
        "softmax missing",
        ("mha.attention_scorer",),
        ATTENTION,
        "attn_weights = attn_scores.softmax(dim=-1)",
        "attn_weights = attn_scores",
        shows=("attn_weights @ value",),
        reference_lines=ATTEND,
    ),
    Bug(
        "causal attention",
        ("", "mha.attention_scorer"),
        LAYER,
        "            input, attention_mask=attention_mask, use_causal_mask=False",
        "            input, attention_mask=attention_mask, use_causal_mask=True",
        shows=("torch.where(self.bool_mask, input, blocked_value)",),
    ),
    Bug(
        "key and value swapped",
        ("mha",),
        ATTENTION,
        "        return query, key, value\n\n    def _query_key_value_merged_split_before",
        "        return query, value, key\n\n    def _query_key_value_merged_split_before",
        shows=("attn = self.attention_scorer(",),
    ),
    Bug(
        "activation skipped",
        ("ffn",),
        FEED_FORWARD,
        "self.activation(self.intermediate(input))",
        "self.intermediate(input)",
        reference_lines=("self.intermediate_act_fn(hidden_states)", "self.act(input)"),
    ),
    Bug(
        "types missing",
        ("embeddings",),
        LAYER,
        "embeddings += self.type_embeddings(type_ids)",
        "self.type_embeddings(type_ids)",
        in_layer=False,
        reference_lines=("self.token_type_embeddings(token_type_ids)", "inputs_embeds + token_type_embeddings"),
    ),
    Bug("key and value matrices swapped", ("mha.key", "mha.value", "mha"), change=swap_key_and_value),
)

PORT = Port(
    "curated-bert",
    "curated_transformers",
    ("curated_transformers.layers", "curated_transformers.models"),
    build,
    BUGS,
    "layers.1",
    {"layers.*": "encoder.layer.*", "layers.*.mha.output": "encoder.layer.*.attention.output.dense"},
)

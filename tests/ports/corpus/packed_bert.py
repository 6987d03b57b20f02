"""A hand-written BERT on (tokens, width), with one (in, part, out) matrix for query, key and value."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, names_of
from transformers import BertConfig, BertModel

MODULE = "handwritten.packed_bert"


def build(load):
    config = BertConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=72,
        max_position_embeddings=32,
    )
    reference = shaken(BertModel(config, add_pooling_layer=False))
    port = load(MODULE).PackedBert(64, 32, 32, heads=4, inner=72, floors=3, eps=config.layer_norm_eps).eval()
    port = carried(port, reference, [*names_of(PORT.rename), *NAMES], stacked)
    ids = tokens(64)
    kinds = (torch.arange(12) > 6).long().expand_as(ids).contiguous()
    text_of = torch.arange(2).repeat_interleave(12)
    return Case(
        reference,
        port,
        reference_kwargs={"input_ids": ids, "token_type_ids": kinds},
        port_args=(ids.flatten(), kinds.flatten(), text_of),
        arranged=lambda out: out.unflatten(0, (2, 12)),
    )


NAMES = (
    (r"attention\.(matrix|offset)", r"talk.\1"),
    (r"attention\.output\.LayerNorm", "after_talk"),
    (r"output\.LayerNorm", "after_think"),
    (r"(entrance|after_\w+)\.weight", r"\1.factor"),
    (r"(entrance|after_\w+)\.bias", r"\1.shift"),
)


def stacked(weights):
    for layer in range(3):
        path = f"encoder.layer.{layer}.attention"
        parts = [f"{path}.self.{part}" for part in ("query", "key", "value")]
        weights[f"{path}.matrix"] = torch.stack([weights.pop(f"{part}.weight").T for part in parts], 1)
        weights[f"{path}.offset"] = torch.stack([weights.pop(f"{part}.bias") for part in parts])
    return weights


def transpose_matrix(floor):
    """Load the fused matrix as (out, part, in)."""
    with torch.no_grad():
        floor.talk.matrix.copy_(floor.talk.matrix.transpose(0, 2).clone())


def swap_offsets(floor):
    """Load the biases of query and value into each other's place."""
    with torch.no_grad():
        floor.talk.offset.copy_(floor.talk.offset.flip(0))


RESIDUAL = ("self.LayerNorm(hidden_states + input_tensor)",)

BUGS = (
    Bug(
        "scale missing",
        ("talk",),
        MODULE,
        "affinity = affinity / math.sqrt(offered.shape[-1])",
        "affinity = affinity / 1.0",
        shows=("affinity.masked_fill(apart",),
    ),
    Bug(
        "texts not kept apart",
        ("talk",),
        MODULE,
        "affinity = affinity.masked_fill(apart, -1e9)",
        "affinity = affinity + 0.0 * apart",
        shows=("torch.softmax(affinity",),
    ),
    Bug(
        "causal attention",
        ("talk",),
        MODULE,
        "apart = text_of[:, None] != text_of[None, :]",
        "apart = (text_of[:, None] != text_of[None, :]) | torch.ones_like(affinity[0], dtype=bool).triu(1)",
        shows=("affinity.masked_fill(apart", "torch.softmax(affinity"),
    ),
    Bug(
        "asked and told swapped",
        ("talk",),
        MODULE,
        "asked, offered, told = (",
        "told, offered, asked = (",
        shows=("asked @ offered.mT",),
    ),
    Bug("offset forgotten", ("talk",), MODULE, " + self.offset[:, None]", ""),
    Bug(
        "heads merged as tokens",
        ("talk",),
        MODULE,
        "heard = heard.transpose(0, 1).reshape(x.shape)",
        "heard = heard.reshape(x.shape)",
    ),
    Bug("silu instead of gelu", ("think",), MODULE, "nn.functional.gelu(x)", "nn.functional.silu(x)"),
    Bug(
        "variance of a sample", ("after_talk",), MODULE, "correction=0", "correction=1", shows=("variance + self.eps",)
    ),
    Bug(
        "epsilon outside of the root",
        ("after_talk",),
        MODULE,
        "torch.sqrt(variance + self.eps)",
        "(torch.sqrt(variance) + 1e-2)",
    ),
    Bug(
        "residual missing",
        ("",),
        MODULE,
        "self.after_talk(x + self.talk(x, text_of))",
        "self.after_talk(self.talk(x, text_of))",
        reference_lines=RESIDUAL,
    ),
    Bug(
        "residual after the norm",
        ("",),
        MODULE,
        "self.after_think(x + self.think(x))",
        "x + self.after_think(self.think(x))",
        reference_lines=RESIDUAL,
    ),
    Bug("norms swapped", ("",), MODULE, "self.after_think(x + self.think(x))", "self.after_talk(x + self.think(x))"),
    Bug(
        "places of the whole list",
        ("",),
        MODULE,
        "places = torch.arange(len(words)) - starts",
        "places = torch.arange(len(words))",
        in_layer=False,
        shows=("self.places(places)",),
    ),
    Bug(
        "kinds missing",
        ("",),
        MODULE,
        "self.places(places) + self.kinds(kinds)",
        "self.places(places)",
        in_layer=False,
        reference_lines=(
            "self.token_type_embeddings(token_type_ids)",
            "inputs_embeds + token_type_embeddings",
            "embeddings + position_embeddings",
        ),
    ),
    Bug(
        "first norm missing",
        ("",),
        MODULE,
        "x = self.entrance(x)",
        "pass",
        in_layer=False,
        reference_lines=("self.LayerNorm(embeddings)",),
    ),
    Bug("matrix transposed", ("talk",), change=transpose_matrix),
    Bug("offsets in another order", ("talk",), change=swap_offsets),
)

PORT = Port(
    "packed-bert",
    "handwritten",
    ("handwritten",),
    build,
    BUGS,
    "floors.1",
    {
        "words": "embeddings.word_embeddings",
        "places": "embeddings.position_embeddings",
        "kinds": "embeddings.token_type_embeddings",
        "entrance": "embeddings.LayerNorm",
        "floors.*": "encoder.layer.*",
        "floors.*.talk.close": "encoder.layer.*.attention.output.dense",
        "floors.*.think.open": "encoder.layer.*.intermediate.dense",
        "floors.*.think.close": "encoder.layer.*.output.dense",
    },
)

"""A hand-written encoder of T5 that has parameters and functions, but no submodule."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from transformers import T5Config, T5EncoderModel

MODULE = "handwritten.plain_t5"


def build(load):
    config = T5Config(
        vocab_size=64, d_model=32, d_kv=8, d_ff=72, num_layers=3, num_heads=4, feed_forward_proj="gated-gelu"
    )
    reference = shaken(T5EncoderModel(config))
    port = load(MODULE).PlainT5(converted(reference.state_dict()), 3, 4).eval()
    ids = tokens(64, length=20)
    return Case(reference, port, reference_kwargs={"input_ids": ids}, port_args=(ids,))


def converted(theirs):
    own = {
        "table": theirs["shared.weight"],
        "relative": theirs["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"],
        "last": theirs["encoder.final_layer_norm.weight"],
    }
    for number in range(3):
        path = f"encoder.block.{number}.layer"
        names = {part: f"{path}.0.SelfAttention.{part}" for part in "qkvo"}
        names |= {"n1": f"{path}.0.layer_norm", "n2": f"{path}.1.layer_norm", "gate": f"{path}.1.DenseReluDense.wi_0"}
        names |= {"value": f"{path}.1.DenseReluDense.wi_1", "out": f"{path}.1.DenseReluDense.wo"}
        own |= {f"layer{number}_{ours}": theirs[f"{name}.weight"] for ours, name in names.items()}
    return {name: value.clone() for name, value in own.items()}


def transpose_query(model):
    """Load a query matrix transposed."""
    with torch.no_grad():
        model.layer1_q.copy_(model.layer1_q.T.clone())


def swap_gate_and_value(model):
    """Load the gate's matrix as the value's, and the reverse."""
    with torch.no_grad():
        kept = model.layer1_gate.clone()
        model.layer1_gate.copy_(model.layer1_value)
        model.layer1_value.copy_(kept)


def bug(name, old, new, **more):
    """Return a bug of the one module there is."""
    return Bug(name, ("",), MODULE, old, new, in_layer=False, **more)


RESIDUAL = ("hidden_states + self.dropout(",)

BUGS = (
    bug("bias scaled", "scores = scores + bias", "scores = scores * 8**-0.5 + bias"),
    bug(
        "bias missing",
        "scores = scores + bias",
        "pass",
        reference_lines=("position_bias",),
        shows=("shares = scores.softmax(-1)",),
    ),
    bug("bias transposed", ".permute(2, 0, 1)", ".permute(2, 1, 0)", shows=("scores = scores + bias",)),
    bug(
        "buckets of another sign",
        "after = (distance > 0) * half",
        "after = (distance < 0) * half",
        shows=("return after + torch.where(", "self.relative[buckets("),
    ),
    bug(
        "furthest distance",
        "buckets(ids.shape[1], 32, 128)",
        "buckets(ids.shape[1], 32, 32)",
        shows=("growth = torch.log(distance / exact)", "scaled = exact + ("),
    ),
    bug(
        "exact buckets",
        "exact = half // 2",
        "exact = half // 4",
        shows=("growth = torch.log(distance / exact)", "scaled = exact + (", "torch.where(distance < exact"),
    ),
    bug("relu instead of gelu", 'nn.functional.gelu(gate, approximate="tanh")', "nn.functional.relu(gate)"),
    bug("gate and value swapped", "gate, value = x @ ", "value, gate = x @ ", shows=("nn.functional.gelu(gate",)),
    bug("heads of the value mixed", '"bhqk,bhkw->bqhw"', '"bhqk,bhkw->bqwh"'),
    bug("residual missing", "return x + feed(", "return feed(", reference_lines=RESIDUAL),
    bug(
        "residual after the norm",
        'x = x + attention(normed(x, p["n1"])',
        'x = normed(x, p["n1"]) + attention(normed(x, p["n1"])',
        reference_lines=RESIDUAL,
    ),
    bug(
        "norm of the wrong weight",
        'feed(normed(x, p["n2"]), p)',
        'feed(normed(x, p["n1"]), p)',
        shows=("sqrt() * weight",),
    ),
    bug(
        "norm without the root",
        "return x / (length_of(x) ** 2 + 1e-6).sqrt() * weight",
        "return x / (length_of(x) ** 2 + 1e-6) * weight",
    ),
    bug(
        "last norm missing",
        "return normed(x, self.last)",
        "return x",
        reference_lines=(
            ".pow(2).mean(-1, keepdim=True)",
            "self.final_layer_norm(hidden_states)",
            "torch.rsqrt(variance",
            "self.weight * hidden_states",
        ),
    ),
    Bug("query transposed", ("",), in_layer=False, change=transpose_query),
    Bug("gate and value matrices swapped", ("",), in_layer=False, change=swap_gate_and_value),
)

PORT = Port("plain-t5", "handwritten", ("handwritten",), build, BUGS)

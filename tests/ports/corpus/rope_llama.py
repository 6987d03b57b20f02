"""A hand-written Llama: ``cos, sin`` positional, of half the width and without a batch, made in the root."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, fused, names_of
from transformers import LlamaConfig, LlamaForCausalLM

MODULE = "handwritten.rope_llama"


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
    base, eps = config.rope_parameters["rope_theta"], config.rms_norm_eps
    port = load(MODULE).RopeLlama(64, 32, heads=4, groups=2, inner=72, units=3, eps=eps, base=base).eval()
    names = [*names_of(PORT.rename), (r"(scale\w*)\.weight", r"\1.gain")]
    port = carried(port, reference, names, joined)
    ids = tokens(64)
    return Case(reference, port, reference_kwargs={"input_ids": ids, "use_cache": False}, port_args=(ids,))


def joined(weights):
    weights = fused(weights, ["self_attn.k_proj", "self_attn.v_proj"], "self_attn.to_kv")
    return fused(weights, ["mlp.gate_proj", "mlp.up_proj"], "mlp.both")


def swap_keys_and_values(unit):
    """Load the value's rows before the key's."""
    with torch.no_grad():
        unit.mixer.to_kv.weight.copy_(unit.mixer.to_kv.weight.roll(16, 0))


RESIDUAL = ("hidden_states = residual + hidden_states",)
NORM = ("torch.rsqrt(variance", "hidden_states.pow(2)", "return self.weight * hidden_states")

BUGS = (
    Bug(
        "rotary base",
        ("",),
        MODULE,
        "-math.log(self.base) / self.width",
        "-math.log(500000) / self.width",
        in_layer=False,
        shows=("angles = torch.outer", "return angles.cos(), angles.sin()"),
    ),
    Bug(
        "rotary rates of half the width",
        ("",),
        MODULE,
        "-math.log(self.base) / self.width",
        "-math.log(self.base) / self.width * 2",
        in_layer=False,
        shows=("angles = torch.outer", "return angles.cos(), angles.sin()"),
    ),
    Bug("sine and cosine swapped", ("",), MODULE, "t = unit(t, cos, sin)", "t = unit(t, sin, cos)", in_layer=False),
    Bug(
        "last norm missing",
        ("",),
        MODULE,
        "t = self.scale(t)",
        "pass",
        in_layer=False,
        reference_lines=("self.norm(hidden_states)", *NORM),
    ),
    Bug(
        "sign of the rotation",
        ("mixer",),
        MODULE,
        "new_right = right * cos + left * sin",
        "new_right = right * cos - left * sin",
    ),
    Bug(
        "queries not rotated",
        ("mixer",),
        MODULE,
        "        q = self.turn(q, cos, sin)\n",
        "",
        reference_lines=("q_embed = (q * cos)", "rotate_half(q)"),
    ),
    Bug(
        "values rotated",
        ("mixer",),
        MODULE,
        "k = self.turn(k, cos, sin)\n",
        "k, v = self.turn(k, cos, sin), self.turn(v, cos, sin)\n",
    ),
    Bug(
        "heads of a group tiled",
        ("mixer",),
        MODULE,
        "q = q.unflatten(1, (self.groups, -1))",
        "q = q.unflatten(1, (-1, self.groups)).transpose(1, 2)",
    ),
    Bug("key and value swapped", ("mixer",), MODULE, "k, v = self.to_kv(t)", "v, k = self.to_kv(t)"),
    Bug(
        "scale missing",
        ("mixer",),
        MODULE,
        "logits = logits / math.sqrt(self.width)",
        "logits = logits / 1.0",
        shows=("torch.where(past, logits",),
    ),
    Bug(
        "mask without the diagonal's neighbour",
        ("mixer",),
        MODULE,
        "past = torch.arange(length)[:, None] >= torch",
        "past = torch.arange(length)[:, None] + 1 >= torch",
        shows=("torch.where(past, logits",),
    ),
    Bug(
        "gate and value swapped",
        ("widen",),
        MODULE,
        "gate, value = self.both(t)",
        "value, gate = self.both(t)",
        shows=("self.narrow(gate * torch.sigmoid(gate)",),
    ),
    Bug("quick gelu", ("widen",), MODULE, "torch.sigmoid(gate)", "torch.sigmoid(1.702 * gate)"),
    Bug("residual missing", ("",), MODULE, "return t + self.widen(", "return self.widen(", reference_lines=RESIDUAL),
    Bug(
        "residual after the norm",
        ("",),
        MODULE,
        "t = t + self.mixer(self.scale_a(t), cos, sin)",
        "t = self.scale_a(t)\n        t = t + self.mixer(t, cos, sin)",
        reference_lines=RESIDUAL,
    ),
    Bug("epsilon", ("scale_a",), MODULE, "keepdim=True) + self.eps", "keepdim=True) + 1e-2"),
    Bug("keys and values in another order", ("mixer.to_kv", "mixer"), change=swap_keys_and_values),
)

PORT = Port(
    "rope-llama",
    "handwritten",
    ("handwritten",),
    build,
    BUGS,
    "units.1",
    {
        "words": "model.embed_tokens",
        "units.*": "model.layers.*",
        "units.*.scale_a": "model.layers.*.input_layernorm",
        "units.*.scale_b": "model.layers.*.post_attention_layernorm",
        "units.*.mixer": "model.layers.*.self_attn",
        "units.*.mixer.to_q": "model.layers.*.self_attn.q_proj",
        "units.*.mixer.back": "model.layers.*.self_attn.o_proj",
        "units.*.widen": "model.layers.*.mlp",
        "units.*.widen.narrow": "model.layers.*.mlp.down_proj",
        "scale": "model.norm",
        "out": "lm_head",
    },
)

"""A Qwen3 without modules, against transformers': fused and permuted projections, rotary tables in the root."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from transformers import Qwen3Config, Qwen3ForCausalLM

MODULE = "handwritten.bare_qwen3"
LAYERS, HEADS, GROUPS, HEAD = 3, 4, 2, 8


def build(load):
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=72,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        num_key_value_heads=GROUPS,
        head_dim=HEAD,
        max_position_embeddings=32,
        tie_word_embeddings=False,
    )
    reference = shaken(Qwen3ForCausalLM(config))
    base, eps = config.rope_parameters["rope_theta"], config.rms_norm_eps
    port = (
        load(MODULE)
        .BareQwen3(converted(reference.state_dict()), layers=LAYERS, groups=GROUPS, base=base, eps=eps)
        .eval()
    )
    ids = tokens(64)
    return Case(reference, port, reference_kwargs={"input_ids": ids, "use_cache": False}, port_args=(ids,))


def paired(rows):
    """Put the two halves that a rotation pairs side by side, along the last dimension but one or the only one."""
    order = torch.arange(HEAD).view(2, -1).T.flatten()
    return rows[order] if rows.ndim == 1 else rows[..., order, :]


def converted(theirs):
    own = {
        "embedding": theirs["model.embed_tokens.weight"],
        "final": theirs["model.norm.weight"],
        "unembedding": theirs["lm_head.weight"],
    }
    for layer in range(LAYERS):
        path = f"model.layers.{layer}"
        q, k, v = (theirs[f"{path}.self_attn.{part}_proj.weight"].unflatten(0, (GROUPS, -1, HEAD)) for part in "qkv")
        fused = torch.cat((paired(q), paired(k), v), 1)
        own |= {
            f"{layer}_wqkv": fused.flatten(0, 2),
            f"{layer}_q_scale": paired(theirs[f"{path}.self_attn.q_norm.weight"]),
            f"{layer}_k_scale": paired(theirs[f"{path}.self_attn.k_norm.weight"]),
            f"{layer}_wo": theirs[f"{path}.self_attn.o_proj.weight"],
            f"{layer}_n1": theirs[f"{path}.input_layernorm.weight"],
            f"{layer}_n2": theirs[f"{path}.post_attention_layernorm.weight"],
            f"{layer}_wug": torch.cat([theirs[f"{path}.mlp.{part}_proj.weight"] for part in ("up", "gate")]),
            f"{layer}_wd": theirs[f"{path}.mlp.down_proj.weight"],
        }
    return {name: weight.clone() for name, weight in own.items()}


def unpair_rows(model):
    """Load the fused projection of a middle layer as the reference orders its rows."""
    weight = model.weights["1_wqkv"]
    order = torch.arange(HEAD).view(-1, 2).T.flatten()
    with torch.no_grad():
        weight.copy_(weight.unflatten(0, (-1, HEAD))[:, order].flatten(0, 1))


def transpose_output(model):
    """Load the output projection of a middle layer transposed."""
    with torch.no_grad():
        model.weights["1_wo"].copy_(model.weights["1_wo"].T.clone())


def bug(name, old, new, **more):
    """Return a bug of the one module there is."""
    return Bug(name, ("",), MODULE, old, new, in_layer=False, **more)


RESIDUAL = ("hidden_states = residual + hidden_states",)
NORM = ("torch.rsqrt(variance", "hidden_states.pow(2)", "return self.weight * hidden_states")
BUGS = (
    bug("up and gate swapped", "up, gate = (h @", "gate, up = (h @", shows=("nn.functional.silu(gate) * up",)),
    bug("gelu instead of silu", "nn.functional.silu(gate)", "nn.functional.gelu(gate)"),
    bug(
        "key and value slices swapped",
        "k = fused[..., -2:-1, :]\n    v = fused[..., -1:, :]",
        "v = fused[..., -2:-1, :]\n    k = fused[..., -1:, :]",
        shows=('k = rms(k, w["k_scale"], eps)',),
    ),
    bug(
        "halves rotated",
        "even, odd = vectors[..., 0::2], vectors[..., 1::2]",
        "even, odd = vectors.chunk(2, -1)",
        shows=("turned_even = even * cos - odd * sin", "turned_odd = odd * cos + even * sin"),
    ),
    bug("sign of the rotation", "odd * cos + even * sin", "odd * cos - even * sin"),
    bug(
        "rotary base",
        "cos, sin = rotary_tables(ids.shape[1], width, self.base)",
        "cos, sin = rotary_tables(ids.shape[1], width, 1e5)",
        shows=("angles = torch.arange(length)[:, None] * base**-exponents", "angles.cos(), angles.sin()"),
    ),
    bug(
        "rotary exponents of the whole width",
        "torch.arange(width // 2) / (width // 2)",
        "torch.arange(width // 2) / width",
        shows=("angles = torch.arange(length)[:, None] * base**-exponents",),
    ),
    bug("key norm skipped", 'k = rms(k, w["k_scale"], eps)', "pass", reference_lines=("self.k_norm(", *NORM)),
    bug("softmax scale", "/ q.shape[-1] ** 0.5", "/ h.shape[-1] ** 0.5"),
    bug("mask off by one", ".triu(1)", ".triu(2)", shows=("scores.masked_fill(hidden,",)),
    bug("attention residual missing", "h = h + mix_tokens(", "h = mix_tokens(", reference_lines=RESIDUAL),
    bug(
        "residual after the norm",
        "h = h + mix_channels(normed, w)",
        "h = normed + mix_channels(normed, w)",
        reference_lines=RESIDUAL,
    ),
    bug("epsilon", "(power + eps).rsqrt()", "(power + 1e-2).rsqrt()"),
    bug(
        "final norm missing",
        'h = rms(h, self.weights["final"], self.eps)',
        "pass",
        shows=('h @ self.weights["unembedding"].T',),
        reference_lines=("self.norm(hidden_states)", *NORM),
    ),
    Bug("fused rows not paired", ("", "weights"), in_layer=False, change=unpair_rows),
    Bug("output matrix transposed", ("", "weights"), in_layer=False, change=transpose_output),
)

PORT = Port("bare-qwen3", "handwritten", ("handwritten",), build, BUGS)

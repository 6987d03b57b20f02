"""A Llama from x-transformers: angles instead of ``cos, sin``, tiled key heads, fused gates, residuals as modules."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from transformers import LlamaConfig, LlamaForCausalLM

MODEL, ATTEND = "x_transformers.x_transformers", "x_transformers.attend"


def build(load):
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        rms_norm_eps=1e-12,
        mlp_bias=True,
    )
    reference = shaken(LlamaForCausalLM(config))
    module = load(MODEL)
    decoder = module.Decoder(
        dim=32,
        depth=3,
        heads=4,
        attn_dim_head=8,
        attn_kv_heads=2,
        rotary_pos_emb=True,
        rotary_emb_dim=8,
        use_rmsnorm=True,
        ff_glu=True,
        ff_swish=True,
        ff_mult=2.25,
    )
    port = module.TransformerWrapper(num_tokens=64, max_seq_len=32, attn_layers=decoder).eval()
    unknown = port.load_state_dict(converted(reference.state_dict()), strict=False)
    assert unknown.missing_keys == ["attn_layers.rotary_pos_emb.inv_freq"], unknown
    ids = tokens(64)
    return Case(reference, port, reference_kwargs={"input_ids": ids, "use_cache": False}, port_args=(ids,))


def paired(weight):
    """Put the two rows that a rotation pairs side by side, in each head of width 8."""
    return weight.unflatten(0, (-1, 2, 4)).transpose(1, 2).flatten(0, 2)


def tiled(weight):
    """Order the query heads (group, head of the group) as (head of the group, group)."""
    return weight.unflatten(0, (2, 2, 8)).transpose(0, 1).flatten(0, 2)


def converted(theirs):
    # The norms' weights are stored less the one that the forward adds.
    own = {
        "token_emb.emb.weight": theirs["model.embed_tokens.weight"],
        "attn_layers.final_norm.g": theirs["model.norm.weight"] - 1,
        "to_logits.weight": theirs["lm_head.weight"],
    }
    for layer in range(3):
        path, attention, mlp = f"model.layers.{layer}", *(f"attn_layers.layers.{2 * layer + half}" for half in (0, 1))
        own |= {
            f"{attention}.0.0.g": theirs[f"{path}.input_layernorm.weight"] - 1,
            f"{attention}.1.to_q.weight": paired(tiled(theirs[f"{path}.self_attn.q_proj.weight"])),
            f"{attention}.1.to_k.weight": paired(theirs[f"{path}.self_attn.k_proj.weight"]),
            f"{attention}.1.to_v.weight": theirs[f"{path}.self_attn.v_proj.weight"],
            f"{attention}.1.to_out.weight": tiled(theirs[f"{path}.self_attn.o_proj.weight"].T).T,
            f"{mlp}.0.0.g": theirs[f"{path}.post_attention_layernorm.weight"] - 1,
        }
        for kind in ("weight", "bias"):
            own[f"{mlp}.1.ff.0.proj.{kind}"] = torch.cat(
                [theirs[f"{path}.mlp.{part}_proj.{kind}"] for part in ("up", "gate")]
            )
            own[f"{mlp}.1.ff.2.{kind}"] = theirs[f"{path}.mlp.down_proj.{kind}"]
    return own


def swap_gate_and_up(layers):
    """Load the fused rows of the gate before those of the values."""
    with torch.no_grad():
        for parameter in layers[3][1].ff[0].proj.parameters():
            parameter.copy_(parameter.roll(72, 0))


def untile_queries(layers):
    """Load the query heads in the reference's order."""
    with torch.no_grad():
        weight = layers[2][1].to_q.weight
        weight.copy_(tiled(weight))


def bug(name, at, module, *edit, **more):
    """Return a bug that all layers have: it shows in the first."""
    paths = tuple(f"attn_layers{path and '.' + path}" for path in at)
    return Bug(name, paths, module, *edit, in_layer=False, **more)


ATTENTION, FEED_FORWARD = "layers.0.1", "layers.1.1"
RESIDUAL = ("hidden_states = residual + hidden_states",)
NORM = ("torch.rsqrt(variance", "hidden_states.pow(2)", "return self.weight * hidden_states")
APPLY = "def apply_rotary_pos_emb"

BUGS = (
    bug(
        "gelu instead of silu",
        (f"{FEED_FORWARD}.ff.0", f"{FEED_FORWARD}.ff.0.act"),
        MODEL,
        "            activation = nn.SiLU()\n        else:",
        "            activation = nn.GELU()\n        else:",
        "class FeedForward",
        shows=("return up * self.act(gate)",),
    ),
    bug(
        "values activated for gates",
        (f"{FEED_FORWARD}.ff.0",),
        MODEL,
        "return up * self.act(gate) * self.mult_bias",
        "return gate * self.act(up) * self.mult_bias",
    ),
    bug(
        "norm without its scale",
        ("layers.0.0.0",),
        MODEL,
        "return F.normalize(x, dim = -1) * self.scale * gamma",
        "return F.normalize(x, dim = -1) * gamma",
        "class RMSNorm(Module)",
    ),
    bug(
        "norm of the sequence",
        ("layers.0.0.0",),
        MODEL,
        "return F.normalize(x, dim = -1) * self.scale * gamma",
        "return F.normalize(x, dim = -2) * self.scale * gamma",
        "class RMSNorm(Module)",
    ),
    bug(
        "residual missing",
        ("layers.0.2", ""),
        MODEL,
        "        return x + residual\n",
        "        return x\n",
        "class Residual(Module)",
        reference_lines=RESIDUAL,
    ),
    bug(
        "norm skipped",
        ("",),
        MODEL,
        "                x = pre_norm(x)\n",
        "                pass\n",
        "if exists(inp_inject)",
        reference_lines=("self.input_layernorm(hidden_states)", *NORM),
    ),
    bug(
        "last norm missing",
        ("",),
        MODEL,
        "        x = final_norm(x)\n",
        "",
        reference_lines=("self.norm(hidden_states)", *NORM),
    ),
    bug(
        "frequencies in halves",
        ("rotary_pos_emb",),
        MODEL,
        "freqs = rearrange(freqs, '... d r -> ... (d r)')",
        "freqs = rearrange(freqs, '... d r -> ... (r d)')",
        "class RotaryEmbedding",
        shows=("t = (t * freqs.cos() * scale)",),
    ),
    bug(
        "rotary base",
        ("rotary_pos_emb",),
        MODEL,
        "inv_freq = 1. / (base ** (arange(0, dim, 2).float() / dim))",
        "inv_freq = 1. / ((2 * base) ** (arange(0, dim, 2).float() / dim))",
        "class RotaryEmbedding",
        shows=("freqs = torch.einsum('b i , j -> b i j'",),
    ),
    bug(
        "halves rotated",
        (ATTENTION,),
        MODEL,
        "    x = rearrange(x, '... (d r) -> ... d r', r = 2)\n    x1, x2 = x.unbind(dim = -1)",
        "    x = rearrange(x, '... (r d) -> ... d r', r = 2)\n    x1, x2 = x.unbind(dim = -1)",
        "def rotate_half",
        shows=("x = stack((-x2, x1), dim = -1)", "rotate_half(t) * freqs.sin()"),
    ),
    bug(
        "sign of the rotation",
        (ATTENTION,),
        MODEL,
        "t = (t * freqs.cos() * scale) + (rotate_half(t)",
        "t = (t * freqs.cos() * scale) - (rotate_half(t)",
        APPLY,
    ),
    bug(
        "keys not rotated",
        (ATTENTION,),
        MODEL,
        "            k = apply_rotary_pos_emb(k, freqs, k_xpos_scale)\n",
        "",
        reference_lines=("k_embed = (k * cos)", "rotate_half(k)"),
    ),
    bug(
        "keys grouped",
        (f"{ATTENTION}.attend",),
        ATTEND,
        "-> b (r kvh) n d', r = heads",
        "-> b (kvh r) n d', r = heads",
        "elif kv_heads < heads:",
    ),
    bug(
        "scale missing",
        (f"{ATTENTION}.attend",),
        ATTEND,
        "        sim = sim * scale\n",
        "",
        shows=("sim.masked_fill(causal_mask", "self.attn_fn(sim)", "sim.clone()", "sim = einsum("),
    ),
    bug(
        "mask off by one",
        (f"{ATTENTION}.attend",),
        ATTEND,
        "            causal_mask = self.create_causal_mask(i, j, device = device)\n            sim =",
        "            causal_mask = self.create_causal_mask(i, j, device = device).roll(1, -1)\n            sim =",
        "# masking",
        shows=("sim.masked_fill(causal_mask",),
    ),
    bug(
        "values of the queries",
        (ATTENTION,),
        MODEL,
        "v = self.split_v_heads(v)",
        "v = self.split_v_heads(k.transpose(1, 2).flatten(2))",
    ),
    Bug("fused rows swapped", ("3.1.ff.0.proj", "3.1.ff.0"), change=swap_gate_and_up),
    Bug("query heads not tiled", ("2.1.to_q", "2.1"), change=untile_queries),
)

PORT = Port(
    "x-transformers-llama",
    "x_transformers",
    (MODEL, ATTEND),
    build,
    BUGS,
    "attn_layers.layers",
    {
        "token_emb.emb": "model.embed_tokens",
        "attn_layers.layers.0.1": "model.layers.0.self_attn",
        "attn_layers.layers.2.1": "model.layers.1.self_attn",
        "attn_layers.layers.4.1": "model.layers.2.self_attn",
        "attn_layers.final_norm": "model.norm",
        "to_logits": "lm_head",
    },
)

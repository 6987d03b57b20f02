"""A hand-written GPT-NeoX in (sequence, batch, width), whose fused projection is laid out by part and not by head."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, names_of
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM

MODULE = "handwritten.sequence_first"


def build(load):
    config = GPTNeoXConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        max_position_embeddings=32,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    )
    reference = shaken(GPTNeoXForCausalLM(config))
    port = load(MODULE).SequenceFirst(64, 32, 4, 3, 4).eval()
    names = [(r"^(embed_out|lm_head)", "unembed"), (r"attend\.query_key_value", "attend.in_proj")]
    port = carried(port, reference, [*names_of(PORT.rename), *names], unmixed)
    ids = tokens(64)
    kwargs = {"input_ids": ids, "use_cache": False}
    return Case(
        reference,
        port,
        reference_kwargs=kwargs,
        port_args=(ids.T.contiguous(),),
        arranged=lambda out: out.transpose(0, 1),
    )


NAMES = {
    "ln_attend": "input_layernorm",
    "ln_expand": "post_attention_layernorm",
    "attend.out_proj": "attention.dense",
    "up": "mlp.dense_h_to_4h",
    "down": "mlp.dense_4h_to_h",
}


def unmixed(weights):
    """Put the queries of all heads before the keys and the values."""
    for name in [name for name in weights if "query_key_value" in name]:
        weights[name] = weights[name].unflatten(0, (4, 3, -1)).transpose(0, 1).flatten(0, 2)
    return weights


def keep_rows_by_head(stage):
    """Load the fused projection as the reference lays it out."""
    with torch.no_grad():
        for parameter in stage.attend.in_proj.parameters():
            parameter.copy_(parameter.unflatten(0, (3, 4, -1)).transpose(0, 1).flatten(0, 2))


BUGS = (
    Bug("parts in another order", ("attend",), MODULE, "q, k, v = self.in_proj(x)", "v, q, k = self.in_proj(x)"),
    Bug(
        "batch and heads mixed up",
        ("attend",),
        MODULE,
        "v = (y.contiguous().view(seq, batch * self.n_heads, -1) for y in (q, k, v))",
        "v = (y.contiguous().view(seq, batch, -1, self.n_heads).mT.flatten(1, 2) for y in (q, k, v))",
    ),
    Bug(
        "batch merged as sequence",
        ("attend",),
        MODULE,
        "y = y.transpose(0, 1).reshape(seq, batch, dim)",
        "y = y.reshape(seq, batch, dim)",
    ),
    Bug(
        "rotation in pairs",
        ("attend",),
        MODULE,
        ".repeat(1, 2)[:, None]",
        ".repeat_interleave(2, 1)[:, None]",
        shows=("phase.cos()",),
    ),
    Bug(
        "rotation of the last entries",
        ("attend",),
        MODULE,
        "part, rest = x.split((self.rotary, x.shape[-1] - self.rotary), dim=-1)",
        "rest, part = x.split((x.shape[-1] - self.rotary, self.rotary), dim=-1)",
        shows=("part = part * phase.cos()", "swapped = torch.cat", "return torch.cat((part, rest)"),
    ),
    Bug(
        "values rotated for keys",
        ("attend",),
        MODULE,
        "q, k = self.positions(q), self.positions(k)",
        "q, v = self.positions(q), self.positions(v)",
    ),
    Bug("scale of the model's width", ("attend",), MODULE, "alpha=q.shape[-1] ** -0.5", "alpha=dim ** -0.5"),
    Bug(
        "mask off by one",
        ("attend",),
        MODULE,
        "triu(diagonal=1)",
        "triu(diagonal=2)",
        shows=("torch.baddbmm(self.future(seq)", "functional.softmax(weights, dim=-1)"),
    ),
    Bug("silu instead of gelu", ("",), MODULE, "functional.gelu(x)", "functional.silu(x)"),
    Bug(
        "tanh in the activation",
        ("stages.0",),
        MODULE,
        "functional.gelu(x)",
        "functional.gelu(x, approximate='tanh')",
        in_layer=False,
    ),
    Bug(
        "residual not parallel",
        ("",),
        MODULE,
        "self.expand(self.ln_expand(x))",
        "self.expand(self.ln_expand(x + attended))",
    ),
    Bug(
        "residual missing",
        ("",),
        MODULE,
        "return x + attended + expanded",
        "return attended + expanded",
        reference_lines=("hidden_states = mlp_output + attn_output + hidden_states",),
    ),
    Bug("norm of the other branch", ("",), MODULE, "self.expand(self.ln_expand(x))", "self.expand(self.ln_attend(x))"),
    Bug(
        "rotary base",
        ("stages.0.attend",),
        MODULE,
        "table = 10000 ** (",
        "table = 1000 ** (",
        in_layer=False,
        shows=("phase = (steps[:, None] * self.table[None])",),
    ),
    Bug(
        "last norm missing",
        ("",),
        MODULE,
        "x = self.ln_last(x)",
        "pass",
        in_layer=False,
        reference_lines=("self.final_layer_norm(hidden_states)",),
    ),
    Bug("rows by head", ("attend.in_proj", "attend"), change=keep_rows_by_head),
)

PORT = Port(
    "sequence-first",
    "handwritten",
    ("handwritten",),
    build,
    BUGS,
    "stages.1",
    {"look_up": "gpt_neox.embed_in", "stages.*": "gpt_neox.layers.*", "stages.*.attend": "gpt_neox.layers.*.attention"}
    | {f"stages.*.{ours}": f"gpt_neox.layers.*.{theirs}" for ours, theirs in NAMES.items()}
    | {"ln_last": "gpt_neox.final_layer_norm"},
)

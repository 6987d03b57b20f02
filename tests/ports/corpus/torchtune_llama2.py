"""Llama 2 in torchtune: rotation in pairs, (batch, sequence, heads, width) inside, one rotary module for all layers."""

from __future__ import annotations

from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, names_of
from transformers import LlamaConfig, LlamaForCausalLM

BUILDERS, ATTENTION = "torchtune.models.llama2._component_builders", "torchtune.modules.attention"
LAYERS, ROTARY = "torchtune.modules.transformer", "torchtune.modules.position_embeddings"
NORM, FEED_FORWARD = "torchtune.modules.rms_norm", "torchtune.modules.feed_forward"
ATTEND = "torchtune.modules.attention_utils"


def build(load):
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=72,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=32,
        rms_norm_eps=1e-5,
    )
    reference = shaken(LlamaForCausalLM(config))
    port = load(BUILDERS).llama2(64, 3, 4, 2, 32, 32, intermediate_dim=72).eval()
    names = [*names_of(PORT.rename), (r"norm\.weight", "norm.scale")]
    port = carried(port, reference, names, in_pairs)
    ids = tokens(64)
    return Case(reference, port, reference_kwargs={"input_ids": ids, "use_cache": False}, port_args=(ids,))


NAMES = {
    "attn.v_proj": "self_attn.v_proj",
    "attn.output_proj": "self_attn.o_proj",
    "mlp.w1": "mlp.gate_proj",
    "mlp.w2": "mlp.down_proj",
    "mlp.w3": "mlp.up_proj",
}
NORMS = {"sa_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}


def paired(weight):
    """Put the two rows that a rotation pairs side by side, in each head of width 8."""
    return weight.unflatten(0, (-1, 2, 4)).transpose(1, 2).flatten(0, 2)


def in_pairs(weights):
    rotated = [name for name in weights if ".q_proj." in name or ".k_proj." in name]
    return weights | {name: paired(weights[name]) for name in rotated}


def unpair_queries(layer):
    """Load the query's rows as the reference orders them."""
    layer.attn.q_proj.weight.data = layer.attn.q_proj.weight.data.unflatten(0, (-1, 4, 2)).transpose(1, 2).flatten(0, 2)


def swap_matrices(layer):
    """Load the gate's matrix as the value's, and the reverse."""
    layer.mlp.w1.weight.data, layer.mlp.w3.weight.data = layer.mlp.w3.weight.data, layer.mlp.w1.weight.data


LAYER = "class TransformerSelfAttentionLayer"
RESIDUAL = ("hidden_states = residual + hidden_states",)
NORM_LINES = ("torch.rsqrt(variance", "hidden_states.pow(2)", "return self.weight * hidden_states")
ROTATION = ("attn.pos_embeddings",)

BUGS = (
    Bug(
        "sign of the rotation",
        ROTATION,
        ROTARY,
        "                + xshaped[..., 0] * rope_cache[..., 1],",
        "                - xshaped[..., 0] * rope_cache[..., 1],",
        "class RotaryPositionalEmbeddings",
    ),
    Bug(
        "halves instead of pairs",
        ROTATION,
        ROTARY,
        "xshaped = x.float().reshape(*x.shape[:-1], -1, 2)",
        "xshaped = x.float().reshape(*x.shape[:-1], 2, -1).mT",
        "class RotaryPositionalEmbeddings",
        shows=("xshaped[..., 0] * rope_cache[..., 0]",),
    ),
    Bug(
        "positions offset by the batch",
        ROTATION,
        ROTARY,
        "self.cache[:seq_len] if input_pos is None",
        "self.cache[-seq_len:].flip(0) if input_pos is None",
        "class RotaryPositionalEmbeddings",
        shows=("xshaped[..., 0] * rope_cache[..., 0]",),
    ),
    Bug(
        "rotary base",
        ("layers.0.attn.pos_embeddings",),
        BUILDERS,
        "dim=head_dim, max_seq_len=max_seq_len, base=rope_base",
        "dim=head_dim, max_seq_len=max_seq_len, base=500000",
        "def llama2(",
        in_layer=False,
        shows=("self.cache[:seq_len]", "xshaped[..., 0] * rope_cache[..., 0]"),
    ),
    Bug(
        "keys not rotated",
        ("attn",),
        ATTENTION,
        "                k = self.pos_embeddings(k, input_pos=input_pos)",
        "                pass",
        reference_lines=("k_embed = (k * cos)", "rotate_half(k)"),
    ),
    Bug(
        "values rotated",
        ("attn",),
        ATTENTION,
        "                k = self.pos_embeddings(k, input_pos=input_pos)",
        "                k, v = self.pos_embeddings(k), self.pos_embeddings(v)",
    ),
    Bug(
        "keys tiled",
        ("attn",),
        ATTENTION,
        "k = k.unsqueeze(2).expand(expand_shape).flatten(1, 2)",
        "k = k.unsqueeze(2).expand(expand_shape).transpose(1, 2).flatten(1, 2)",
    ),
    Bug(
        "heads not brought back",
        ("attn",),
        ATTENTION,
        "output = output.transpose(1, 2).contiguous().view(b, s_x, -1)",
        "output = output.contiguous().view(b, s_x, -1)",
    ),
    Bug(
        "mask missing",
        ("attn",),
        ATTENTION,
        "is_causal=self.kv_cache is None and mask is None and self.is_causal,",
        "is_causal=False,",
        shows=("output = self._attention_call(", "is_causal=is_causal"),
    ),
    Bug(
        "scale missing",
        ("attn",),
        ATTEND,
        "                is_causal=is_causal,\n            )\n\n    return",
        "                is_causal=is_causal,\n                scale=1.0,\n            )\n\n    return",
        shows=("output = self._attention_call(",),
    ),
    Bug(
        "first residual of the norm",
        ("",),
        LAYERS,
        "        h = self.sa_scale(attn_out) + x",
        "        h = self.sa_scale(attn_out) + h",
        LAYER,
        reference_lines=RESIDUAL,
    ),
    Bug(
        "second residual missing",
        ("",),
        LAYERS,
        "        out = h + self.mlp_scale(mlp_out)",
        "        out = self.mlp_scale(mlp_out)",
        LAYER,
        reference_lines=RESIDUAL,
    ),
    Bug(
        "second norm skipped",
        ("",),
        LAYERS,
        "mlp_out = self.mlp(self.mlp_norm(h))",
        "mlp_out = self.mlp(h)",
        LAYER,
        reference_lines=("self.post_attention_layernorm(hidden_states)", *NORM_LINES),
    ),
    Bug(
        "last norm missing",
        ("",),
        LAYERS,
        "        h = self.norm(h)\n",
        "",
        "def unembed",
        in_layer=False,
        reference_lines=("self.norm(hidden_states)", *NORM_LINES),
    ),
    Bug("epsilon", ("sa_norm",), NORM, "eps=self.eps,", "eps=1e-2,"),
    Bug(
        "gate not activated",
        ("mlp",),
        FEED_FORWARD,
        "h = self.activation(self.w1(x))",
        "h = self.w1(x)",
        reference_lines=("self.act_fn(self.gate_proj(x))", "nn.functional.silu(input)"),
    ),
    Bug("query's rows not paired", ("attn.q_proj", "attn"), change=unpair_queries),
    Bug("gate and value matrices swapped", ("mlp.w1", "mlp.w3", "mlp"), change=swap_matrices),
)

PORT = Port(
    "torchtune-llama2",
    "torchtune",
    ("torchtune.models.llama2", "torchtune.modules"),
    build,
    BUGS,
    "layers.1",
    {"tok_embeddings": "model.embed_tokens", "layers.*": "model.layers.*", "layers.*.attn": "model.layers.*.self_attn"}
    | {f"layers.*.{ours}": f"model.layers.*.{theirs}" for ours, theirs in (NAMES | NORMS).items()}
    | {"norm": "model.norm", "output": "lm_head"},
)

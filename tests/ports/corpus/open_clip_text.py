"""CLIP's text model in open_clip: torch's own attention module with a fused weight, a parameter for the projection."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, fused
from transformers import CLIPTextConfig, CLIPTextModelWithProjection

MODEL = "open_clip.transformer"


def build(load):
    config = CLIPTextConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=128,
        num_hidden_layers=3,
        num_attention_heads=4,
        max_position_embeddings=12,
        projection_dim=16,
        hidden_act="gelu",
        bos_token_id=0,
        eos_token_id=2,
        pad_token_id=1,
    )
    reference = shaken(CLIPTextModelWithProjection(config))
    port = load(MODEL).TextTransformer(context_length=12, vocab_size=64, width=32, heads=4, layers=3, output_dim=16)
    names = [
        (r"^text_model\.", ""),
        (r"^embeddings\.token_embedding", "token_embedding"),
        (r"^embeddings\.position_embedding\.weight", "positional_embedding"),
        (r"^text_projection\.weight", "text_projection"),
        (r"^final_layer_norm", "ln_final"),
        (r"^encoder\.layers", "transformer.resblocks"),
        (r"self_attn\.in_proj\.", "attn.in_proj_"),
        *((theirs, ours) for ours, theirs in NAMES.items()),
    ]
    port = carried(port, reference, names, joined)
    ids = tokens(60)
    ids[0, 7] = ids[1, 10] = 63
    return Case(
        reference, port.eval(), reference_kwargs={"input_ids": ids}, port_args=(ids,), outputs={"": "text_embeds"}
    )


NAMES = {
    "attn.out_proj": "self_attn.out_proj",
    "ln_1": "layer_norm1",
    "ln_2": "layer_norm2",
    "mlp.c_fc": "mlp.fc1",
    "mlp.c_proj": "mlp.fc2",
}


def joined(weights):
    weights["text_projection.weight"] = weights["text_projection.weight"].T
    return fused(weights, [f"self_attn.{part}_proj" for part in "qkv"], "self_attn.in_proj")


def roll_fused_rows(block):
    """Load the fused rows as key, value, query."""
    with torch.no_grad():
        block.attn.in_proj_weight.copy_(block.attn.in_proj_weight.roll(-32, 0))


def transpose_output(block):
    """Load the output projection transposed."""
    with torch.no_grad():
        block.attn.out_proj.weight.copy_(block.attn.out_proj.weight.T.clone())


BLOCK = "class ResidualAttentionBlock"
ATTENTION = "x = q_x + self.ls_1(self.attention(q_x=self.ln_1(q_x), k_x=k_x, v_x=v_x, attn_mask=attn_mask))"
MIXING = "x = x + self.ls_2(self.mlp(self.ln_2(x)))"
RESIDUAL = ("hidden_states = residual + hidden_states",)
TEXT = "class TextTransformer"

BUGS = (
    Bug(
        "first residual missing",
        ("",),
        MODEL,
        ATTENTION,
        ATTENTION.replace("q_x + ", "", 1),
        BLOCK,
        reference_lines=RESIDUAL,
    ),
    Bug(
        "first norm skipped",
        ("",),
        MODEL,
        ATTENTION,
        ATTENTION.replace("self.ln_1(q_x)", "q_x"),
        BLOCK,
        reference_lines=("self.layer_norm1(hidden_states)",),
    ),
    Bug(
        "mask not passed on",
        ("",),
        MODEL,
        ATTENTION,
        ATTENTION.replace("attn_mask=attn_mask", "attn_mask=None"),
        BLOCK,
        shows=("return self.attn(", "attn_mask=attn_mask"),
    ),
    Bug(
        "keys not normed",
        ("",),
        MODEL,
        ATTENTION,
        ATTENTION.replace("k_x=k_x", "k_x=q_x"),
        BLOCK,
        shows=("return self.attn(",),
    ),
    Bug(
        "second residual after the norm",
        ("",),
        MODEL,
        MIXING,
        MIXING.replace("x + ", "self.ln_2(x) + "),
        BLOCK,
        reference_lines=RESIDUAL,
    ),
    Bug("norms swapped", ("",), MODEL, MIXING, MIXING.replace("ln_2", "ln_1"), BLOCK),
    Bug(
        "quick gelu",
        ("mlp", "mlp.gelu"),
        MODEL,
        '("gelu", act_layer())',
        '("gelu", QuickGELU())',
        BLOCK,
        shows=("return x * torch.sigmoid(1.702 * x)", "self.mlp(self.ln_2(x))"),
    ),
    Bug(
        "epsilon",
        ("ln_1",),
        MODEL,
        "x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)\n        return x.to(orig_type)",
        "x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, 1e-2)\n        return x.to(orig_type)",
        "class LayerNorm(nn.LayerNorm)",
    ),
    Bug(
        "positions offset",
        ("",),
        MODEL,
        "x = x + self.positional_embedding[:seq_len].to(cast_dtype)",
        "x = x + self.positional_embedding[:seq_len].roll(1, 0).to(cast_dtype)",
        TEXT,
        in_layer=False,
    ),
    Bug(
        "positions missing",
        ("",),
        MODEL,
        "x = x + self.positional_embedding[:seq_len].to(cast_dtype)",
        "pass",
        TEXT,
        in_layer=False,
        reference_lines=(
            "self.position_embedding(position_ids)",
            "inputs_embeds + position_embeddings",
        ),
    ),
    Bug(
        "mask off by one",
        ("", "transformer.resblocks.0", "transformer.resblocks.0.attn"),
        MODEL,
        "mask.triu_(1)  # zero out",
        "mask.triu_(2)  # zero out",
        TEXT,
        in_layer=False,
        shows=("return self.attn(",),
    ),
    Bug(
        "last norm missing",
        ("",),
        MODEL,
        '            x = self.ln_final(x)\n            pooled = text_global_pool(x, text, pool_type=self.pool_type, eos_token_id=getattr(self, "eos_id", None))\n            tokens = x',
        "            pooled = text_global_pool(x, text, pool_type=self.pool_type)\n            tokens = x",
        TEXT,
        in_layer=False,
        reference_lines=("self.final_layer_norm(",),
    ),
    Bug(
        "pooled at the last token",
        ("",),
        MODEL,
        "pooled = x[torch.arange(x.shape[0], device=x.device), text.argmax(dim=-1)]",
        "pooled = x[:, -1]",
        in_layer=False,
        shows=("text_global_pool(x, text",),
    ),
    Bug(
        "projection transposed",
        ("",),
        MODEL,
        "                pooled = pooled @ self.text_projection\n\n        if self.output_tokens",
        "                pooled = pooled @ self.text_projection.reshape(16, 32).T\n\n        if self.output_tokens",
        TEXT,
        in_layer=False,
    ),
    Bug("fused rows in another order", ("attn",), change=roll_fused_rows),
    Bug("output projection transposed", ("attn.out_proj", "attn"), change=transpose_output),
)

PORT = Port(
    "open-clip-text",
    "open_clip",
    (MODEL,),
    build,
    BUGS,
    "transformer.resblocks.1",
    {
        f"transformer.resblocks.*{name and '.' + name}": f"text_model.encoder.layers.*{theirs and '.' + theirs}"
        for name, theirs in ({"": "", "attn": "self_attn"} | NAMES).items()
    },
)

"""ESM-2 in fair-esm: (sequence, batch, width) inside, attention written out over flattened heads, in-place scaling."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken, tokens
from conversion import carried, names_of
from transformers import EsmConfig, EsmForMaskedLM

MODEL, LAYER = "esm.model.esm2", "esm.modules"
ATTENTION, ROTARY = "esm.multihead_attention", "esm.rotary_embedding"
MASK, PAD = 32, 1


def build(load):
    config = EsmConfig(
        vocab_size=33,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=128,
        position_embedding_type="rotary",
        token_dropout=True,
        mask_token_id=MASK,
        pad_token_id=PAD,
        emb_layer_norm_before=False,
        layer_norm_eps=1e-5,
        max_position_embeddings=64,
    )
    reference = shaken(EsmForMaskedLM(config))
    port = load(MODEL).ESM2(num_layers=3, embed_dim=32, attention_heads=4)
    names = [(r"^lm_head\.decoder\.weight", "lm_head.weight"), (r"^esm\.contact_head", "contact_head")]
    port = carried(port, reference, [*names, *names_of(PORT.rename)])
    ids = tokens(30)
    ids[0, 4] = MASK
    ids[1, -2:] = PAD
    kwargs = {"input_ids": ids, "attention_mask": ids.ne(PAD).long()}
    return Case(reference, port.eval(), reference_kwargs=kwargs, port_args=(ids,))


NAMES = {
    "self_attn.q_proj": "attention.self.query",
    "self_attn.k_proj": "attention.self.key",
    "self_attn.v_proj": "attention.self.value",
    "self_attn.out_proj": "attention.output.dense",
    "self_attn_layer_norm": "attention.LayerNorm",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
    "final_layer_norm": "LayerNorm",
}


def transpose_output(layer):
    """Load the output projection transposed."""
    with torch.no_grad():
        layer.self_attn.out_proj.weight.copy_(layer.self_attn.out_proj.weight.T.clone())


def swap_biases(layer):
    """Give the query's bias to the value, and the reverse."""
    query, value = layer.self_attn.q_proj.bias, layer.self_attn.v_proj.bias
    with torch.no_grad():
        kept = query.clone()
        query.copy_(value)
        value.copy_(kept)


ROTATION = ("self_attn.rot_emb", "self_attn")
RESIDUAL = ("hidden_states = hidden_states + input_tensor",)
LAST_NORM = ("emb_layer_norm_after(hidden_states)",)

BUGS = (
    Bug(
        "tanh in the activation",
        ("",),
        LAYER,
        "return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))",
        "return F.gelu(x, approximate='tanh')",
        shows=("gelu(self.fc1(x))",),
    ),
    Bug(
        "first residual missing",
        ("",),
        LAYER,
        "        x = residual + x\n\n        residual = x\n        x = self.final_layer_norm(x)",
        "        residual = x\n        x = self.final_layer_norm(x)",
        "class TransformerLayer",
        reference_lines=RESIDUAL,
    ),
    Bug(
        "second residual after the norm",
        ("",),
        LAYER,
        "        residual = x\n        x = self.final_layer_norm(x)",
        "        x = self.final_layer_norm(x)\n        residual = x",
        "class TransformerLayer",
        shows=("x = residual + x",),
        reference_lines=RESIDUAL,
    ),
    Bug(
        "second norm skipped",
        ("",),
        LAYER,
        "        x = self.final_layer_norm(x)\n        x = gelu(",
        "        x = gelu(",
        "class TransformerLayer",
        reference_lines=("self.LayerNorm(attention_output)",),
    ),
    Bug(
        "scale missing",
        ("self_attn", *ROTATION),
        ATTENTION,
        "        q *= self.scaling\n",
        "",
        shows=("torch.bmm(q, k.transpose(1, 2))", "q, k = self.rot_emb(q, k)"),
        reference_lines=("self.attention_head_size**-0.5",),
    ),
    Bug(
        "key projection for the value",
        ("self_attn",),
        ATTENTION,
        "            v = self.v_proj(value)\n        q *=",
        "            v = self.k_proj(value)\n        q *=",
        reference_lines=("self.value(current_states)",),
    ),
    Bug(
        "heads of the value interleaved",
        ("self_attn",),
        ATTENTION,
        "v = v.contiguous().view(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)",
        "v = v.unflatten(-1, (self.head_dim, -1)).mT.reshape(-1, bsz * self.num_heads, self.head_dim).transpose(0, 1)",
    ),
    Bug(
        "mask of the padding shifted",
        ("self_attn",),
        ATTENTION,
        "key_padding_mask.unsqueeze(1).unsqueeze(2).to(torch.bool), float",
        "key_padding_mask.roll(1, -1).unsqueeze(1).unsqueeze(2).to(torch.bool), float",
    ),
    Bug(
        "halves of the rotation",
        ROTATION,
        ROTARY,
        "x1, x2 = x.chunk(2, dim=-1)",
        "x2, x1 = x.chunk(2, dim=-1)",
        shows=("(x * cos) + (rotate_half(x) * sin)", "torch.cat((-x2, x1), dim=-1)"),
    ),
    Bug(
        "sign of the rotation",
        ROTATION,
        ROTARY,
        "(x * cos) + (rotate_half(x) * sin)",
        "(x * cos) - (rotate_half(x) * sin)",
    ),
    Bug(
        "keys not rotated",
        ROTATION,
        ROTARY,
        "            apply_rotary_pos_emb(k, self._cos_cached, self._sin_cached),\n        )",
        "            k,\n        )",
        shows=("torch.bmm(q, k.transpose(1, 2))",),
        reference_lines=("rotate_half(k.float())", "apply_rotary_pos_emb("),
    ),
    Bug(
        "frequencies in pairs",
        ROTATION,
        ROTARY,
        "emb = torch.cat((freqs, freqs), dim=-1)",
        "emb = freqs.repeat_interleave(2, -1)",
        shows=(
            "(x * cos) + (rotate_half(x) * sin)",
            "cos = cos[:, : x.shape[-2], :]",
            "self._cos_cached = emb.cos()",
            "self._sin_cached = emb.sin()",
        ),
    ),
    Bug(
        "share of masked tokens",
        ("",),
        MODEL,
        "mask_ratio_train = 0.15 * 0.8",
        "mask_ratio_train = 0.15",
        in_layer=False,
        shows=("x = x * (1 - mask_ratio_train)",),
    ),
    Bug(
        "embedding scale",
        ("",),
        MODEL,
        "x = self.embed_scale * self.embed_tokens(tokens)",
        "x = self.embed_dim**0.5 * self.embed_tokens(tokens)",
        in_layer=False,
    ),
    Bug(
        "last norm missing",
        ("",),
        MODEL,
        "        x = self.emb_layer_norm_after(x)\n",
        "",
        in_layer=False,
        reference_lines=LAST_NORM,
    ),
    Bug(
        "norm of the head before its activation",
        ("lm_head",),
        LAYER,
        "        x = gelu(x)\n        x = self.layer_norm(x)\n        # project",
        "        x = self.layer_norm(x)\n        x = gelu(x)\n        # project",
        in_layer=False,
    ),
    Bug("output projection transposed", ("self_attn.out_proj", "self_attn"), change=transpose_output),
    Bug("biases of query and value swapped", ("self_attn.q_proj", "self_attn.v_proj", "self_attn"), change=swap_biases),
)

PORT = Port(
    "esm2",
    "esm",
    ("esm",),
    build,
    BUGS,
    "layers.1",
    {"embed_tokens": "esm.embeddings.word_embeddings", "layers.*": "esm.encoder.layer.*"}
    | {f"layers.*.{ours}": f"esm.encoder.layer.*.{theirs}" for ours, theirs in NAMES.items()}
    | {"emb_layer_norm_after": "esm.encoder.emb_layer_norm_after"},
)

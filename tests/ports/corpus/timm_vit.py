"""ViT in timm: a fused projection, layers in a ``Sequential``, identities for what is switched off, ``x`` as input."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken
from conversion import carried, fused, names_of
from transformers import ViTConfig, ViTForImageClassification

MODEL, ATTENTION, MLP = "timm.models.vision_transformer", "timm.layers.attention", "timm.layers.mlp"
NORM, PATCHES, POOL = "timm.layers.norm", "timm.layers.patch_embed", "timm.layers.pool1d"


def build(load):
    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=72,
        image_size=12,
        patch_size=4,
        num_labels=5,
        layer_norm_eps=1e-6,
    )
    reference = shaken(ViTForImageClassification(config))
    port = load(MODEL).VisionTransformer(
        img_size=12, patch_size=4, num_classes=5, embed_dim=32, depth=3, num_heads=4, mlp_ratio=2.25
    )
    names = [(r"^vit\.embeddings\.(cls_token)", r"\1"), (r"^vit\.embeddings\.position_embeddings", "pos_embed")]
    names += [*names_of(PORT.rename), (r"^patch_embed\.projection", "patch_embed.proj")]
    port = carried(port, reference, names, joined)
    pixels = torch.randn(2, 3, 12, 12, generator=torch.Generator().manual_seed(1))
    return Case(reference, port.eval(), reference_kwargs={"pixel_values": pixels}, port_args=(pixels,))


def joined(weights):
    return fused(weights, [f"attention.{part}_proj" for part in "qkv"], "attention.qkv")


def forget_bias(block):
    """Leave out the bias of the fused projection."""
    with torch.no_grad():
        block.attn.qkv.bias.zero_()


def roll_query_rows(block):
    """Load the rows of the query's part in another order."""
    with torch.no_grad():
        block.attn.qkv.weight[:32] = block.attn.qkv.weight[:32].roll(5, 0)


RESIDUAL = ("hidden_states = hidden_states + residual",)
SECOND_HALF = "x = x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))\n        return x\n\n\nclass ResPostBlock"

BUGS = (
    Bug(
        "tanh in the activation",
        ("mlp", "mlp.act"),
        MLP,
        "self.act = act_layer()",
        "self.act = nn.GELU(approximate='tanh')",
        "class Mlp",
        shows=("x = self.act(x)",),
    ),
    Bug(
        "activation skipped",
        ("mlp",),
        MLP,
        "x = self.act(x)",
        "pass",
        "class Mlp",
        reference_lines=("self.act(input)", "self.activation_fn(hidden_states)"),
    ),
    Bug(
        "epsilon",
        ("norm1", "norm2"),
        NORM,
        "            x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)",
        "            x = F.layer_norm(x, self.normalized_shape, self.weight, self.bias, 1e-2)",
        "class LayerNorm(nn.LayerNorm)",
    ),
    Bug(
        "norm without its bias",
        ("norm1",),
        NORM,
        "self.weight, self.bias, self.eps)",
        "self.weight, None, self.eps)",
        "        else:\n            x = F.layer_norm(",
    ),
    Bug(
        "second residual missing",
        ("",),
        MODEL,
        SECOND_HALF,
        SECOND_HALF.replace("x = x + ", "x = "),
        reference_lines=RESIDUAL,
    ),
    Bug(
        "second residual after the norm",
        ("",),
        MODEL,
        SECOND_HALF,
        SECOND_HALF.replace("x = x + ", "x = self.norm2(x) + "),
        reference_lines=RESIDUAL,
    ),
    Bug(
        "second norm skipped",
        ("",),
        MODEL,
        SECOND_HALF,
        SECOND_HALF.replace("self.norm2(x)", "x"),
        reference_lines=("self.layernorm_after(hidden_states)",),
    ),
    Bug(
        "query and key swapped",
        ("attn",),
        ATTENTION,
        "q, k, v = qkv.unbind(0)",
        "k, v, q = qkv.unbind(0)",
        "class Attention(nn.Module)",
    ),
    Bug(
        "heads before parts in the fused projection",
        ("attn",),
        ATTENTION,
        ".reshape(B, N, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4)",
        ".reshape(B, N, self.num_heads, 3, self.head_dim).permute(3, 0, 2, 1, 4)",
        "class Attention(nn.Module)",
    ),
    Bug(
        "softmax scale of the model's width",
        ("attn",),
        ATTENTION,
        "dropout_p=self.attn_drop.p if self.training else 0.,",
        "scale=C ** -0.5,",
        "class Attention(nn.Module)",
    ),
    Bug(
        "causal attention",
        ("attn",),
        ATTENTION,
        "is_causal=is_causal,",
        "is_causal=True,",
        "class Attention(nn.Module)",
    ),
    Bug(
        "heads merged in the wrong order",
        ("attn",),
        ATTENTION,
        "x = x.transpose(1, 2).reshape(B, N, self.attn_dim)",
        "x = x.transpose(2, 3).reshape(B, N, self.attn_dim)",
        "class Attention(nn.Module)",
    ),
    Bug(
        "patches by columns",
        ("patch_embed",),
        PATCHES,
        "x = x.flatten(2).transpose(1, 2)  # NCHW -> NLC",
        "x = x.mT.flatten(2).transpose(1, 2)  # NCHW -> NLC",
        "class PatchEmbed(nn.Module)",
        in_layer=False,
    ),
    Bug(
        "position of the class token missing",
        ("",),
        MODEL,
        "                x = torch.cat(to_cat + [x], dim=1)\n            x = x + pos_embed\n\n        return self.pos_drop",
        "                x = torch.cat(to_cat + [x + pos_embed[:, 1:]], dim=1)\n\n        return self.pos_drop",
        in_layer=False,
        reference_lines=("embeddings = embeddings + self.position_embeddings",),
    ),
    Bug(
        "positions offset",
        ("",),
        MODEL,
        "            x = x + pos_embed\n\n        return self.pos_drop",
        "            x = x + pos_embed.roll(1, 1)\n\n        return self.pos_drop",
        in_layer=False,
    ),
    Bug(
        "mean instead of the class token",
        ("",),
        MODEL,
        "        pool_type = self.global_pool if pool_type is None else pool_type\n        x = global_pool_nlc(",
        "        pool_type = 'avg'\n        x = global_pool_nlc(",
        in_layer=False,
        shows=("x = global_pool_nlc(", "x = x.mean(dim=1)"),
    ),
    Bug(
        "final norm missing",
        ("",),
        MODEL,
        "        x = self.norm(x)\n        return x\n\n    def pool",
        "        return x\n\n    def pool",
        in_layer=False,
        reference_lines=("self.layernorm(hidden_states)",),
    ),
    Bug("bias of the fused projection missing", ("attn.qkv", "attn"), change=forget_bias),
    Bug("query's rows in another order", ("attn.qkv", "attn"), change=roll_query_rows),
)

PORT = Port(
    "timm-vit",
    "timm",
    ("timm.layers", MODEL),
    build,
    BUGS,
    "blocks.1",
    {
        "patch_embed": "vit.embeddings.patch_embeddings",
        "blocks.*": "vit.layers.*",
        "blocks.*.norm1": "vit.layers.*.layernorm_before",
        "blocks.*.norm2": "vit.layers.*.layernorm_after",
        "blocks.*.attn": "vit.layers.*.attention",
        "blocks.*.attn.proj": "vit.layers.*.attention.o_proj",
        "blocks.*.mlp": "vit.layers.*.mlp",
        "norm": "vit.layernorm",
        "head": "classifier",
    },
)

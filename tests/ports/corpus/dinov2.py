"""DINOv2 in Meta's own package: fused projections, layer scales, and the last states returned in pieces."""

from __future__ import annotations

from functools import partial

import torch
from cases import Bug, Case, Port, shaken
from conversion import carried, fused
from transformers import Dinov2Config, Dinov2Model

MODEL, ATTENTION = "dinov2.models.vision_transformer", "dinov2.layers.attention"
BLOCK, SCALE = "dinov2.layers.block", "dinov2.layers.layer_scale"


def build(load):
    reference = shaken(
        Dinov2Model(
            Dinov2Config(
                hidden_size=32, num_hidden_layers=3, num_attention_heads=4, mlp_ratio=2, image_size=28, patch_size=7
            )
        )
    )
    layers = load("dinov2.layers")
    port = load(MODEL).DinoVisionTransformer(
        img_size=28,
        patch_size=7,
        embed_dim=32,
        depth=3,
        num_heads=4,
        mlp_ratio=2,
        init_values=1.0,
        block_chunks=0,
        block_fn=partial(layers.NestedTensorBlock, attn_class=layers.MemEffAttention),
    )
    port = carried(port, reference, NAMES.items(), lambda weights: fused(weights, PARTS, "attn.qkv"))
    images = torch.randn(2, 3, 28, 28)
    return Case(
        reference,
        port.eval(),
        reference_kwargs={"pixel_values": images},
        port_kwargs={"x": images, "is_training": True},
        outputs={"x_norm_clstoken": "last_hidden_state[:, 0]", "x_norm_patchtokens": "last_hidden_state[:, 1:]"},
        arranged=lambda pieces: torch.cat((pieces["x_norm_clstoken"][:, None], pieces["x_norm_patchtokens"]), 1),
    )


NAMES = {
    "embeddings.cls_token": "cls_token",
    "embeddings.mask_token": "mask_token",
    "embeddings.position_embeddings": "pos_embed",
    "embeddings.patch_embeddings.projection": "patch_embed.proj",
    "encoder.layer.": "blocks.",
    "attention.o_proj": "attn.proj",
    "layer_scale1.lambda1": "ls1.gamma",
    "layer_scale2.lambda1": "ls2.gamma",
    r"layernorm\.": "norm.",
}
PARTS = ("attention.q_proj", "attention.k_proj", "attention.v_proj")


BUGS = (
    Bug("scale missing", ("attn",), ATTENTION, "qkv[0] * self.scale,", "qkv[0],", shows=("attn.softmax(dim=-1)",)),
    Bug("softmax over queries", ("attn",), ATTENTION, "attn.softmax(dim=-1)", "attn.softmax(dim=-2)"),
    Bug("key and value swapped", ("attn",), ATTENTION, "qkv[1], qkv[2]", "qkv[2], qkv[1]"),
    Bug(
        "heads merged without transposition",
        ("attn",),
        ATTENTION,
        "x = (attn @ v).transpose(1, 2).reshape(B, N, C)",
        "x = (attn @ v).reshape(B, N, C)",
        shows=("x = self.proj(x)",),
    ),
    Bug("activation missing", ("mlp",), "dinov2.layers.mlp", "x = self.act(x)", "pass", shows=("x = self.fc2(x)",)),
    Bug("first layer scale does nothing", ("ls1", "ls2"), SCALE, "else x * self.gamma", "else x"),
    Bug("norm before the feed-forward skipped", ("",), BLOCK, "self.mlp(self.norm2(x))", "self.mlp(x)", "class Block"),
    Bug("one norm for both", ("",), BLOCK, "self.mlp(self.norm2(x))", "self.mlp(self.norm1(x))", "class Block"),
    Bug(
        "residual missing",
        ("",),
        BLOCK,
        "x = x + attn_residual_func(x)\n            x = x + ffn_residual_func(x)",
        "x = attn_residual_func(x)\n            x = x + ffn_residual_func(x)",
        "else:\n            x = x + attn",
        shows=("x = x + ffn_residual_func(x)",),
        reference_lines=("hidden_states = self.drop_path(hidden_states) + residual",),
    ),
    Bug(
        "positions missing",
        ("",),
        MODEL,
        "x = x + self.interpolate_pos_encoding(x, w, h)",
        "pass",
        in_layer=False,
        shows=("x = torch.cat((self.cls_token",),
    ),
    Bug(
        "patches from the second on",
        ("",),
        MODEL,
        '"x_norm_patchtokens": x_norm[:, 1:],\n            "x_prenorm": x,',
        '"x_norm_patchtokens": x_norm[:, :-1],\n            "x_prenorm": x,',
        "def forward_features(self",
        in_layer=False,
    ),
    Bug(
        "states before the norm",
        ("",),
        MODEL,
        '"x_norm_patchtokens": x_norm[:, 1:],',
        '"x_norm_patchtokens": x[:, 1:],',
        "def forward_features(self",
        in_layer=False,
    ),
)

PORT = Port("dinov2", "dinov2", ("dinov2",), build, BUGS, layer="blocks.1", rename={"blocks": "encoder.layer"})

"""The image encoder of Segment Anything: attention in windows, positions by height and width, channels last."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken
from conversion import carried
from torch import nn
from transformers import SamVisionConfig, SamVisionModel

MODEL, COMMON = "segment_anything.modeling.image_encoder", "segment_anything.modeling.common"
BLOCK, ATTENTION = "class Block", "class Attention"


def build(load):
    sizes = {"image_size": 32, "patch_size": 4, "window_size": 3}
    reference = shaken(
        SamVisionModel(
            SamVisionConfig(
                hidden_size=32,
                output_channels=16,
                num_hidden_layers=3,
                num_attention_heads=4,
                mlp_dim=72,
                global_attn_indexes=[2],
                **sizes,
            )
        )
    )
    load(COMMON)
    port = load(MODEL).ImageEncoderViT(
        img_size=32,
        patch_size=4,
        embed_dim=32,
        depth=3,
        num_heads=4,
        mlp_ratio=2.25,
        out_chans=16,
        norm_layer=lambda width: nn.LayerNorm(width, eps=1e-6),
        use_rel_pos=True,
        window_size=3,
        global_attn_indexes=(2,),
    )
    port = carried(port, reference, NAMES.items())
    pixels = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    return Case(reference, port.eval(), reference_kwargs={"pixel_values": pixels}, port_args=(pixels,))


#: In this order: the norms of the neck are numbered, those of the layers are not.
NAMES = {
    "vision_encoder.": "",
    "patch_embed.projection": "patch_embed.proj",
    "neck.conv1": "neck.0",
    "neck.layer_norm1": "neck.1",
    "neck.conv2": "neck.2",
    "neck.layer_norm2": "neck.3",
    "layers.": "blocks.",
    "layer_norm": "norm",
}


RESIDUAL = "        x = shortcut + x\n        x = x + self.mlp(self.norm2(x))"

BUGS = (
    Bug(
        "first residual missing",
        ("",),
        MODEL,
        RESIDUAL,
        RESIDUAL.replace("shortcut + x", "x"),
        BLOCK,
        reference_lines=("hidden_states = residual + hidden_states",),
    ),
    Bug(
        "feed-forward missing",
        ("",),
        MODEL,
        RESIDUAL,
        "        x = shortcut + x",
        BLOCK,
        reference_lines=("self.layer_norm2(hidden_states)", "hidden_states + self.mlp(layernorm_output)"),
    ),
    Bug("second norm skipped", ("",), MODEL, "self.mlp(self.norm2(x))", "self.mlp(x)", BLOCK),
    Bug(
        "scale missing",
        ("attn",),
        MODEL,
        "attn = (q * self.scale) @ k",
        "attn = q @ k",
        ATTENTION,
        reference_lines=("torch.nn.functional.scaled_dot_product_attention(",),
        shows=("attn.softmax(dim=-1)", "attn = add_decomposed_rel_pos("),
    ),
    Bug(
        "positions missing",
        ("attn",),
        MODEL,
        "attn = add_decomposed_rel_pos(attn, q, self.rel_pos_h, self.rel_pos_w, (H, W), (H, W))",
        "pass",
        ATTENTION,
        reference_lines=("decomposed_rel_pos", "torch.einsum("),
    ),
    Bug(
        "height and width swapped",
        ("attn",),
        MODEL,
        "attn, q, self.rel_pos_h, self.rel_pos_w,",
        "attn, q, self.rel_pos_w, self.rel_pos_h,",
        ATTENTION,
        shows=("get_rel_pos(q_h, k_h, rel_pos_h)", "get_rel_pos(q_w, k_w, rel_pos_w)", 'torch.einsum("bhwc,'),
    ),
    Bug(
        "positions of scaled queries",
        ("attn",),
        MODEL,
        "add_decomposed_rel_pos(attn, q, self",
        "add_decomposed_rel_pos(attn, q * self.scale, self",
        ATTENTION,
        shows=('torch.einsum("bhwc,',),
    ),
    Bug(
        "heads merged in the wrong order",
        ("attn",),
        MODEL,
        ".view(B, self.num_heads, H, W, -1).permute(0, 2, 3, 1, 4).reshape(B, H, W, -1)",
        ".view(B, self.num_heads, H, W, -1).permute(0, 2, 3, 4, 1).reshape(B, H, W, -1)",
        ATTENTION,
        shows=("x = self.proj(x)",),
    ),
    Bug(
        "windows by columns",
        ("",),
        MODEL,
        "x = x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, Hp, Wp, -1)",
        "x = x.permute(0, 1, 4, 2, 3, 5).contiguous().view(B, Hp, Wp, -1)",
        "def window_unpartition",
        shows=("x = shortcut + x",),
    ),
    Bug("relu instead of gelu", ("mlp", "mlp.act"), COMMON, "self.act(self.lin1(x))", "self.act(self.lin1(x)).relu()"),
    Bug(
        "variance without its epsilon",
        ("neck.1",),
        COMMON,
        "x = (x - u) / torch.sqrt(s + self.eps)",
        "x = (x - u) / (torch.sqrt(s) + 1e-2)",
        in_layer=False,
    ),
)

PORT = Port(
    "segment-anything",
    "segment_anything",
    ("segment_anything.modeling",),
    build,
    BUGS,
    "blocks.1",
    {
        "patch_embed": "vision_encoder.patch_embed",
        "blocks.*": "vision_encoder.layers.*",
        "blocks.*.norm1": "vision_encoder.layers.*.layer_norm1",
        "blocks.*.norm2": "vision_encoder.layers.*.layer_norm2",
    },
)

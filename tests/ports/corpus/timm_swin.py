"""Swin in timm: (batch, height, width, channels) between the blocks, downsampling at the start of a stage."""

from __future__ import annotations

import torch
from cases import Bug, Case, Port, shaken
from conversion import carried, fused, names_of
from transformers import SwinConfig, SwinForImageClassification

MODEL, MLP, PATCHES = "timm.models.swin_transformer", "timm.layers.mlp", "timm.layers.patch_embed"
WINDOWS = "class WindowAttention"


def build(load):
    config = SwinConfig(
        image_size=16,
        patch_size=2,
        embed_dim=8,
        depths=[2, 2],
        num_heads=[2, 2],
        window_size=4,
        num_labels=5,
        layer_norm_eps=1e-5,
        drop_path_rate=0.0,
    )
    reference = shaken(SwinForImageClassification(config))
    port = load(MODEL).SwinTransformer(
        img_size=16,
        patch_size=2,
        embed_dim=8,
        depths=(2, 2),
        num_heads=(2, 2),
        window_size=4,
        num_classes=5,
        drop_path_rate=0.0,
    )
    names = [
        *names_of(PORT.rename),
        (r"relative_position_bias\.", ""),
        (r"^swin\.embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
        (r"^swin\.embeddings\.norm", "patch_embed.norm"),
    ]
    port = carried(port, reference, names, joined)
    pixels = torch.randn(2, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    return Case(reference, port.eval(), reference_kwargs={"pixel_values": pixels}, port_args=(pixels,))


NAMES = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.o_proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


def joined(weights):
    return fused(weights, [f"attention.{part}_proj" for part in "qkv"], "attention.qkv")


def mirror_table(block):
    """Load the table of relative positions from its other end."""
    with torch.no_grad():
        block.attn.relative_position_bias_table.copy_(block.attn.relative_position_bias_table.flip(0))


BLOCK_END = "x = x + self.drop_path2(self.mlp(self.norm2(x)))"
RESIDUAL = ("self.dropout(hidden_states) + residual", "shortcut + self.drop_path(")

BUGS = (
    Bug(
        "shift in the wrong direction",
        ("",),
        MODEL,
        "shifts=(-self.shift_size[0], -self.shift_size[1])",
        "shifts=self.shift_size",
    ),
    Bug(
        "shift not reversed",
        ("",),
        MODEL,
        "x = torch.roll(shifted_x, shifts=self.shift_size, dims=(1, 2))",
        "x = shifted_x",
        reference_lines=("torch.roll(",),
    ),
    Bug(
        "mask of the shift missing",
        ("",),
        MODEL,
        "attn_windows = self.attn(x_windows, mask=attn_mask)",
        "attn_windows = self.attn(x_windows)",
        reference_lines=("attn_mask",),
    ),
    Bug(
        "windows by columns",
        ("",),
        MODEL,
        "x_windows = window_partition(shifted_x, self.window_size)",
        "x_windows = window_partition(shifted_x.transpose(1, 2), self.window_size)",
    ),
    Bug(
        "relative positions transposed",
        ("attn",),
        MODEL,
        "relative_position_bias.permute(2, 0, 1).contiguous()",
        "relative_position_bias.permute(2, 1, 0).contiguous()",
        shows=("attn + self._get_rel_pos_bias()",),
    ),
    Bug(
        "relative positions missing",
        ("attn",),
        MODEL,
        "attn = attn + self._get_rel_pos_bias()",
        "pass",
        shows=("attn = self.softmax(attn)", "mask.unsqueeze(1).unsqueeze(0)"),
        reference_lines=("relative_position_bias",),
    ),
    Bug(
        "scale missing",
        ("attn",),
        MODEL,
        "q = q * self.scale",
        "q = q * 1",
        WINDOWS,
        shows=("attn = attn + self._get_rel_pos_bias()", "q @ k.transpose(-2, -1)"),
    ),
    Bug(
        "heads before parts",
        ("attn",),
        MODEL,
        ".reshape(B_, N, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)",
        ".reshape(B_, N, self.num_heads, 3, -1).permute(3, 0, 2, 1, 4)",
    ),
    Bug("residual missing", ("",), MODEL, BLOCK_END, BLOCK_END.replace("x = x + ", "x = "), reference_lines=RESIDUAL),
    Bug("norm after the block", ("",), MODEL, BLOCK_END, "x = x + self.norm2(self.mlp(x))", reference_lines=RESIDUAL),
    Bug(
        "first norm skipped",
        ("",),
        MODEL,
        "self._attn(self.norm1(x))",
        "self._attn(x)",
        reference_lines=("self.layernorm_before(hidden_states)",),
    ),
    Bug(
        "tanh in the activation",
        ("layers.0.blocks.0.mlp", "layers.0.blocks.0.mlp.act"),
        MLP,
        "self.act = act_layer()",
        "self.act = nn.GELU(approximate='tanh')",
        "class Mlp",
        shows=("x = self.act(x)",),
        in_layer=False,
    ),
    Bug(
        "merging in another order",
        ("layers.1.downsample",),
        MODEL,
        ".permute(0, 1, 3, 4, 2, 5).flatten(3)",
        ".permute(0, 1, 3, 2, 4, 5).flatten(3)",
        in_layer=False,
    ),
    Bug(
        "merging without its norm",
        ("layers.1.downsample",),
        MODEL,
        "        x = self.norm(x)\n        x = self.reduction(x)",
        "        x = self.reduction(x)",
        in_layer=False,
        reference_lines=("self.norm(",),
    ),
    Bug(
        "norm of the patches missing",
        ("patch_embed",),
        PATCHES,
        "        x = self.norm(x)\n        return x",
        "        return x",
        "class PatchEmbed(nn.Module)",
        in_layer=False,
        reference_lines=("self.norm(embeddings)",),
    ),
    Bug("table mirrored", ("attn",), change=mirror_table),
)

PORT = Port(
    "timm-swin",
    "timm",
    ("timm.layers", MODEL),
    build,
    BUGS,
    "layers.0.blocks.1",
    {
        "layers.*.blocks.*": "swin.encoder.layers.*.blocks.*",
        "layers.*.blocks.*.attn": "swin.encoder.layers.*.blocks.*.attention",
    }
    | {f"layers.*.blocks.*.{ours}": f"swin.encoder.layers.*.blocks.*.{theirs}" for ours, theirs in NAMES.items()}
    | {"layers.1.downsample": "swin.encoder.layers.0.downsample", "norm": "swin.layernorm", "head.fc": "classifier"},
)

"""What continues series of numbers."""

from __future__ import annotations

import torch
from cases import Case, shaken, to_edit
from conversion import carried
from stubs import bare


class _Embedded(torch.nn.Module):
    """A forecaster up to what it forecasts from: patches, brought to one scale, through the layers."""

    def __init__(self, package, settings, blocks, length):
        super().__init__()
        self.package, self.length = package, length
        self.tokenizer = package._ResidualBlock(blocks)
        self.stacked_xf = torch.nn.ModuleList(package._Transformer(settings) for _ in range(3))

    def forward(self, series, mask):
        patches, masks = (each.unfold(1, self.length, self.length) for each in (series, mask))
        seen, middle, spread = (series.new_zeros(len(series)) for _ in range(3))
        scales = []
        for place in range(patches.shape[1]):
            (seen, middle, spread), _ = self.package._update_running_stats(
                seen, middle, spread, patches[:, place], masks[:, place]
            )
            scales.append((middle, spread))
        middles, spreads = (torch.stack(each, dim=1) for each in zip(*scales, strict=True))
        patches = self.package._revin(patches, middles, spreads)
        patches = torch.where(masks, 0.0, patches)
        hidden = self.tokenizer(torch.cat([patches, masks.to(patches.dtype)], dim=-1))
        for layer in self.stacked_xf:
            hidden = layer(hidden, masks[..., -1])
        return hidden


def timesfm(load):
    from transformers import TimesFm2_5Config, TimesFm2_5Model

    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "patch_length": 4, "head_dim": 8}
    config = TimesFm2_5Config(**sizes, num_attention_heads=4, num_key_value_heads=4)
    reference = shaken(TimesFm2_5Model(config))
    bare("darts", "darts.models", "darts.models.components")
    package = load("darts.models.components.timesfm2p5_submodels")
    settings = package._TransformerConfig(
        model_dims=32,
        hidden_dims=48,
        num_heads=4,
        attention_norm="rms",
        feedforward_norm="rms",
        qk_norm="rms",
        use_bias=False,
        use_rotary_position_embeddings=True,
        ff_activation="swish",
        fuse_qkv=True,
    )
    port = _Embedded(package, settings, package._ResidualBlockConfig(8, 32, 32, use_bias=True, activation="swish"), 4)
    names = [
        (r"^input_ff_layer\.input_layer", "tokenizer.hidden_layer"),
        (r"^input_ff_layer", "tokenizer"),
        (r"^layers", "stacked_xf"),
        (r"self_attn\.scaling", "attn.per_dim_scale.per_dim_scale"),
        (r"self_attn\.([qk])_norm\.weight", lambda m: f"attn.{'query' if m[1] == 'q' else 'key'}_ln.scale"),
        (r"self_attn\.o_proj", "attn.out"),
        (r"self_attn\.qkv", "attn.qkv_proj"),
        (r"mlp\.fc([12])", lambda m: f"ff{int(m[1]) - 1}"),
        (r"input_layernorm\.weight", "pre_attn_ln.scale"),
        (r"post_attention_layernorm\.weight", "post_attn_ln.scale"),
        (r"(pre|post)_feedforward_layernorm\.weight", r"\1_ff_ln.scale"),
    ]

    def cut(weights):
        for name in [name for name in weights if name.endswith("q_proj.weight")]:
            parts = [weights.pop(name.replace("q_proj", f"{kind}_proj")) for kind in "qkv"]
            weights[name.replace("q_proj", "qkv")] = torch.cat(parts)
        return weights

    series = torch.randn(2, 24, generator=torch.Generator().manual_seed(1)).cumsum(1) + 3
    mask = torch.zeros(2, 24, dtype=torch.bool)
    mask[1, :8] = True
    series = series.masked_fill(mask, 0.0)
    inputs = {"past_values": series, "past_values_padding": mask.long()}
    return Case(reference, carried(port, reference, names, cut), (), inputs, (series, mask))


PORTS = (to_edit("darts-timesfm-2.5", "darts", timesfm, "darts.models.components", "darts.logging"),)

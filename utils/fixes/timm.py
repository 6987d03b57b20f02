"""Fixes of timm."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, made, module_of, numbers

_TOKENS = {"x": numbers(2, 6, 32)}
_IMAGES = {"x": numbers(2, 3, 32, 32)}
_LARGER = {"x": numbers(2, 3, 48, 48)}
_WIDE = {"x": numbers(2, 3, 16, 64)}
_MAPS = {"x": numbers(2, 32, 4, 4)}
_VIT: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4, "num_classes": 10}
_DYNAMIC = {**_VIT, "img_size": (16, 64), "dynamic_img_size": True}


def _unfused(module: str, name: str, inputs: dict[str, Any], *args: Any, **given: Any) -> Build:
    def build(package: Any) -> Any:
        model = getattr(module_of(package, module), name)(*args, **given)
        model.fused_attn = False  # which the fixes are not about
        return model, inputs

    return build


def _rms_norm(package: Any) -> Any:
    norm = module_of(package, "layers.norm").RmsNorm
    vit = module_of(package, "models.vision_transformer").VisionTransformer
    return vit(**_VIT, norm_layer=norm), _IMAGES


def _flexible(package: Any) -> Any:
    flexible = module_of(package, "models.naflexvit")
    sizes = {"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 4}
    config = flexible.NaFlexVitCfg(**sizes, class_token=True, global_pool="map", pos_embed_grid_size=(4, 4))
    return flexible.NaFlexVit(config, num_classes=10), _IMAGES


def _channels_last(package: Any) -> Any:
    model = module_of(package, "models.convnext").ConvNeXt(depths=(1, 1, 1, 1), dims=(8, 16, 24, 32), num_classes=10)
    return model, {"x": numbers(2, 3, 64, 64).to(memory_format=torch.channels_last)}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("timm", commit, f"timm/{file}", build)


FIXES = (
    _fix("76d16698", "layers/mlp.py", _unfused("layers.mlp", "Mlp", _TOKENS, 32, 64, norm_layer=torch.nn.LayerNorm)),
    _fix(
        "2d734d90",
        "layers/attention2d.py",
        _unfused("layers.attention2d", "Attention2d", {"x": numbers(2, 32, 4, 5)}, 32, 32, num_heads=4),
    ),
    _fix(
        "4cca568b",
        "models/eva.py",
        _unfused(
            "models.eva", "EvaAttention", {**_TOKENS, "attn_mask": torch.arange(5, -1, -1).expand(2, 6) > 0}, 32, 4
        ),
    ),
    _fix(
        "fa0d31e8",
        "models/vision_transformer.py",
        made("models.vision_transformer", "VisionTransformer", _IMAGES, **_VIT, pos_embed="none", reg_tokens=2),
    ),
    _fix("4d9c87bb", "models/naflexvit.py", _flexible),
    _fix(
        "7f19a4cc",
        "layers/adaptive_avgmax_pool.py",
        made("layers.adaptive_avgmax_pool", "SelectAdaptivePool2d", _MAPS, pool_type="fastcatavgmax"),
    ),
    _fix(
        "2d315590",
        "models/rdnet.py",
        made(
            "models.rdnet",
            "RDNet",
            _IMAGES,
            num_classes=10,
            growth_rates=(8, 16),
            num_blocks_list=(2, 2),
            block_type=("Block", "BlockESE"),
            is_downsample_block=(None, True),
            num_init_features=16,
            head_norm_first=True,
        ),
    ),
    _fix(
        "6171e756",
        "layers/attention2d.py",
        made("layers.attention2d", "MultiQueryAttentionV2", _MAPS, 32, num_heads=4, key_dim=8, value_dim=8),
    ),
    _fix("15406a93", "layers/fast_norm.py", _rms_norm),
    _fix("eb94efb2", "models/eva.py", made("models.eva", "Eva", _LARGER, **_DYNAMIC)),
    _fix(
        "3ae3f442",
        "models/vision_transformer.py",
        made("models.vision_transformer", "VisionTransformer", _LARGER, **_DYNAMIC),
    ),
    _fix(
        "21808006",
        "layers/attention2d.py",
        made("layers.attention2d", "MultiQueryAttention2d", _MAPS, 32, num_heads=4, query_strides=2, padding="same"),
    ),
    _fix("738a9cd6", "models/convnext.py", _channels_last),
    _fix(
        "b81e79aa",
        "models/layers/bottleneck_attn.py",
        made("models.layers.bottleneck_attn", "BottleneckAttn", _MAPS, 32, feat_size=(4, 4)),
    ),
    _fix(
        "ea4f9407",
        "models/mobilenetv5.py",
        made(
            "models.mobilenetv5",
            "MobileNetV5MultiScaleFusionAdapter",
            {"inputs": [numbers(2, 8, 8, 8), numbers(2, 16, 4, 4)]},
            [8, 16],
            16,
            4,
        ),
    ),
    _fix(
        "33791c8f",
        "layers/pos_embed_sincos.py",
        made(
            "layers.pos_embed_sincos",
            "RotaryEmbeddingCat",
            {"x": numbers(2, 4, 16, 8)},
            8,
            feat_shape=[2, 8],
            in_pixels=False,
            grid_indexing="xy",
        ),
    ),
    _fix(
        "836dd990",
        "models/pit.py",
        made(
            "models.pit",
            "PoolingVisionTransformer",
            {"x": numbers(2, 3, 32, 32)},
            img_size=32,
            patch_size=8,
            stride=4,
            base_dims=(8, 8),
            depth=(1, 1),
            heads=(2, 4),
            num_classes=10,
            distilled=True,
        ),
    ),
    _fix(
        "3055411c",
        "models/vision_transformer_sam.py",
        made(
            "models.vision_transformer_sam",
            "VisionTransformerSAM",
            _WIDE,
            **{**_VIT, "img_size": (16, 64)},
            use_rel_pos=True,
            window_size=2,
            global_attn_indexes=(1,),
            neck_chans=16,
        ),
    ),
    _fix(
        "247c545f",
        "models/vision_transformer.py",
        made("models.vision_transformer", "ParallelScalingBlock", _TOKENS, 32, num_heads=4, qkv_bias=False),
    ),
    _fix(
        "b49630a1", "models/layers/lambda_layer.py", made("models.layers.lambda_layer", "LambdaLayer", _MAPS, 32, r=3)
    ),
    _fix(
        "fc8b8afb",
        "models/layers/evo_norm.py",
        made("models.layers.evo_norm", "EvoNormSample2d", {"x": numbers(2, 16, 6, 6)}, 16),
    ),
    _fix(
        "666de85c",
        "models/efficientnet_blocks.py",
        made("models.efficientnet_blocks", "EdgeResidual", _MAPS, 16, 24, exp_ratio=2.0, stride=2, se_ratio=0.25),
    ),
    _fix(
        "3c7822c6",
        "models/deit.py",
        made(
            "models.deit",
            "VisionTransformerDistilled",
            _LARGER,
            **_DYNAMIC,
        ),
    ),
)

"""Fixes of diffusers."""

from __future__ import annotations

from typing import Any

import torch

from fixes.fix import Build, Fix, made, module_of, numbers

_PROCESSORS = "attention_processor.py"
_BLOCK = {"dim": 32, "num_attention_heads": 4, "attention_head_dim": 8}


def _prx(package: Any) -> Any:
    sizes = {"hidden_size": 32, "num_heads": 4, "depth": 2, "context_in_dim": 32, "axes_dim": [4, 4]}
    model = package.PRXTransformer2DModel(in_channels=4, patch_size=2, **sizes)
    states = {"hidden_states": numbers(2, 4, 8, 8), "encoder_hidden_states": numbers(2, 5, 32)}
    return model, {**states, "timestep": torch.tensor([0.3, 0.7])}


def _aura(package: Any) -> Any:
    processors = module_of(package, "models.attention_processor")
    sizes = {"query_dim": 32, "added_kv_proj_dim": 32, "dim_head": 8, "heads": 4, "out_dim": 32}
    processor = processors.AuraFlowAttnProcessor2_0()
    model = processors.Attention(**sizes, qk_norm="rms_norm", context_pre_only=False, processor=processor)
    return model, {"hidden_states": numbers(2, 6, 32), "encoder_hidden_states": numbers(2, 3, 32, seed=4)}


def _sliced(package: Any) -> Any:
    processors = module_of(package, "models.attention_processor")
    processor = processors.SlicedAttnProcessor(slice_size=3)
    model = processors.Attention(query_dim=32, heads=4, dim_head=8, processor=processor)
    return model, {"hidden_states": numbers(2, 6, 32)}


def _frames(package: Any) -> Any:
    temporal = module_of(package, "models.transformers.transformer_temporal")
    sizes = {"num_attention_heads": 4, "attention_head_dim": 8, "in_channels": 32, "cross_attention_dim": 32}
    states = {"hidden_states": numbers(6, 32, 2, 2), "encoder_hidden_states": numbers(6, 1, 32, seed=4)}
    return temporal.TransformerSpatioTemporalModel(**sizes), {**states, "image_only_indicator": torch.zeros(2, 3)}


def _hunyuan(package: Any) -> Any:
    sizes = {"in_channels": 4, "out_channels": 4, "num_attention_heads": 2, "attention_head_dim": 16}
    layers = {"num_layers": 1, "num_single_layers": 1, "num_refiner_layers": 1, "rope_axes_dim": (4, 6, 6)}
    model = package.HunyuanVideoTransformer3DModel(**sizes, **layers, text_embed_dim=16, pooled_projection_dim=8)
    mask = torch.ones(2, 5)
    mask[1, 3:] = 0
    states = {"hidden_states": numbers(2, 4, 1, 4, 4), "encoder_hidden_states": numbers(2, 5, 16)}
    more = {"timestep": torch.tensor([300, 700]), "guidance": torch.tensor([1000.0, 2000.0])}
    return model, {**states, **more, "encoder_attention_mask": mask, "pooled_projections": numbers(2, 8)}


def _sana(package: Any) -> Any:
    sizes = {"num_attention_heads": 4, "attention_head_dim": 8, "num_layers": 2, "sample_size": 8, "in_channels": 4}
    cross = {"num_cross_attention_heads": 4, "cross_attention_head_dim": 8, "cross_attention_dim": 32}
    model = package.SanaTransformer2DModel(**sizes, **cross, out_channels=4, caption_channels=16)
    states = {"hidden_states": numbers(2, 4, 8, 8), "encoder_hidden_states": numbers(2, 5, 16)}
    return model, {**states, "timestep": torch.tensor([300, 700])}


def _controlled(package: Any) -> Any:
    sizes = {"sample_size": 8, "in_channels": 4, "num_layers": 6, "attention_head_dim": 8, "num_attention_heads": 4}
    widths = {"joint_attention_dim": 16, "caption_projection_dim": 32, "pooled_projection_dim": 8, "out_channels": 4}
    model = package.SD3Transformer2DModel(**sizes, **widths, pos_embed_max_size=8)
    states = {"hidden_states": numbers(2, 4, 8, 8), "encoder_hidden_states": numbers(2, 5, 16)}
    controls = [numbers(2, 16, 32, seed=seed) for seed in range(4)]
    more = {"pooled_projections": numbers(2, 8), "timestep": torch.tensor([300, 700])}
    return model, {**states, **more, "block_controlnet_hidden_states": controls}


def _wan(package: Any) -> Any:
    sizes = {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 4, "out_channels": 4, "num_layers": 2}
    model = package.WanTransformer3DModel(**sizes, text_dim=16, freq_dim=32, ffn_dim=32)
    states = {"hidden_states": numbers(2, 4, 2, 6, 6), "encoder_hidden_states": numbers(2, 5, 16)}
    return model, {**states, "timestep": torch.tensor([300, 700])}


def _asymmetric(package: Any) -> Any:
    widths = {"down_block_out_channels": (8, 8), "up_block_out_channels": (8, 8), "norm_num_groups": 4}
    blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    mask = torch.tensor([1.0] * 9 + [0.0] * 7).expand(2, 1, 16, 16)
    return package.AsymmetricAutoencoderKL(**widths, **blocks), {"sample": numbers(2, 3, 16, 16), "mask": mask}


def _flux_rope(package: Any) -> Any:
    positions = torch.arange(12.0).view(4, 3)
    return module_of(package, "models.embeddings").FluxPosEmbed(theta=500, axes_dim=[4, 6, 6]), {"ids": positions}


def _chunked(package: Any) -> Any:
    block = module_of(package, "models.attention").TemporalBasicTransformerBlock
    model = block(32, 32, 4, 8)
    model.set_chunk_feed_forward(1)
    return model, {"hidden_states": numbers(6, 4, 32), "num_frames": 3}


def _fix(commit: str, file: str, build: Build) -> Fix:
    return Fix("diffusers", commit, f"src/diffusers/models/{file}", build)


FIXES = (
    _fix("8d415a6f48", "transformers/transformer_prx.py", _prx),
    _fix("b9d6420447", _PROCESSORS, _aura),
    _fix("3b04cdc816", _PROCESSORS, _sliced),
    _fix("9bef9f4be7", "transformers/transformer_temporal.py", _frames),
    _fix("4a4afd5ece", "transformers/transformer_hunyuan_video.py", _hunyuan),
    _fix("7ab7c12173", "transformers/sana_transformer.py", _sana),
    _fix("96220390a2", "transformers/transformer_sd3.py", _controlled),
    _fix("ff263947ad", "transformers/transformer_wan.py", _wan),
    _fix("6be43bd855", "autoencoders/autoencoder_asym_kl.py", _asymmetric),
    _fix("3335e2262d", "embeddings.py", _flux_rope),
    _fix(
        "414d7c4991",
        "attention.py",
        made(
            "models.attention",
            "BasicTransformerBlock",
            {"hidden_states": numbers(2, 6, 32)},
            **_BLOCK,
            double_self_attention=True,
            positional_embeddings="sinusoidal",
            num_positional_embeddings=8,
        ),
    ),
    _fix("6414d4e4f9", "attention.py", _chunked),
    _fix("7747b588e2", "transformers/transformer_hunyuan_video.py", _hunyuan),
)

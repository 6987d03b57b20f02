"""Implementations of other people, each with the reference's weights; see ``utils/first_try.py``.

None of them was used to build the tool. ``Port.reloaded`` names the packages whose forward code is edited at random.
"""

from __future__ import annotations

import logging
import sys
from functools import partial
from types import SimpleNamespace

import torch
from cases import Case, shaken, to_edit, tokens
from conversion import carried, fused, picture


def qwen3_moe(load):
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        vocab_size=64,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=24,
        norm_topk_prob=True,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    reference = shaken(Qwen3MoeForCausalLM(config))
    sizes = {"vocab_size": 64, "context_length": 32, "emb_dim": 32, "n_heads": 4, "n_layers": 2, "head_dim": 8}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
    settings = {**sizes, **experts, "qk_norm": True, "n_kv_groups": 2, "rope_base": 10000.0, "dtype": torch.float32}
    port = load("llms_from_scratch.qwen3").Qwen3Model(settings).to_empty(device="cpu")
    port.cos, port.sin = load("llms_from_scratch.qwen3").compute_rope_params(8, 10000.0, 32)  # no weights, so emptied
    names = [
        (r"^model\.embed_tokens", "tok_emb"),
        (r"^model\.norm\.weight", "final_norm.scale"),
        (r"^lm_head", "out_head"),
        (r"^model\.layers", "trf_blocks"),
        (r"input_layernorm\.weight", "norm1.scale"),
        (r"post_attention_layernorm\.weight", "norm2.scale"),
        (r"self_attn\.o_proj", "att.out_proj"),
        (r"self_attn\.(q|k)_norm\.weight", r"att.\1_norm.scale"),
        (r"self_attn\.q_proj", "att.W_query"),
        (r"self_attn\.k_proj", "att.W_key"),
        (r"self_attn\.v_proj", "att.W_value"),
        (r"mlp\.", "ff."),
    ]

    def cut(weights):
        for name in [name for name in weights if "experts" in name]:
            parts = weights.pop(name).chunk(2, 1) if "gate_up" in name else (weights.pop(name),)
            at = name.partition("experts")[0]
            for place, part in enumerate(parts, 1 if "gate_up" in name else 3):
                weights |= {f"{at}fc{place}.{n}.weight": each for n, each in enumerate(part)}
        return weights

    ids = tokens(64)
    return Case(reference, carried(port, reference, names, cut), (), {"input_ids": ids, "use_cache": False}, (ids,))


def clip_text(load):
    from transformers import CLIPTextConfig, CLIPTextModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    config = CLIPTextConfig(**sizes, vocab_size=64, max_position_embeddings=16, eos_token_id=2, bos_token_id=1)
    reference = shaken(CLIPTextModel(config))
    layers = load("refiners.fluxion.layers")
    port = load("refiners.foundationals.clip.text_encoder").CLIPTextEncoder(
        embedding_dim=32,
        max_sequence_length=16,
        vocabulary_size=64,
        num_layers=2,
        num_attention_heads=4,
        feedforward_dim=64,
        use_quick_gelu=True,
        tokenizer=layers.Identity(),
    )
    names = [
        (r"^text_model\.", ""),
        (r"^embeddings\.token_embedding", "Sum.TokenEncoder"),
        (r"^embeddings\.position_embedding", "Sum.PositionalEncoder.Embedding"),
        (r"^encoder\.layers\.(\d)", lambda m: f"TransformerLayer_{int(m[1]) + 1}"),
        (r"layer_norm(\d)", r"Residual_\1.LayerNorm"),
        (r"self_attn\.out_proj", "Residual_1.SelfAttention.Linear"),
        (r"self_attn\.([qkv])_proj", lambda m: f"Residual_1.SelfAttention.Distribute.Linear_{'qkv'.index(m[1]) + 1}"),
        (r"mlp\.fc(\d)", r"Residual_2.FeedForward.Linear_\1"),
        (r"^final_layer_norm", "LayerNorm"),
    ]
    ids = tokens(64)
    return Case(reference, carried(port, reference, names), (), {"input_ids": ids}, (ids,))


def fnet(load):
    from transformers import FNetConfig, FNetModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 64}
    sizes |= {"max_position_embeddings": 16, "type_vocab_size": 2, "pad_token_id": 0, "layer_norm_eps": 1e-12}
    reference = shaken(FNetModel(FNetConfig(**sizes, hidden_act="gelu")))
    port = load("fnet").FNet({**sizes, "embedding_size": 32, "dropout_rate": 0.0, "fourier": "fft"})
    names = [
        (r"embeddings\.LayerNorm", "embeddings.layer_norm"),
        (r"embeddings\.projection", "embeddings.hidden_mapping"),
        (r"fourier\.output\.LayerNorm", "mixing_layer_norm"),
        (r"intermediate\.dense", "feed_forward"),
        (r"output\.dense", "output_dense"),
        (r"output\.LayerNorm", "output_layer_norm"),
    ]
    ids, kinds = tokens(64), torch.arange(12).ge(5).long().expand(2, 12)
    inputs = {"input_ids": ids, "token_type_ids": kinds}
    return Case(reference, carried(port, reference, names), (), inputs, (ids, kinds))


def experienced(model):
    """Return a model whose running statistics are none of a new one."""
    generator = torch.Generator().manual_seed(2)
    for name, buffer in model.named_buffers():
        if "running" in name:
            buffer.add_(torch.rand(buffer.shape, generator=generator))
    return model


def conditional_detr(load):
    from transformers import ConditionalDetrConfig, ConditionalDetrForObjectDetection, ResNetConfig

    backbone = ResNetConfig(
        embedding_size=8, hidden_sizes=[8, 16], depths=[2, 2], layer_type="basic", out_features=["stage2"]
    )
    sizes = {"encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    sizes |= {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "d_model": 32, "num_queries": 6, "num_labels": 5}
    reference = experienced(
        shaken(ConditionalDetrForObjectDetection(ConditionalDetrConfig(backbone_config=backbone, **sizes)))
    )
    package = load("mmdet.models.detectors.conditional_detr")
    layers = load("mmdet.models.layers.transformer.conditional_detr_layers")
    layers.coordinate_to_encoding = partial(layers.coordinate_to_encoding, num_feats=16)  # the package has 128 always
    attention, between = {"embed_dims": 32, "num_heads": 4}, {"embed_dims": 32, "feedforward_channels": 48}
    port = package.ConditionalDETR(
        backbone={
            "type": load("mmdet.models.backbones.resnet").ResNet,
            "depth": 18,
            "num_stages": 2,
            "strides": (1, 2),
            "dilations": (1, 1),
            "out_indices": (1,),
            "stem_channels": 8,
            "base_channels": 8,
        },
        neck={
            "type": load("mmdet.models.necks.channel_mapper").ChannelMapper,
            "in_channels": [16],
            "kernel_size": 1,
            "out_channels": 32,
            "act_cfg": None,
        },
        encoder={"num_layers": 1, "layer_cfg": {"self_attn_cfg": attention, "ffn_cfg": between}},
        decoder={
            "num_layers": 2,
            "return_intermediate": False,
            "layer_cfg": {
                "self_attn_cfg": attention,
                "cross_attn_cfg": {**attention, "cross_attn": True},
                "ffn_cfg": between,
            },
        },
        positional_encoding={"num_feats": 16, "normalize": True},
        bbox_head={
            "type": load("mmdet.models.dense_heads.conditional_detr_head").ConditionalDETRHead,
            "num_classes": 5,
            "embed_dims": 32,
            "loss_cls": {"type": load("mmdet.models.losses").FocalLoss, "use_sigmoid": True},
            "loss_bbox": {"type": load("mmdet.models.losses").L1Loss},
            "loss_iou": {"type": load("mmdet.models.losses").GIoULoss},
        },
        num_queries=6,
    )
    names = [
        (r"^model\.", ""),
        (r"^backbone\.model\.embedder\.embedder\.convolution", "backbone.conv1"),
        (r"^backbone\.model\.embedder\.embedder\.normalization", "backbone.bn1"),
        (r"^backbone\.model\.encoder\.stages\.(\d)\.layers", lambda m: f"backbone.layer{int(m[1]) + 1}"),
        (r"layer\.(\d)\.convolution", lambda m: f"conv{int(m[1]) + 1}"),
        (r"layer\.(\d)\.normalization", lambda m: f"bn{int(m[1]) + 1}"),
        (r"shortcut\.convolution", "downsample.0"),
        (r"shortcut\.normalization", "downsample.1"),
        (r"^query_position_embeddings", "query_embedding"),
        (r"^input_projection", "neck.convs.0.conv"),
        (r"^encoder(.*)self_attn\.in_proj\.", r"encoder\1self_attn.attn.in_proj_"),
        (r"^encoder(.*)self_attn\.o_proj", r"encoder\1self_attn.attn.out_proj"),
        (r"^decoder(.*)(q|k)_(content|pos|pos_sine)_proj", r"decoder\1\2\3_proj"),
        (r"o_proj", "out_proj"),
        (r"encoder_attn_layer_norm", "norms.1"),
        (r"encoder_attn", "cross_attn"),
        (r"self_attn_layer_norm", "norms.0"),
        (r"^encoder(.*)final_layer_norm", r"encoder\1norms.1"),
        (r"final_layer_norm", "norms.2"),
        (r"mlp\.fc1", "ffn.layers.0.0"),
        (r"mlp\.fc2", "ffn.layers.1"),
        (r"decoder\.layernorm", "decoder.post_norm"),
        (r"^class_labels_classifier", "bbox_head.fc_cls"),
        (r"^bbox_predictor\.layers\.0", "bbox_head.reg_ffn.layers.0.0"),
        (r"^bbox_predictor\.layers\.1", "bbox_head.reg_ffn.layers.1"),
        (r"^bbox_predictor\.layers\.2", "bbox_head.fc_reg"),
    ]
    cut = lambda weights: fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.in_proj")  # noqa: E731
    pixels, seen = picture(32), torch.ones(2, 32, 32, dtype=torch.long)
    seen[1, :, 24:] = 0
    samples = [SimpleNamespace(batch_input_shape=(32, 32), img_shape=(32, width)) for width in (32, 24)]
    return Case(
        reference,
        carried(port, reference, names, cut),
        (),
        {"pixel_values": pixels, "pixel_mask": seen},
        (pixels, samples),
        arranged=lambda out: out[0][-1],
        main=lambda out: out.logits,
    )


def clap_audio(load):
    from transformers import ClapAudioConfig, ClapAudioModel

    config = ClapAudioConfig(
        window_size=4,
        num_mel_bins=16,
        spec_size=32,
        depths=[2, 2],
        num_attention_heads=[2, 4],
        patch_embeds_hidden_size=16,
        hidden_size=32,
        enable_fusion=True,
        fusion_type="aff_2d",
    )
    reference = experienced(shaken(ClapAudioModel(config)))
    sys.modules["laion_clap.hook"] = SimpleNamespace(CLAP_Module=None)  # it asks the hub for tokenizers
    sound = SimpleNamespace(mel_bins=16, window_size=64, hop_size=16, sample_rate=16000, fmin=50, fmax=8000)
    port = load("laion_clap.clap_module.htsat").HTSAT_Swin_Transformer(
        spec_size=32,
        patch_stride=(4, 4),
        num_classes=5,
        embed_dim=16,
        depths=[2, 2],
        num_heads=[2, 4],
        window_size=4,
        config=sound,
        enable_fusion=True,
        fusion_type="aff_2d",
    )
    names = [
        (r"^audio_encoder\.", ""),
        (r"^batch_norm", "bn0"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"attention\.self\.", "attn."),
        (r"attention\.output\.dense", "attn.proj"),
        (r"intermediate\.dense", "mlp.fc1"),
        (r"output\.dense", "mlp.fc2"),
    ]
    kinds = [f"attention.self.{kind}" for kind in ("query", "key", "value")]
    cut = lambda weights: fused(weights, kinds, "attention.self.qkv")  # noqa: E731
    mel, longer = torch.randn(2, 4, 60, 16, generator=torch.Generator().manual_seed(1)), torch.tensor([[True], [False]])
    return Case(
        reference,
        carried(port, reference, names, cut, kept=("tscam_conv", "head")),
        (),
        {"input_features": mel, "is_longer": longer},
        ({"mel_fusion": mel, "longer": longer},),
        arranged=lambda out: out["embedding"],
        main=lambda out: out.pooler_output,
    )


def d_fine(load):
    from transformers import DFineConfig, DFineForObjectDetection, HGNetV2Config

    backbone = HGNetV2Config(
        stem_channels=[3, 8, 8],
        stage_in_channels=[8, 16, 16],
        stage_mid_channels=[8, 8, 8],
        stage_out_channels=[16, 16, 32],
        stage_num_blocks=[1, 1, 1],
        stage_downsample=[False, True, True],
        stage_downsample_strides=[2, 2, 2],
        stage_light_block=[False, False, True],
        stage_kernel_size=[3, 3, 5],
        stage_numb_of_layers=[2, 2, 2],
        depths=[1, 1, 1],
        hidden_sizes=[16, 16, 32],
        out_features=["stage2", "stage3"],
        use_learnable_affine_block=True,
    )
    config = DFineConfig(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[16, 32],
        feat_strides=[8, 16],
        encoder_layers=1,
        encoder_ffn_dim=48,
        encoder_attention_heads=4,
        encode_proj_layers=[1],
        d_model=32,
        num_queries=6,
        decoder_in_channels=[32, 32],
        decoder_ffn_dim=48,
        num_feature_levels=2,
        decoder_n_points=[3, 3],
        decoder_layers=2,
        decoder_attention_heads=4,
        max_num_bins=8,
        hidden_expansion=0.5,
        depth_mult=0.34,
        num_labels=5,
    )
    reference = experienced(shaken(DFineForObjectDetection(config)))
    package = load("easydetect.nn.ednet")
    load("easydetect.nn.hgnetv2").HGNetv2.arch_configs["tiny"] = {
        "stem_channels": [3, 8, 8],
        "stage_config": {
            "stage1": [8, 8, 16, 1, False, False, 3, 2],
            "stage2": [16, 8, 16, 1, True, False, 3, 2],
            "stage3": [16, 8, 32, 1, True, True, 5, 2],
        },
        "url": "",
    }
    sizes = {"feat_strides": [8, 16], "hidden_dim": 32, "dim_feedforward": 48, "nhead": 4}
    package.SIZE_CFG["tiny"] = {
        "backbone": {"name": "tiny", "return_idx": [1, 2], "freeze_at": -1, "freeze_norm": False, "use_lab": True},
        "encoder": {**sizes, "in_channels": [16, 32], "use_encoder_idx": [1], "expansion": 0.5, "depth_mult": 0.34},
        "decoder": {
            **sizes,
            "feat_channels": [32, 32],
            "num_levels": 2,
            "num_layers": 2,
            "num_points": [3, 3],
            "num_queries": 6,
            "reg_max": 8,
            "reg_scale": 4.0,
        },
    }
    port = package.EDNet("tiny", 5, pretrained_backbone=False)
    names = [
        (r"^model\.backbone\.model\.embedder", "backbone.stem"),
        (r"^model\.backbone\.model\.encoder", "backbone"),
        (r"convolution", "conv"),
        (r"normalization", "bn"),
        (r"^model\.encoder_input_proj\.(\d)\.0", r"encoder.input_proj.\1.conv"),
        (r"^model\.encoder_input_proj\.(\d)\.1", r"encoder.input_proj.\1.norm"),
        (r"^model\.encoder\.aifi", "encoder.encoder"),
        (r"^model\.encoder", "encoder"),
        (r"_blocks\.(\d)\.csp_rep(\d)", lambda m: f"_blocks.{m[1]}.cv{int(m[2]) + 1}.0"),
        (r"_blocks\.(\d)\.conv(1|4)", r"_blocks.\1.cv\2"),
        (r"_blocks\.(\d)\.conv(2|3)", r"_blocks.\1.cv\2.1"),
        (r"downsample_convs\.(\d)\.conv", r"downsample_convs.\1.0.cv"),
        (r"^(?:model\.decoder\.)?class_embed", "decoder.dec_score_head"),
        (r"^(?:model\.decoder\.)?bbox_embed", "decoder.dec_bbox_head"),
        (r"^model\.decoder\.(query_pos|pre_bbox)_head", r"decoder.\1_head"),
        (r"^model\.decoder\.", "decoder.decoder."),
        (r"^model\.enc_output\.0", "decoder.enc_output.proj"),
        (r"^model\.enc_output\.1", "decoder.enc_output.norm"),
        (r"^model\.", "decoder."),
        (r"self_attn\.in_proj\.", "self_attn.in_proj_"),
        (r"o_proj", "out_proj"),
        (r"encoder_attn", "cross_attn"),
        (r"self_attn_layer_norm", "norm1"),
        (r"^encoder(.*)final_layer_norm", r"encoder\1norm2"),
        (r"final_layer_norm", "norm3"),
        (r"mlp\.layers\.0", "linear1"),
        (r"mlp\.layers\.1", "linear2"),
    ]

    def cut(weights):
        weights |= {f"decoder.{name}": weights[f"model.decoder.{name}"] for name in ("up", "reg_scale")}
        return fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.in_proj")

    pixels = picture(64)
    return Case(
        reference,
        carried(port, reference, names, cut),
        (),
        {"pixel_values": pixels},
        (pixels,),
        arranged=lambda out: out["pred_logits"],
        main=lambda out: out.logits,
    )


def beit_upernet(load):
    from transformers import BeitConfig, BeitForSemanticSegmentation

    config = BeitConfig(
        hidden_size=32,
        num_hidden_layers=5,  # what comes out of the last is not used
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        out_indices=[2, 3, 4, 5],
        num_labels=5,
        pool_scales=[1, 2],
        use_auxiliary_head=False,
        use_relative_position_bias=True,
        use_mask_token=False,
        layer_norm_eps=1e-5,
    )
    reference = experienced(shaken(BeitForSemanticSegmentation(config)))
    models, norm = load("mmseg.models"), {"type": "BN"}
    port = load("mmseg.models.segmentors.encoder_decoder").EncoderDecoder(
        backbone={
            "type": models.BEiT,
            "img_size": (32, 32),
            "patch_size": 8,
            "embed_dims": 32,
            "num_layers": 4,
            "num_heads": 4,
            "mlp_ratio": 2,
            "out_indices": (0, 1, 2, 3),
        },
        neck={"type": models.Feature2Pyramid, "embed_dim": 32, "norm_cfg": norm},
        decode_head={
            "type": models.UPerHead,
            "in_channels": [32] * 4,
            "in_index": [0, 1, 2, 3],
            "pool_scales": (1, 2),
            "channels": 32,
            "num_classes": 5,
            "norm_cfg": norm,
            "align_corners": False,
        },
    )
    names = [
        (r"^beit\.embeddings\.cls_token", "backbone.cls_token"),
        (r"^beit\.embeddings\.patch_embeddings", "backbone.patch_embed"),
        (r"^beit\.", "backbone."),
        (r"lambda", "gamma"),
        (r"attention\.(q|v)_proj\.bias", r"attn.\1_bias"),
        (r"attention\.o_proj", "attn.proj"),
        (r"attention\.", "attn."),
        (r"relative_position_bias\.", "attn."),
        (r"layernorm_before", "ln1"),
        (r"layernorm_after", "ln2"),
        (r"mlp\.fc1", "ffn.layers.0.0"),
        (r"mlp\.fc2", "ffn.layers.1"),
        (r"^fpn\.fpn1\.conv_transpose1", "neck.upsample_4x.0"),
        (r"^fpn\.fpn1\.normalization", "neck.upsample_4x.1"),
        (r"^fpn\.fpn1\.conv_transpose2", "neck.upsample_4x.3"),
        (r"^fpn\.fpn2", "neck.upsample_2x.0"),
        (r"convolution", "conv"),
        (r"normalization", "bn"),
        (r"psp_modules\.blocks\.(\d)\.conv\.", r"psp_modules.\1.1."),
        (r"psp_bottleneck", "bottleneck"),
        (r"classifier", "conv_seg"),
    ]

    def cut(weights):
        for name in [name for name in weights if "q_proj.weight" in name]:
            parts = [weights.pop(name.replace("q_proj", f"{kind}_proj")) for kind in "qkv"]
            weights[name.replace("q_proj", "qkv")] = torch.cat(parts)
        return weights

    pixels = picture(32)
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))


def grounding_dino(load):
    from transformers import GroundingDinoConfig
    from transformers.models.grounding_dino.modeling_grounding_dino import GroundingDinoEncoder

    config = GroundingDinoConfig(
        d_model=32,
        encoder_layers=2,
        encoder_ffn_dim=64,
        encoder_attention_heads=4,
        num_feature_levels=2,
        encoder_n_points=2,
    )
    reference = shaken(GroundingDinoEncoder(config))
    port = (
        load("groundingdino.models.GroundingDINO.transformer")
        .Transformer(
            d_model=32,
            nhead=4,
            num_encoder_layers=2,
            num_decoder_layers=0,
            dim_feedforward=64,
            num_feature_levels=2,
            enc_n_points=2,
            learnable_tgt_init=True,
            use_text_enhancer=True,
            use_fusion_layer=True,
            text_dropout=0.0,
            fusion_dropout=0.0,
            return_intermediate_dec=True,
        )
        .encoder
    )
    names = [
        (r"^layers\.(\d)\.text_enhancer_layer", r"text_layers.\1"),
        (r"^layers\.(\d)\.fusion_layer", r"fusion_layers.\1"),
        (r"^layers\.(\d)\.deformable_layer", r"layers.\1"),
        (r"self_attn\.in_proj\.", "self_attn.in_proj_"),
        (r"fc(\d)", r"linear\1"),
        (r"layer_norm_before|self_attn_layer_norm", "norm1"),
        (r"layer_norm_after|final_layer_norm", "norm2"),
        (r"vision_param", "gamma_v"),
        (r"text_param", "gamma_l"),
        (r"vision", "v"),
        (r"fusion_layers(.*)text", r"fusion_layers\1l"),
    ]
    cut = lambda weights: fused(  # noqa: E731
        weights, [f"self_attn.{kind}" for kind in ("query", "key", "value")], "self_attn.in_proj"
    )
    generator = torch.Generator().manual_seed(1)
    seen, placed = (torch.randn(2, 20, 32, generator=generator) for _ in range(2))
    said, spoken = (torch.randn(2, 7, 32, generator=generator) for _ in range(2))
    unseen, unsaid = torch.zeros(2, 20, dtype=torch.bool), torch.zeros(2, 7, dtype=torch.bool)
    unseen[1, [3, 7, 11, 15, 17, 19]] = unsaid[1, 5:] = True
    words = torch.block_diag(torch.ones(3, 3), torch.ones(4, 4)).bool().expand(2, 7, 7)
    ratios = torch.tensor([[[1.0, 1.0], [1.0, 1.0]], [[0.75, 1.0], [0.5, 1.0]]])
    shapes, starts = torch.tensor([[4, 4], [2, 2]]), torch.tensor([0, 16])
    both = {"spatial_shapes": shapes, "level_start_index": starts, "valid_ratios": ratios}
    both["text_attention_mask"] = unsaid
    theirs = {"vision_features": seen, "vision_attention_mask": unseen, "vision_position_embedding": placed}
    theirs |= {"spatial_shapes_list": [(4, 4), (2, 2)], "text_features": said, "text_position_embedding": spoken}
    theirs["text_self_attention_masks"] = ~words  # its model hands them on the other way round
    own = {"src": seen, "pos": placed, "key_padding_mask": unseen, "memory_text": said, "pos_text": spoken}
    own["text_self_attention_masks"] = words
    return Case(reference, carried(port, reference, names, cut), (), {**theirs, **both}, (), {**own, **both})


def patchtst(load):
    from transformers import PatchTSTConfig, PatchTSTModel

    config = PatchTSTConfig(
        num_input_channels=16,  # the port takes as many channels as features
        context_length=24,
        patch_length=6,
        patch_stride=3,
        num_hidden_layers=2,
        d_model=16,
        num_attention_heads=4,
        ffn_dim=32,
        norm_type="layernorm",
        norm_eps=1e-6,
        activation_function="relu",
        pre_norm=False,
        use_cls_token=False,
        scaling=None,
        do_mask_input=False,
        positional_encoding_type="random",
    )
    reference = shaken(PatchTSTModel(config))
    with torch.no_grad():  # the port has none
        for name, parameter in reference.named_parameters():
            if "input_embedding.bias" in name or ("self_attn" in name and name.endswith("bias")):
                parameter.zero_()
    sys.modules["pypots.utils.logging"] = SimpleNamespace(logger=logging.getLogger("pypots"), logger_creator=None)
    port = torch.nn.Sequential(
        load("pypots.nn.modules.patchtst").PatchEmbedding(16, 6, 3, 0, 0.0),
        load("pypots.nn.modules.patchtst").PatchtstEncoder(2, 16, 4, 4, 4, 32, 0.0, 0.0),
    )
    names = [
        (r"^encoder\.embedder\.input_embedding", "0.value_embedding"),
        (r"^encoder\.positional_encoder\.position_enc", "0.positional_embedding.pos_table"),
        (r"^encoder\.layers", "1.encoder.enc_layer_stack"),
        (r"self_attn\.([qkv])_proj", r"slf_attn.w_\1s"),
        (r"self_attn\.out_proj", "slf_attn.fc"),
        (r"norm_sublayer1", "layer_norm"),
        (r"norm_sublayer3", "pos_ffn.layer_norm"),
        (r"ff\.0", "pos_ffn.linear_1"),
        (r"ff\.3", "pos_ffn.linear_2"),
    ]

    def cut(weights):  # the port's table is longer
        at = "encoder.positional_encoder.position_enc"
        return {**weights, at: torch.nn.functional.pad(weights[at], (0, 0, 0, 1000 - len(weights[at])))[None]}

    series = torch.randn(2, 24, 16, generator=torch.Generator().manual_seed(1)).cumsum(1)
    port = carried(port, reference, names, cut)
    turned = lambda out: out[0].transpose(2, 3)  # noqa: E731
    return Case(reference, port, (), {"past_values": series}, (series.transpose(1, 2),), arranged=turned)


def mixtral(load):
    from transformers import MixtralConfig, MixtralModel

    config = MixtralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        num_local_experts=4,
        num_experts_per_tok=2,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    reference = shaken(MixtralModel(config))
    settings = load("eole.config.models").TransformerDecoderConfig(
        hidden_size=32,
        layers=2,
        heads=4,
        heads_kv=2,
        transformer_ff=48,
        moe_transformer_ff=48,
        num_experts=4,
        num_experts_per_tok=2,
        moe_softmax_after=True,
        mlp_activation_fn="gated-silu",
        layer_norm="rms",
        norm_eps=1e-5,
        position_encoding_type="Rotary",
        rope_config={"rotary_interleave": False, "rotary_theta": 10000},
    )
    running = SimpleNamespace(dropout=[0.0], attention_dropout=[0.0], parallel_gpu=1, self_attn_backend="pytorch")
    port = load("eole.decoders.transformer").TransformerDecoder(settings, running)
    names = [
        (r"^layers", "transformer_layers"),
        (r"^norm", "layer_norm"),
        (r"self_attn\.q_proj", "self_attn.linear_query"),
        (r"self_attn\.k_proj", "self_attn.linear_keys"),
        (r"self_attn\.v_proj", "self_attn.linear_values"),
        (r"self_attn\.o_proj", "self_attn.final_linear"),
    ]

    def cut(weights):
        for name in [name for name in weights if "experts" in name]:
            at, is_down = name.partition("experts")[0], name.endswith("down_proj")
            for place, both in enumerate(weights.pop(name)):
                parts = (
                    {"down_proj": both}
                    if is_down
                    else dict(zip(("gate_up_proj", "up_proj"), both.chunk(2), strict=True))
                )
                weights |= {f"{at}experts.{place}.{part}.weight": each for part, each in parts.items()}
        return weights

    embedded = torch.randn(2, 12, 32, generator=torch.Generator().manual_seed(1))
    hidden = torch.zeros(2, 1, 12, dtype=torch.bool)
    port = carried(port, reference, names, cut)
    return Case(
        reference,
        port,
        (),
        {"inputs_embeds": embedded, "use_cache": False},
        (embedded,),
        {"tgt_pad_mask": hidden},
    )


def encodec(load):
    from transformers import EncodecConfig, EncodecModel

    config = EncodecConfig(
        sampling_rate=1600,
        num_filters=4,
        upsampling_ratios=[4, 2],
        hidden_size=16,
        codebook_size=16,
        codebook_dim=16,
        target_bandwidths=[2.4],
        num_lstm_layers=1,
    )
    reference = shaken(EncodecModel(config))
    generator = torch.Generator().manual_seed(2)
    for name, buffer in reference.named_buffers():
        if name.endswith("embed"):
            buffer.copy_(torch.randn(buffer.shape, generator=generator))
    sys.modules["audiocraft.models.multibanddiffusion"] = SimpleNamespace(MultiBandDiffusion=None)  # it takes a trainer
    sizes = {"dimension": 16, "n_filters": 4, "n_residual_layers": 1, "ratios": [4, 2], "norm": "weight_norm"}
    sizes |= {"causal": True, "lstm": 1, "true_skip": False}
    sys.modules["xformers"] = SimpleNamespace(ops=None)  # its attention takes it, and this model has none
    seanet, books = load("audiocraft.modules.seanet"), load("audiocraft.quantization")
    del sys.modules["xformers"]  # another package looks whether it is there
    port = load("audiocraft.models.encodec").EncodecModel(
        seanet.SEANetEncoder(**sizes),
        seanet.SEANetDecoder(**sizes),
        books.ResidualVectorQuantizer(dimension=16, n_q=3, bins=16, kmeans_init=False),
        frame_rate=200,
        sample_rate=1600,
        channels=1,
        causal=True,
    )
    names = [
        (r"^(en|de)coder\.layers", r"\1coder.model"),
        (r"^decoder\.model\.(3|6)\.conv\.", r"decoder.model.\1.convtr.convtr."),
        (r"\.conv\.", ".conv.conv."),
        (r"parametrizations\.weight\.original0", "weight_g"),
        (r"parametrizations\.weight\.original1", "weight_v"),
        (r"^quantizer\.layers\.(\d)\.codebook", r"quantizer.vq.layers.\1._codebook"),
    ]
    sound = torch.randn(2, 1, 66, generator=torch.Generator().manual_seed(1))
    port = carried(port, reference, names)
    return Case(
        reference,
        port,
        (),
        {"input_values": sound},
        (sound,),
        arranged=lambda out: out.x,
        main=lambda out: out.audio_values,
    )


def t5(load):
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "vocab_size": 64}
    sizes |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 128}
    config = T5Config(**sizes, feed_forward_proj="gated-gelu", decoder_start_token_id=0)
    reference = shaken(T5ForConditionalGeneration(config))
    sys.modules["allennlp.common.push_to_hf"] = SimpleNamespace(push_to_hf=None)  # of an older hub
    package, attention = load("allennlp.modules.transformer.t5"), load("allennlp.modules.transformer.attention_module")
    later = lambda made: SimpleNamespace(construct=made)  # noqa: E731 - its own imports every trainer
    sizes = {"hidden_size": 32, "key_value_proj_dim": 8, "num_heads": 4}
    blocks = {
        "num_blocks": 2,
        "block_self_attention": later(
            lambda **more: attention.T5Attention(**sizes, **more, relative_attention_num_buckets=8)
        ),
        "block_ff": later(
            lambda: package.T5LayerFF(package.T5DenseGatedGeluDense(32, 64), package.T5LayerNorm(32)),
        ),
    }
    across = later(lambda **more: attention.T5Attention(**sizes, **more))
    port = package.T5(
        encoder=later(
            lambda token_embeddings, **_: package.T5EncoderStack.basic_encoder(
                token_embeddings, **blocks, final_layer_norm=package.T5LayerNorm(32)
            )
        ),
        decoder=later(
            lambda token_embeddings, **_: package.T5DecoderStack.basic_decoder(
                token_embeddings, **blocks, block_cross_attention=across, final_layer_norm=package.T5LayerNorm(32)
            )
        ),
        vocab_size=64,
        model_dim=32,
        beam_search=later(lambda **_: SimpleNamespace(search=lambda *_: (None, None))),
    )
    names = [
        (r"shared|embed_tokens", "token_embeddings"),
        (r"\.block\.", ".blocks."),
        (r"SelfAttention", "self_attention"),
        (r"EncDecAttention", "enc_dec_attention"),
        (r"DenseReluDense", "ff_proj"),
        (r"attention\.q\.", "attention.query."),
        (r"attention\.k\.", "attention.key."),
        (r"attention\.v\.", "attention.value."),
        (r"attention\.o\.", "attention.output."),
    ]
    ids, seen, said = tokens(64), torch.ones(2, 12, dtype=torch.long), tokens(64).flip(1)[:, :8].contiguous()
    ids[1, 9:], seen[1, 9:] = 0, 0
    inputs = {"input_ids": ids, "attention_mask": seen, "labels": said}
    return Case(
        reference,
        carried(port, reference, names),
        (),
        {**inputs, "use_cache": False},
        (),
        {**inputs, "attention_mask": seen.bool()},
        arranged=lambda out: out.logits,
        main=lambda out: out.logits,
    )


def mamba2(load):
    from transformers import Mamba2Config
    from transformers.models.mamba2.modeling_mamba2 import Mamba2Mixer

    config = Mamba2Config(
        hidden_size=32,
        expand=2,
        num_heads=8,
        head_dim=8,
        state_size=8,
        n_groups=2,
        conv_kernel=4,
        chunk_size=4,
        num_hidden_layers=1,
        vocab_size=64,
    )
    reference = shaken(Mamba2Mixer(config, layer_idx=0))
    settings = load("niverel_mamba").Mamba2Config(
        d_model=32, d_state=8, d_conv=4, expand=2, headdim=8, ngroups=2, chunk_size=4, norm_before_gate=False
    )
    port = load("niverel_mamba.torch_ops").Mamba2(settings)
    hidden = torch.randn(2, 14, 32, generator=torch.Generator().manual_seed(1))
    port = carried(port, reference, [(r"^", "")])
    return Case(reference, port, (), {"hidden_states": hidden}, (hidden,))


PORTS = (
    to_edit("allennlp-t5", "allennlp", t5, "allennlp.modules", "allennlp.nn"),
    to_edit(
        "audiocraft-encodec",
        "audiocraft",
        encodec,
        "audiocraft.models",
        "audiocraft.modules",
        "audiocraft.quantization",
    ),
    to_edit("easydetect-d-fine", "easydetect", d_fine, "easydetect.nn"),
    to_edit("eole-mixtral", "eole", mixtral),
    to_edit("fnet", "fnet", fnet),
    to_edit("groundingdino-encoder", "groundingdino", grounding_dino),
    to_edit("laion-clap-audio", "laion_clap", clap_audio),
    to_edit("llms-from-scratch-qwen3-moe", "llms_from_scratch", qwen3_moe),
    to_edit("mmdet-conditional-detr", "mmdet", conditional_detr, "mmdet", "mmcv", "mmengine"),
    to_edit("mmseg-beit", "mmseg", beit_upernet, "mmseg", "mmcv", "mmengine"),
    to_edit("niverel-mamba2", "niverel_mamba", mamba2),
    to_edit("pypots-patchtst", "pypots", patchtst, "pypots.nn"),
    to_edit("refiners-clip-text", "refiners", clip_text, "refiners.foundationals", "refiners.fluxion"),
)

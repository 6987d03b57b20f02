"""Pictures, alone or beside a text."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import partial
from types import SimpleNamespace
from unittest.mock import patch

import torch
from cases import Case, shaken, tokens
from conversion import carried, experienced, fused, picture
from stubs import bare

from tried.past import with_pkg_resources

#: A module of CLIP's vision model -> its name in OpenAI's own code.
_VISION_OF_CLIP = (
    (r"embeddings\.class_embedding", "class_embedding"),
    (r"embeddings\.patch_embedding\.weight", "conv1.weight"),
    (r"embeddings\.position_embedding\.weight", "positional_embedding"),
    (r"pre_layrnorm", "ln_pre"),
    (r"post_layernorm", "ln_post"),
    (r"encoder\.layers", "transformer.resblocks"),
    (r"self_attn\.in_proj\.", "attn.in_proj_"),
    (r"self_attn\.", "attn."),
    (r"layer_norm", "ln_"),
    (r"fc1", "c_fc"),
    (r"fc2", "c_proj"),
)


def vision(**more):
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=5, **more)
    return shaken(ViTForImageClassification(config))


def clip_vision(load):
    from transformers import CLIPVisionConfig, CLIPVisionModelWithProjection

    sizes = {"hidden_size": 32, "intermediate_size": 128, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = CLIPVisionConfig(**sizes, image_size=32, patch_size=8, projection_dim=16)
    reference = shaken(CLIPVisionModelWithProjection(config))
    names = [
        (r"^vision_model\.", ""),
        *_VISION_OF_CLIP,
    ]

    def cut(weights):
        weights["proj"] = weights.pop("visual_projection.weight").T
        return fused(weights, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "self_attn.in_proj")

    with_pkg_resources()
    port = carried(load("clip.model").VisionTransformer(32, 8, 32, 3, 4, 16), reference, names, cut)
    pixels = picture(32)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))


def pretrained_vit(load):
    reference = vision(layer_norm_eps=1e-6)
    package = load("pytorch_pretrained_vit.model")
    sizes = {"patches": (8, 8), "dim": 32, "ff_dim": 64, "num_heads": 4, "num_layers": 3, "classifier": "token"}
    sizes |= {"attention_dropout_rate": 0.0, "dropout_rate": 0.1, "representation_size": None}
    package.PRETRAINED_MODELS["tiny"] = {"config": sizes, "image_size": (32, 32), "num_classes": 5}
    names = [
        (r"^vit\.", ""),
        (r"embeddings\.cls_token", "class_token"),
        (r"embeddings\.position_embeddings", "positional_embedding.pos_embedding"),
        (r"embeddings\.patch_embeddings\.projection", "patch_embedding"),
        (r"(?:encoder\.layer|layers)\.", "transformer.blocks."),
        (r"attention\.(?:attention\.)?(q|k|v)(?:uery|ey|alue|_proj)\.", r"attn.proj_\1."),
        (r"attention\.(?:output\.dense|o_proj)", "proj"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"(?:intermediate\.dense|mlp\.fc1)", "pwff.fc1"),
        (r"(?:output\.dense|mlp\.fc2)", "pwff.fc2"),
        (r"^layernorm", "norm"),
        (r"^classifier", "fc"),
    ]
    port = carried(package.ViT("tiny"), reference, names)
    pixels = picture(32)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))


def monai_vit(load):
    reference = vision(layer_norm_eps=1e-5)
    port = load("monai.networks.nets.vit").ViT(
        3,
        32,
        8,
        32,
        64,
        3,
        4,
        classification=True,
        num_classes=5,
        spatial_dims=2,
        qkv_bias=True,
        post_activation="none",
    )
    names = [
        (r"^vit\.", ""),
        (r"embeddings\.cls_token", "cls_token"),
        (r"embeddings\.patch_embeddings\.projection", "patch_embedding.patch_embeddings"),
        (r"(?:encoder\.layer|layers)\.", "blocks."),
        (r"attention\.qkv", "attn.qkv"),
        (r"attention\.(?:output\.dense|o_proj)", "attn.out_proj"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"(?:intermediate\.dense|mlp\.fc1)", "mlp.linear1"),
        (r"(?:output\.dense|mlp\.fc2)", "mlp.linear2"),
        (r"^layernorm", "norm"),
        (r"^classifier", "classification_head"),
    ]

    def cut(weights):
        places = weights.pop("vit.embeddings.position_embeddings")
        weights["patch_embedding.position_embeddings"] = places[:, 1:]
        weights["vit.embeddings.cls_token"] = weights["vit.embeddings.cls_token"] + places[:, :1]  # the port adds none
        kinds = (
            ["q_proj", "k_proj", "v_proj"] if any("q_proj" in name for name in weights) else ["query", "key", "value"]
        )
        weights = {name.replace("attention.attention.", "attention."): weight for name, weight in weights.items()}
        return fused(weights, [f"attention.{kind}" for kind in kinds], "attention.qkv")

    port = carried(port, reference, names, cut, kept=("norm_cross_attn",))
    pixels = picture(32)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))


def hiera(load):
    from transformers import HieraConfig, HieraForImageClassification

    config = HieraConfig(embed_dim=16, image_size=[64, 64], depths=[1, 2, 1, 1], num_heads=[1, 2, 4, 8], num_labels=7)
    reference = shaken(HieraForImageClassification(config))
    port = load("hiera.hiera").Hiera(input_size=(64, 64), embed_dim=16, num_classes=7, stages=(1, 2, 1, 1))
    port.head.act_func = torch.nn.Identity()  # the reference returns logits
    pixels = picture(64)
    return Case(reference, carried(port, reference), (), {"pixel_values": pixels}, (pixels,))


def segformer(load):
    from transformers import SegformerConfig, SegformerModel

    sizes, heads, reductions = [16, 16, 32, 32], [1, 2, 2, 4], [4, 2, 2, 1]
    config = SegformerConfig(depths=[1, 2, 1, 1], sr_ratios=reductions, hidden_sizes=sizes, num_attention_heads=heads)
    reference = shaken(SegformerModel(config))
    port = load("segmentation_models_pytorch.encoders.mix_transformer").MixVisionTransformer(
        img_size=64,
        embed_dims=sizes,
        num_heads=heads,
        qkv_bias=True,
        depths=[1, 2, 1, 1],
        sr_ratios=reductions,
    )
    kind = r"^stages\.{0}\."
    names = [
        pair
        for stage in range(4)
        for pair in (
            (kind.format(stage) + r"patch_embeddings\.layer_norm", f"patch_embed{stage + 1}.norm"),
            (kind.format(stage) + r"patch_embeddings", f"patch_embed{stage + 1}"),
            (kind.format(stage) + r"layer_norm", f"norm{stage + 1}"),
            (kind.format(stage) + r"blocks", f"block{stage + 1}"),
        )
    ] + [
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"attention\.sequence_reduction\.sequence_reduction", "attn.sr"),
        (r"attention\.sequence_reduction\.layer_norm", "attn.norm"),
        (r"attention\.q_proj", "attn.q"),
        (r"attention\.kv", "attn.kv"),
        (r"attention\.o_proj", "attn.proj"),
    ]
    port = carried(port, reference, names, lambda w: fused(w, ["attention.k_proj", "attention.v_proj"], "attention.kv"))
    pixels = picture(64)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,), arranged=lambda out: out[-1])


def efficientnet(load):
    from transformers import EfficientNetConfig, EfficientNetForImageClassification

    shape = {
        "kernel_sizes": [3, 5, 3],
        "in_channels": [32, 16, 24],
        "out_channels": [16, 24, 24],
        "depthwise_padding": [],
        "strides": [1, 2, 1],
        "num_block_repeats": [1, 2, 1],
        "expand_ratios": [1, 6, 6],
    }
    config = EfficientNetConfig(
        image_size=64, width_coefficient=1.0, depth_coefficient=1.0, hidden_dim=1280, num_labels=7, **shape
    )
    reference = shaken(EfficientNetForImageClassification(config))
    utils = load("efficientnet_pytorch.utils")
    blocks = ["r1_k3_s11_e1_i32_o16_se0.25", "r2_k5_s22_e6_i16_o24_se0.25", "r1_k3_s11_e6_i24_o24_se0.25"]
    _, settings = utils.get_model_params("efficientnet-b0", {"num_classes": 7, "image_size": 64})
    port = load("efficientnet_pytorch.model").EfficientNet(utils.BlockDecoder.decode(blocks), settings)
    pixels = picture(64)
    return Case(reference, carried(port, reference), (), {"pixel_values": pixels}, (pixels,))


def resnet(load):
    from transformers import ResNetConfig, ResNetForImageClassification

    config = ResNetConfig(
        embedding_size=64, hidden_sizes=[64, 128], depths=[1, 2], layer_type="bottleneck", num_labels=3
    )
    reference = shaken(ResNetForImageClassification(config))
    port = load("pytorchcv.models.resnet").ResNet([[64], [128, 128]], 64, True, False, num_classes=3)  # noqa: FBT003
    names = [
        (r"resnet\.embedder\.embedder", "features.init_block.conv"),
        (
            r"resnet\.encoder\.stages\.(\d+)\.layers\.(\d+)",
            lambda m: f"features.stage{int(m[1]) + 1}.unit{int(m[2]) + 1}",
        ),
        (r"\.layer\.(\d)", lambda m: f".body.conv{int(m[1]) + 1}"),
        (r"shortcut", "identity_conv"),
        (r"convolution", "conv"),
        (r"normalization", "bn"),
        (r"classifier\.1", "output"),
    ]
    pixels = picture(56)
    return Case(reference, carried(port, reference, names), (), {"pixel_values": pixels}, (pixels,))


def swin2sr(load):
    from transformers import Swin2SRConfig, Swin2SRForImageSuperResolution

    sizes = {"embed_dim": 12, "depths": [2, 2], "num_heads": [2, 3], "window_size": 4, "mlp_ratio": 2.0, "upscale": 2}
    reference = shaken(Swin2SRForImageSuperResolution(Swin2SRConfig(image_size=16, **sizes)))
    package = load("spandrel.architectures.Swin2SR.__arch.Swin2SR")
    port = package.Swin2SR(img_size=16, upsampler="pixelshuffle", **sizes)
    names = [
        (r"^swin2sr\.", ""),
        (r"first_convolution", "conv_first"),
        (r"embeddings\.patch_embeddings", "patch_embed"),
        (r"patch_embed\.layernorm", "patch_embed.norm"),
        (r"projection", "proj"),
        (r"encoder\.stages\.(\d+)\.layers", r"layers.\1.residual_group.blocks"),
        (r"encoder\.stages", "layers"),
        (r"attention\.self\.(q|v)(?:uery|alue)\.bias", r"attn.\1_bias"),
        (r"attention\.self\.continuous_position_bias_mlp", "attn.cpb_mlp"),
        (r"attention\.self", "attn"),
        (r"attention\.output\.dense", "attn.proj"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"intermediate\.dense", "mlp.fc1"),
        (r"output\.dense", "mlp.fc2"),
        (r"^layernorm", "norm"),
        (r"upsample\.conv_before_upsample", "conv_before_upsample.0"),
        (r"upsample\.final_convolution", "conv_last"),
        (r"upsample\.upsample\.convolution_0", "upsample.0"),
    ]

    def cut(weights):
        for name in [name for name in weights if name.endswith("self.query.weight")]:
            parts = [weights.pop(name.replace("query", kind)) for kind in ("query", "key", "value")]
            weights[name.replace("query", "qkv")] = torch.cat(parts)
        return weights

    pixels = picture(16)
    return Case(reference, carried(port, reference, names, cut), (), {"pixel_values": pixels}, (pixels,))


def chinese_clip(load):
    from transformers import ChineseCLIPConfig, ChineseCLIPModel

    text = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    text |= {"vocab_size": 64, "max_position_embeddings": 32}
    pixels = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 256}
    pixels |= {"image_size": 32, "patch_size": 8}
    reference = shaken(ChineseCLIPModel(ChineseCLIPConfig(text_config=text, vision_config=pixels, projection_dim=16)))
    package = load("cn_clip.clip.model")
    port = package.CLIP(16, 32, 2, 64, 8, 64, 0.0, "gelu", 0.0, 32, 0.02, 64, 32, 4, 2, 2, vision_head_width=32)
    names = [
        (r"^text_model", "bert"),
        (r"^vision_model\.", "visual."),
        *_VISION_OF_CLIP,
    ]

    def cut(weights):
        weights["visual.proj"] = weights.pop("visual_projection.weight").T
        weights["text_projection"] = weights.pop("text_projection.weight").T
        return fused(weights, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"], "self_attn.in_proj")

    port = carried(port, reference, names, cut)
    ids, seen = tokens(64), torch.ones(2, 12, dtype=torch.long)
    ids[1, 8:], seen[1, 8:] = 0, 0
    inputs = {"input_ids": ids, "attention_mask": seen, "pixel_values": picture(32)}
    similarity = lambda out: out[2] * out[0] @ out[1].T  # noqa: E731 - the port returns the embeddings alone
    return Case(reference, port, (), inputs, (inputs["pixel_values"], ids), arranged=similarity)


def flava(load):
    from transformers import FlavaConfig, FlavaModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    pixels, text = {"image_size": 32, "patch_size": 8}, {"vocab_size": 64, "max_position_embeddings": 32}
    parts = {"image_config": {**sizes, **pixels}, "text_config": {**sizes, **text}, "multimodal_config": sizes}
    reference = shaken(FlavaModel(FlavaConfig(**parts, hidden_size=32, projection_dim=16)))
    each = {f"{part}_{name}": size for part in ("image", "text", "multimodal") for name, size in sizes.items()}
    port = load("torchmultimodal.models.flava.model").flava_model(**each, **pixels, **text, text_and_image_proj_size=16)
    names = [
        (r"^(image|text)_model", r"\1_encoder"),
        (r"^multimodal_model", "mm_encoder"),
        (r"embeddings\.LayerNorm", "embeddings.layer_norm"),
        (r"attention\.attention", "attention"),
        (r"attention\.output\.dense", "attention.output"),
        (r"intermediate\.dense", "feedforward.model.0"),
        (r"layer\.(\d)\.output\.dense", r"layer.\1.feedforward.model.2"),
        (r"layernorm_before", "attention_layernorm"),
        (r"layernorm_after", "feedforward_layernorm"),
    ]
    port = carried(port, reference, names)
    ids, pixels = tokens(64), picture(32)
    inputs = {"image": pixels, "text": ids, "text_masked": ids, "skip_unmasked_mm_encoder": True}
    return Case(
        reference,
        port,
        (),
        {"pixel_values": pixels, "input_ids": ids},
        (),
        inputs,
        arranged=lambda out: out.multimodal_masked.last_hidden_state,
        main=lambda out: out.multimodal_embeddings,
    )


def mobilenet(load):
    from transformers import MobileNetV2Config, MobileNetV2ForImageClassification

    config = MobileNetV2Config(
        image_size=64, depth_multiplier=0.35, num_labels=7, tf_padding=False, finegrained_output=False
    )
    reference = shaken(MobileNetV2ForImageClassification(config))
    generator = torch.Generator().manual_seed(2)
    for name, buffer in reference.named_buffers():
        if "running" in name:
            buffer.add_(torch.rand(buffer.shape, generator=generator))
    package = load("geffnet.gen_efficientnet")
    port = package._gen_mobilenet_v2("tiny", 0.35, num_classes=7, bn_eps=config.layer_norm_eps)
    pixels = picture(64)
    return Case(reference, carried(port, reference), (), {"pixel_values": pixels}, (pixels,))


def poolformer(load):
    from transformers import PoolFormerConfig, PoolFormerModel

    sizes, depths = [8, 12, 16, 24], [1, 2, 1, 1]
    config = PoolFormerConfig(hidden_sizes=sizes, depths=depths, layer_norm_eps=1e-5)
    reference = shaken(PoolFormerModel(config))
    package = load("mmpretrain.models.backbones.poolformer")
    port = package.PoolFormer({"layers": depths, "embed_dims": sizes, "mlp_ratios": [4.0] * 4})
    names = [
        (r"^encoder\.patch_embeddings\.0\.projection", "patch_embed.proj"),
        (r"^encoder\.patch_embeddings\.(\d)\.projection", lambda m: f"network.{2 * int(m[1]) - 1}.proj"),
        (r"^encoder\.block\.(\d)\.", lambda m: f"network.{2 * int(m[1])}."),
        (r"before_norm", "norm1"),
        (r"after_norm", "norm2"),
        (r"output\.conv(\d)", r"mlp.fc\1"),
    ]
    pixels = picture(64)
    port.norm6 = torch.nn.Identity()  # the reference's model ends before it
    carried(port, reference, names)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,), arranged=lambda out: out[-1])


def siglip2(load):
    from transformers import SiglipConfig, SiglipModel

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    pixels, text = {"image_size": 32, "patch_size": 8}, {"vocab_size": 64, "max_position_embeddings": 32}
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    parts = {"vision_config": {**sizes, **pixels}, "text_config": {**sizes, **text, **special}}
    reference = shaken(SiglipModel(SiglipConfig(**parts)))
    package = load("kornia.models.siglip2.config")
    config = package.SigLip2Config(
        package.SigLip2VisionConfig(**sizes, **pixels), package.SigLip2TextConfig(**sizes, **text), projection_dim=32
    )
    port = load("kornia.models.siglip2.model").SigLip2Model(config)
    names = [(r"(vision_model.*)position_embedding\.weight", r"\1position_embedding")]
    own = port.state_dict()
    cut = lambda weights: {n: w.reshape(own[n].shape) if n in own else w for n, w in weights.items()}  # noqa: E731
    ids, pixels = tokens(64, length=32), picture(32)
    return Case(
        reference,
        carried(port, reference, names, cut),
        (),
        {"input_ids": ids, "pixel_values": pixels},
        (pixels, ids),
        main=lambda out: out.logits_per_image,
        arranged=lambda out: out.logits_per_image,
    )


def chameleon_encoder(load):
    from transformers import ChameleonVQVAEConfig
    from transformers.models.chameleon.modeling_chameleon import ChameleonVQVAEEncoder

    config = ChameleonVQVAEConfig(
        base_channels=32,
        channel_multiplier=[1, 2],
        num_res_blocks=1,
        resolution=16,
        attn_resolutions=[8],
        latent_channels=8,
        double_latent=False,
        dropout=0.0,
    )
    reference = shaken(ChameleonVQVAEEncoder(config))
    port = load("taming.modules.diffusionmodules.model").Encoder(
        ch=32,
        out_ch=3,
        ch_mult=(1, 2),
        num_res_blocks=1,
        attn_resolutions=[8],
        in_channels=3,
        resolution=16,
        z_channels=8,
        double_z=False,
    )
    pixels = picture(16)
    return Case(reference, carried(port, reference, [(r"^", "")]), (), {"pixel_values": pixels}, (pixels,))


def doctr_vit(load):
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4}
    config = ViTConfig(**sizes, image_size=32, patch_size=8, num_labels=5, layer_norm_eps=1e-5)
    reference = shaken(ViTForImageClassification(config))
    with torch.no_grad():  # the port's layers share their norms
        first = {}
        for name, parameter in reference.named_parameters():
            if "layernorm_" in name:
                parameter.copy_(first.setdefault(name[name.index("layernorm_") :], parameter))
    package = load("doctr.models.classification.vit.pytorch")
    port = package.VisionTransformer(32, 3, 4, 2, patch_size=(8, 8), input_shape=(3, 32, 32), num_classes=5)
    names = [
        (r"^vit\.layernorm", "1.layer_norm_output"),
        (r"^vit\.", ""),
        (r"^embeddings\.cls_token", "0.cls_token"),
        (r"^embeddings\.position_embeddings", "0.positions"),
        (r"^embeddings\.patch_embeddings\.projection", "0.projection"),
        (r"^(?:encoder\.layer|layers)\.\d\.layernorm_before", "1.layer_norm_input"),
        (r"^(?:encoder\.layer|layers)\.\d\.layernorm_after", "1.layer_norm_attention"),
        (
            r"^(?:encoder\.layer|layers)\.(\d)\.attention\.(?:attention\.)?(q|k|v)(?:uery|ey|alue|_proj)",
            lambda m: f"1.attention.{m[1]}.linear_layers.{'qkv'.index(m[2])}",
        ),
        (
            r"^(?:encoder\.layer|layers)\.(\d)\.attention\.(?:output\.dense|o_proj)",
            r"1.attention.\1.output_linear",
        ),
        (r"^(?:encoder\.layer|layers)\.(\d)\.(?:intermediate\.dense|mlp\.fc1)", r"1.position_feed_forward.\1.0"),
        (r"^(?:encoder\.layer|layers)\.(\d)\.(?:output\.dense|mlp\.fc2)", r"1.position_feed_forward.\1.3"),
        (r"^classifier", "2.head"),
    ]
    pixels = picture(32)
    return Case(reference, carried(port, reference, names), (), {"pixel_values": pixels}, (pixels,))


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


def sam2_vision(load):
    from transformers import Sam2HieraDetConfig, Sam2VisionConfig, Sam2VisionModel

    backbone = Sam2HieraDetConfig(
        hidden_size=16,
        image_size=[64, 64],
        window_positional_embedding_background_size=[4, 4],
        num_query_pool_stages=2,
        blocks_per_stage=[1, 2, 1],
        embed_dim_per_stage=[16, 32, 64],
        num_attention_heads_per_stage=[1, 2, 4],
        window_size_per_stage=[8, 4, 4],
        global_attention_blocks=[2],
    )
    config = Sam2VisionConfig(
        backbone_config=backbone,
        backbone_channel_list=[64, 32, 16],
        backbone_feature_sizes=[[16, 16], [8, 8], [4, 4]],
        fpn_hidden_size=24,
        fpn_top_down_levels=[0, 1],
    )
    reference = shaken(Sam2VisionModel(config))
    bare("sam2")
    encoder, positions = load("sam2.modeling.backbones.image_encoder"), load("sam2.modeling.position_encoding")
    port = encoder.ImageEncoder(
        load("sam2.modeling.backbones.hieradet").Hiera(
            embed_dim=16,
            q_pool=2,
            stages=(1, 2, 1),
            window_pos_embed_bkg_spatial_size=(4, 4),
            window_spec=(8, 4, 4),
            global_att_blocks=(2,),
        ),
        encoder.FpnNeck(
            positions.PositionEmbeddingSine(24),
            d_model=24,
            backbone_channel_list=[64, 32, 16],
            fpn_interp_model="nearest",
            fpn_top_down_levels=[0, 1],
        ),
    )
    names = [
        (r"^backbone", "trunk"),
        (r"patch_embed\.projection", "patch_embed.proj"),
        (r"layer_norm(\d)", r"norm\1"),
        (r"mlp\.proj_in", "mlp.layers.0"),
        (r"mlp\.proj_out", "mlp.layers.1"),
        (r"^neck\.convs\.(\d)", r"neck.convs.\1.conv"),
    ]
    pixels, port = picture(64), carried(port, reference, names)
    finest = lambda out: out["backbone_fpn"][0]  # noqa: E731
    return Case(
        reference,
        port,
        (),
        {"pixel_values": pixels},
        (pixels,),
        arranged=finest,
        main=lambda out: out.fpn_hidden_states[0],
    )


def rt_detr(load):
    from transformers import ResNetConfig, RTDetrConfig, RTDetrForObjectDetection

    backbone = ResNetConfig(
        embedding_size=8,
        hidden_sizes=[16, 32, 64],
        depths=[1, 2, 1],
        layer_type="bottleneck",
        out_features=["stage2", "stage3"],
    )
    config = RTDetrConfig(
        backbone_config=backbone,
        encoder_hidden_dim=32,
        encoder_in_channels=[32, 64],
        feat_strides=[8, 16],
        encoder_layers=1,
        encoder_ffn_dim=48,
        encoder_attention_heads=4,
        encode_proj_layers=[1],
        num_feature_levels=2,
        decoder_in_channels=[32, 32],
        d_model=32,
        num_queries=6,
        decoder_ffn_dim=48,
        decoder_n_points=3,
        decoder_layers=2,
        decoder_attention_heads=4,
        num_denoising=0,
        num_labels=5,
    )
    reference, pixels = shaken(RTDetrForObjectDetection(config)), picture(64)
    for module in reference.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = 1.0
    with torch.no_grad():
        reference.train()(pixel_values=pixels)  # gives it the running statistics of these pictures
    reference.eval()
    os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.gettempdir())
    bare("ultralytics", "ultralytics.models")
    sys.modules["ultralytics"].__version__ = "8"
    layers = [
        [-1, 1, "ResNetLayer", [3, 8, 1, True, 1]],
        [-1, 1, "ResNetLayer", [8, 4, 1, False, 1]],
        [-1, 1, "ResNetLayer", [16, 8, 2, False, 2]],
        [-1, 1, "ResNetLayer", [32, 16, 2, False, 1]],
        [-1, 1, "Conv", [32, 1, 1, None, 1, 1, False]],
        [-1, 1, "AIFI", [48, 4]],
        [-1, 1, "Conv", [32, 1, 1]],
        [-1, 1, "nn.Upsample", [None, 2, "nearest"]],
        [2, 1, "Conv", [32, 1, 1, None, 1, 1, False]],
        [[-2, -1], 1, "Concat", [1]],
        [-1, 3, "RepC3", [32]],
        [-1, 1, "Conv", [32, 3, 2]],
        [[-1, 6], 1, "Concat", [1]],
        [-1, 3, "RepC3", [32]],
        [[10, 13], 1, "RTDETRDecoder", [5, 32, 6, 3, 4, 2, 48]],
    ]
    with patch("importlib.metadata.version", return_value="9.9"):
        package = load("ultralytics.nn.tasks")
    load("ultralytics.models.utils.ops")  # its forward imports it
    port = package.RTDETRDetectionModel(
        {"nc": 5, "backbone": layers[:4], "head": layers[4:], "channels": 3}, verbose=False
    )
    for module in port.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.eps = 1e-5
    for module in port.model[:4].modules():
        if hasattr(module, "act"):
            module.act = torch.nn.ReLU() if isinstance(module.act, torch.nn.SiLU) else module.act
    names = [
        (r"^(model\.decoder\.)?class_embed", "model.14.dec_score_head"),
        (r"^(model\.decoder\.)?bbox_embed", "model.14.dec_bbox_head"),
        (r"^model\.backbone\.model\.embedder\.embedder", "model.0.layer.0"),
        (
            r"^model\.backbone\.model\.encoder\.stages\.(\d)\.layers\.(\d)",
            lambda m: f"model.{int(m[1]) + 1}.layer.{m[2]}",
        ),
        (r"layer\.(\d)\.layer\.(\d)", lambda m: f"layer.{m[1]}.cv{int(m[2]) + 1}"),
        (r"shortcut", "shortcut.0"),
        (r"convolution", "conv"),
        (r"normalization", "bn"),
        (r"^model\.encoder_input_proj\.(\d)\.", lambda m: f"model.{8 - 4 * int(m[1])}."),
        (r"^(model\.[48])\.0", r"\1.conv"),
        (r"^(model\.[48])\.1", r"\1.bn"),
        (r"^model\.encoder\.aifi\.0\.layers\.0", "model.5"),
        (r"model\.5\.self_attn\.in_proj\.", "model.5.ma.in_proj_"),
        (r"model\.5\.self_attn\.o_proj", "model.5.ma.out_proj"),
        (r"model\.5\.self_attn_layer_norm", "model.5.norm1"),
        (r"model\.5\.final_layer_norm", "model.5.norm2"),
        (r"model\.5\.mlp\.", "model.5."),
        (r"^model\.encoder\.lateral_convs\.0", "model.6"),
        (r"^model\.encoder\.fpn_blocks\.0", "model.10"),
        (r"^model\.encoder\.downsample_convs\.0", "model.11"),
        (r"^model\.encoder\.pan_blocks\.0", "model.13"),
        (r"^(model\.1[03])\.conv(\d)", r"\1.cv\2"),
        (r"bottlenecks", "m"),
        (r"^(model\.(6|10|11|13).*)\.norm", r"\1.bn"),
        (r"^model\.decoder_input_proj", "model.14.input_proj"),
        (r"^model\.decoder\.query_pos_head", "model.14.query_pos_head"),
        (r"^model\.decoder", "model.14.decoder"),
        (r"^model\.enc_", "model.14.enc_"),
        (r"self_attn\.in_proj\.", "self_attn.in_proj_"),
        (r"o_proj", "out_proj"),
        (r"encoder_attn_layer_norm", "norm2"),
        (r"encoder_attn", "cross_attn"),
        (r"self_attn_layer_norm", "norm1"),
        (r"final_layer_norm", "norm3"),
        (r"mlp\.fc(\d)", r"linear\1"),
    ]
    cut = lambda weights: fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.in_proj")  # noqa: E731
    port = carried(port, reference, names, cut, kept=("denoising",))
    return Case(
        reference,
        port,
        (),
        {"pixel_values": pixels},
        (pixels,),
        arranged=lambda out: out[1][1][-1],
        main=lambda out: out.logits,
    )


def blip2_vision(load):
    from transformers import Blip2VisionConfig, Blip2VisionModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
    reference = shaken(Blip2VisionModel(Blip2VisionConfig(**sizes, image_size=32, patch_size=8)))
    bare("lavis", "lavis.models")
    vision = load("lavis.models.eva_vit").VisionTransformer(
        img_size=32,
        patch_size=8,
        embed_dim=32,
        depth=2,
        num_heads=4,
        mlp_ratio=2,
        qkv_bias=True,
        norm_layer=partial(torch.nn.LayerNorm, eps=1e-6),
    )
    port = torch.nn.Sequential(vision, torch.nn.LayerNorm(32, eps=1e-6))
    names = [
        (r"^embeddings\.class_embedding", "0.cls_token"),
        (r"^embeddings\.position_embedding", "0.pos_embed"),
        (r"^embeddings\.patch_embedding", "0.patch_embed.proj"),
        (r"^encoder\.layers", "0.blocks"),
        (r"self_attn\.projection", "attn.proj"),
        (r"self_attn", "attn"),
        (r"layer_norm(\d)", r"norm\1"),
        (r"^post_layernorm", "1"),
    ]

    def cut(weights):  # the port has no biases of keys
        for name in [name for name in weights if name.endswith("qkv.bias")]:
            query, key, value = weights.pop(name).chunk(3)
            key.zero_()
            weights |= {name.replace("qkv.bias", "q_bias"): query, name.replace("qkv.bias", "v_bias"): value}
        return weights

    pixels = picture(32)
    return Case(reference, carried(port, reference, names, cut), (), {"pixel_values": pixels}, (pixels,))


def pixtral_vision(load):
    from transformers import PixtralVisionConfig, PixtralVisionModel

    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    sizes |= {"image_size": 64, "patch_size": 8}
    config = PixtralVisionConfig(
        **sizes, hidden_act="silu", rope_parameters={"rope_type": "default", "rope_theta": 10000.0}
    )
    reference = shaken(PixtralVisionModel(config))

    def attend(query, key, value, mask):
        turned = (each.transpose(1, 2) for each in (query, key, value))
        return torch.nn.functional.scaled_dot_product_attention(*turned).transpose(1, 2).contiguous()

    masks = dict.fromkeys(
        (
            "AttentionBias",
            "BlockDiagonalCausalMask",
            "BlockDiagonalCausalWithOffsetPaddedKeysMask",
            "BlockDiagonalMask",
        ),
        type("Mask", (), {"from_seqlens": lambda lengths: None}),  # its blocks pass none on
    )
    sys.modules["xformers.ops.fmha"] = SimpleNamespace(memory_efficient_attention=attend)
    sys.modules["xformers.ops.fmha.attn_bias"] = SimpleNamespace(**masks)
    package = load("mistral_inference.vision_encoder")
    del sys.modules["xformers.ops.fmha"], sys.modules["xformers.ops.fmha.attn_bias"]  # other packages look for it
    settings = load("mistral_inference.args").VisionEncoderArgs(
        **sizes, num_channels=3, rope_theta=10000.0, image_token_id=0
    )
    port = package.VisionTransformer(settings)
    names = [
        (r"attention\.([qkvo])_proj", r"attention.w\1"),
        (r"feed_forward\.gate_proj", "feed_forward.w1"),
        (r"feed_forward\.down_proj", "feed_forward.w2"),
        (r"feed_forward\.up_proj", "feed_forward.w3"),
    ]

    def cut(weights):  # the port turns neighbours, the reference halves
        for name in [name for name in weights if name.endswith(("q_proj.weight", "k_proj.weight"))]:
            weights[name] = weights[name].view(4, 2, 4, 32).transpose(1, 2).reshape(32, 32)
        return weights

    pixels = picture(48, batch=1)[..., :32]
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"pixel_values": pixels}, (list(pixels),), arranged=lambda out: out[None])

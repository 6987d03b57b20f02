"""What looks at pictures."""

from __future__ import annotations

from unittest.mock import patch

import torch
from cases import Case, shaken
from conversion import carried, experienced, fused, picture
from stubs import bare


def codebook(load):
    from transformers.models.flava.configuration_flava import FlavaImageCodebookConfig
    from transformers.models.flava.modeling_flava import FlavaImageCodebook

    reference = shaken(FlavaImageCodebook(FlavaImageCodebookConfig(hidden_size=64, vocab_size=512)))
    port = load("dall_e.encoder").Encoder(n_hid=64, vocab_size=512)
    names = [
        (r"\.(group|path)\.", "."),
        (r"(input|conv\w*|id_path)\.weight$", r"\1.w"),
        (r"(input|conv\w*|id_path)\.bias$", r"\1.b"),
    ]
    pixels = picture(16)
    return Case(reference, carried(port, reference, names), (), {"pixel_values": pixels}, (pixels,))


def vitpose(load):
    from transformers import VitPoseBackboneConfig, VitPoseConfig, VitPoseForPoseEstimation

    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "mlp_ratio": 2}
    backbone = VitPoseBackboneConfig(image_size=[32, 24], patch_size=[8, 8], out_features=["stage3"], **sizes)
    config = VitPoseConfig(backbone_config=backbone, use_simple_decoder=False, num_labels=5)
    reference = experienced(shaken(VitPoseForPoseEstimation(config)))
    bare("vitpose_infer")
    body = load("vitpose_infer.builder.backbones.vit").ViT(
        img_size=(32, 24), patch_size=8, embed_dim=32, depth=3, num_heads=4, mlp_ratio=2, qkv_bias=True
    )
    body.last_norm.eps = backbone.layer_norm_eps
    for block in body.blocks:
        block.norm1.eps = block.norm2.eps = backbone.layer_norm_eps
    head = load("vitpose_infer.builder.heads.topdown_heatmap_simple_head").TopdownHeatmapSimpleHead(
        32,
        5,
        num_deconv_layers=2,
        num_deconv_filters=(256, 256),
        num_deconv_kernels=(4, 4),
        extra={"final_conv_kernel": 1},
    )
    names = [
        (r"^backbone\.embeddings\.patch_embeddings\.projection", "0.patch_embed.proj"),
        (r"^backbone\.embeddings\.position_embeddings", "0.pos_embed"),
        (r"^backbone\.encoder\.layer\.", "0.blocks."),
        (r"^backbone\.layernorm", "0.last_norm"),
        (r"attention\.attention\.qkv", "attn.qkv"),
        (r"attention\.output\.dense", "attn.proj"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"^head\.deconv(\d)", lambda m: f"1.deconv_layers.{3 * int(m[1]) - 3}"),
        (r"^head\.batchnorm(\d)", lambda m: f"1.deconv_layers.{3 * int(m[1]) - 2}"),
        (r"^head\.conv", "1.final_layer"),
    ]

    def cut(weights):
        kinds = [f"attention.attention.{kind}" for kind in ("query", "key", "value")]
        return fused(weights, kinds, "attention.attention.qkv")

    pixels = picture(32)[..., :24]
    port = carried(torch.nn.Sequential(body, head), reference, names, cut)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))


def convnextv2(load):
    from transformers import ConvNextV2Config, ConvNextV2ForImageClassification

    config = ConvNextV2Config(depths=[1, 2, 2, 1], hidden_sizes=[8, 16, 24, 32], num_labels=5, layer_norm_eps=1e-6)
    reference = shaken(ConvNextV2ForImageClassification(config))
    bare("libreyolo", "libreyolo.models", "libreyolo.models.convnextv2")
    package = load("libreyolo.models.convnextv2.nn")
    with patch.dict(package.ARCH_DEFS, {"tiny": ((1, 2, 2, 1), (8, 16, 24, 32))}):
        port = package.ConvNeXtV2("tiny", 5)
    names = [
        (r"^classifier", "head"),
        (r"^convnextv2\.embeddings\.patch_embeddings", "downsample_layers.0.0"),
        (r"^convnextv2\.embeddings\.layernorm", "downsample_layers.0.1"),
        (r"^convnextv2\.encoder\.stages\.(\d)\.downsampling_layer", r"downsample_layers.\1"),
        (r"^convnextv2\.encoder\.stages\.(\d)\.layers", r"stages.\1"),
        (r"^convnextv2\.layernorm", "norm"),
        (r"layernorm", "norm"),
        (r"grn\.weight", "grn.gamma"),
        (r"grn\.bias", "grn.beta"),
    ]
    pixels = picture(64)
    return Case(reference, carried(port, reference, names), (), {"pixel_values": pixels}, (pixels,))


def lw_detr(load):
    from transformers import LwDetrConfig, LwDetrForObjectDetection, LwDetrViTConfig

    backbone = LwDetrViTConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        mlp_ratio=2,
        image_size=64,
        pretrain_image_size=32,
        patch_size=8,
        num_windows=16,
        window_block_indices=[0, 1],
        out_indices=[2, 3],
    )
    config = LwDetrConfig(
        backbone_config=backbone,
        projector_scale_factors=[1.0],
        d_model=32,
        decoder_ffn_dim=48,
        decoder_n_points=2,
        decoder_layers=2,
        decoder_self_attention_heads=4,
        decoder_cross_attention_heads=4,
        num_queries=7,
        group_detr=2,
        num_labels=5,
    )
    reference = experienced(shaken(LwDetrForObjectDetection(config)))
    bare("libreyolo", "libreyolo.models", "libreyolo.models.lwdetr")
    package = load("libreyolo.models.lwdetr.nn")
    shared = {"dec_layers": 2, "group_detr": 2, "dim_feedforward": 48}
    shared |= {"patch_size": 8, "pretrain_img_size": 32, "mlp_ratio": 2.0}
    tiny = {"encoder": "tiny", "vit_encoder_num_layers": 3, "window_block_indexes": (0, 1)}
    tiny |= {"out_feature_indexes": (1, 2), "projector_scale": ("P4",), "hidden_dim": 32, "sa_nheads": 4}
    tiny |= {"ca_nheads": 4, "dec_n_points": 2, "num_queries": 7, "num_select": 7}
    with (
        patch.dict(package._VIT_VARIANTS, {"tiny": (32, 4)}),
        patch.dict(package._SHARED_CONFIG, shared),
        patch.dict(package.LWDETR_CONFIGS, {"tiny": tiny}),
    ):
        port = package.LibreLWDETRModel("tiny", 5)
    names = [
        (r"^model\.backbone\.backbone\.embeddings\.position_embeddings", "backbone.0.encoder.pos_embed"),
        (r"^model\.backbone\.backbone\.embeddings\.projection", "backbone.0.encoder.patch_embed.proj"),
        (r"^model\.backbone\.backbone\.encoder\.layer", "backbone.0.encoder.blocks"),
        (r"^model\.backbone\.projector\.scale_layers\.0\.projector_layer", "backbone.0.projector.stages.0.0"),
        (r"^model\.backbone\.projector\.scale_layers\.0\.layer_norm", "backbone.0.projector.stages.0.1"),
        (r"conv(\d)\.conv", r"cv\1.conv"),
        (r"conv(\d)\.norm", r"cv\1.bn"),
        (r"bottlenecks", "m"),
        (r"attention\.([qv])_proj\.bias", r"attn.\1_bias"),
        (r"attention\.qkv", "attn.qkv"),
        (r"attention\.o_proj", "attn.proj"),
        (r"intermediate", "mlp"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"^model\.reference_point_embed", "refpoint_embed"),
        (r"^model\.query_feat", "query_feat"),
        (r"^model\.", "transformer."),
        (r"decoder\.layernorm", "decoder.norm"),
        (r"self_attn_layer_norm", "norm1"),
        (r"cross_attn_layer_norm", "norm2"),
        (r"layer_norm", "norm3"),
        (r"decoder\.layers\.(\d)\.mlp\.fc", r"decoder.layers.\1.linear"),
        (r"in_proj\.", "in_proj_"),
        (r"o_proj", "out_proj"),
    ]

    def cut(weights):
        for name in [name for name in weights if name.endswith("attention.q_proj.weight")]:
            parts = [weights.pop(name.replace("q_proj", f"{kind}_proj")) for kind in "qkv"]
            weights[name.replace("q_proj", "qkv")] = torch.cat(parts)
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


def qwen25_vl_vision(load):
    from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLVisionConfig
    from transformers.models.qwen2_5_vl.modeling_qwen2_5_vl import Qwen2_5_VisionTransformerPretrainedModel

    config = Qwen2_5_VLVisionConfig(
        depth=3,
        hidden_size=64,
        intermediate_size=96,
        num_heads=2,
        patch_size=4,
        window_size=16,
        out_hidden_size=48,
        fullatt_block_indexes=[2],
    )
    reference = shaken(Qwen2_5_VisionTransformerPretrainedModel(config))
    bare("litert_torch", "litert_torch.generative")
    package = load("litert_torch.generative.examples.qwen_vl.image_encoder")
    settings = package.get_image_encoder_config((24, 32))
    settings.num_layers, settings.embedding_dim, settings.window_size = 3, 64, 16
    settings.full_atten_block_indexes, settings.enable_hlfb, settings.image_embedding.patch_size = [2], False, 4
    settings.final_norm_config.enable_hlfb = False  # that of all
    block, merger = settings.block_config(0), settings.merger_config
    block.attn_config.num_heads, block.attn_config.num_query_groups, block.attn_config.head_dim = 2, 2, 32
    block.ff_config.intermediate_size = 96
    merger.intermediate_size, merger.out_embedding_dim = 256, 48
    names = [
        (r"^patch_embed\.proj", "tok_embedding"),
        (r"^merger\.ln_q", "final_norm"),
        (r"^merger\.mlp\.0", "merger.w1"),
        (r"^merger\.mlp\.2", "merger.w2"),
        (r"^blocks", "transformer_blocks"),
        (r"attn\.qkv", "atten_func.qkv_projection"),
        (r"attn\.proj", "atten_func.output_projection"),
        (r"norm1", "pre_atten_norm"),
        (r"norm2", "post_atten_norm"),
        (r"mlp\.gate_proj", "ff.w1"),
        (r"mlp\.down_proj", "ff.w2"),
        (r"mlp\.up_proj", "ff.w3"),
    ]
    patches = torch.randn(48, 96, generator=torch.Generator().manual_seed(1))
    port = carried(package.QwenVLImageEncoder(settings), reference, names)
    inputs = {"hidden_states": patches, "grid_thw": torch.tensor([[1, 6, 8]])}
    return Case(reference, port, (), inputs, (patches,), main=lambda out: out.pooler_output)


def sam_hq(load):
    from transformers.models.sam_hq.configuration_sam_hq import SamHQMaskDecoderConfig
    from transformers.models.sam_hq.modeling_sam_hq import SamHQTwoWayTransformer

    config = SamHQMaskDecoderConfig(hidden_size=32, mlp_dim=48, num_attention_heads=4, layer_norm_eps=1e-5)
    config._attn_implementation = "eager"
    reference = shaken(SamHQTwoWayTransformer(config))
    bare("segment_anything_hq", "segment_anything_hq.modeling")
    package = load("segment_anything_hq.modeling.transformer")
    port = carried(package.TwoWayTransformer(2, 32, 4, 48), reference, [(r"layer_norm", "norm")])
    generator = torch.Generator().manual_seed(1)
    seen, places = (torch.randn(2, 32, 6, 6, generator=generator) for _ in range(2))
    points = torch.randn(2, 7, 32, generator=generator)
    inputs = {"image_embeddings": seen, "image_positional_embeddings": places, "point_embeddings": points[:, None]}
    inputs |= {"attention_similarity": None}
    return Case(reference, port, (), inputs, (seen, places, points), arranged=lambda out: out[0][:, None])


def table_transformer(load):
    from transformers import ResNetConfig, TableTransformerConfig
    from transformers.models.table_transformer.modeling_table_transformer import TableTransformerDecoder

    config = TableTransformerConfig(
        backbone_config=ResNetConfig(out_features=["stage4"]),
        d_model=32,
        decoder_layers=3,
        decoder_attention_heads=4,
        decoder_ffn_dim=48,
    )
    reference = shaken(TableTransformerDecoder(config))
    inside = "table_transformer.detr.models"
    bare("table_transformer", inside)
    package = load(f"{inside}.transformer")
    layer = package.TransformerDecoderLayer(32, 4, 48, normalize_before=True)
    port = package.TransformerDecoder(layer, 3, norm=torch.nn.LayerNorm(32))
    names = [
        (r"self_attn_layer_norm", "norm1"),
        (r"encoder_attn_layer_norm", "norm2"),
        (r"final_layer_norm", "norm3"),
        (r"^layernorm", "norm"),
        (r"encoder_attn", "multihead_attn"),
        (r"in_proj\.", "in_proj_"),
        (r"fc(\d)", r"linear\1"),
    ]

    def cut(weights):
        for attention in ("self_attn", "encoder_attn"):
            fused(weights, [f"{attention}.{kind}_proj" for kind in "qkv"], f"{attention}.in_proj")
        return weights

    generator = torch.Generator().manual_seed(1)
    asked, places = (torch.randn(2, 5, 32, generator=generator) for _ in range(2))
    seen, grid = (torch.randn(2, 12, 32, generator=generator) for _ in range(2))
    real = torch.ones(2, 12, dtype=torch.bool)
    real[1, 8:] = False
    inputs = {"inputs_embeds": asked, "encoder_hidden_states": seen, "encoder_attention_mask": real}
    inputs |= {"object_queries": grid, "query_position_embeddings": places}
    own = {"memory_key_padding_mask": ~real, "pos": grid.transpose(0, 1), "query_pos": places.transpose(0, 1)}
    return Case(
        reference,
        carried(port, reference, names, cut),
        (),
        inputs,
        (asked.transpose(0, 1), seen.transpose(0, 1)),
        own,
        arranged=lambda out: out[0].transpose(0, 1),
    )


class _Matched(torch.nn.Module):
    """What matches the points of two pictures; both in one batch, one after the other."""

    def __init__(self, matcher):
        super().__init__()
        self.places, self.layers = matcher.positional_encoder, matcher.transformer_layers
        self.assign = matcher.match_assignment_layers[-1]

    def forward(self, points, described):
        places, mask = self.places(points)[0], points.new_zeros(len(points), 1, 1, points.shape[1])
        for layer in self.layers:
            described = layer(described, places, mask)[0]
        return self.assign(described, None)


class _Glued(torch.nn.Module):
    """The same, of two batches."""

    def __init__(self, matcher):
        super().__init__()
        self.posenc, self.layers, self.assign = matcher.posenc, matcher.transformers, matcher.log_assignment[-1]

    def forward(self, first, second, described, other):
        places = self.posenc(first), self.posenc(second)
        for layer in self.layers:
            described, other = layer(described, other, *places)
        return self.assign(described, other)[0]


def lightglue(load):
    from transformers import LightGlueConfig, LightGlueForKeypointMatching

    config = LightGlueConfig(descriptor_dim=32, num_hidden_layers=3, num_attention_heads=4)
    reference = _Matched(shaken(LightGlueForKeypointMatching(config)))
    for layer in reference.layers:  # the port asks and answers with the same weights
        layer.cross_attention.k_proj.load_state_dict(layer.cross_attention.q_proj.state_dict())
    inside = "vismatch.third_party.LightGlue.lightglue"
    bare("vismatch", inside)
    sizes = {"input_dim": 32, "descriptor_dim": 32, "n_layers": 3, "num_heads": 4}
    port = _Glued(load(f"{inside}.lightglue").LightGlue(None, **sizes, flash=False))
    names = [
        (r"^places\.projector", "posenc.Wr"),
        (r"self_attention\.o_proj", "self_attn.out_proj"),
        (r"cross_attention\.o_proj", "cross_attn.to_out"),
        (r"cross_attention\.q_proj", "cross_attn.to_qk"),
        (r"cross_attention\.v_proj", "cross_attn.to_v"),
        (r"self_attention", "self_attn"),
        (r"(self|cross)_mlp\.fc1", r"\1_attn.ffn.0"),
        (r"(self|cross)_mlp\.layer_norm", r"\1_attn.ffn.1"),
        (r"(self|cross)_mlp\.fc2", r"\1_attn.ffn.3"),
        (r"final_projection", "final_proj"),
    ]

    def cut(weights):  # the port has the three of each channel side by side
        for name in [name for name in weights if "self_attention.q_proj" in name]:
            parts = [weights.pop(name.replace("q_proj", f"{kind}_proj")) for kind in "qkv"]
            weights[name.replace("q_proj", "Wqkv")] = torch.stack(parts, 1).flatten(0, 1)
        return {name: each for name, each in weights.items() if "cross_attention.k_proj" not in name}

    generator = torch.Generator().manual_seed(1)
    points = torch.rand(2, 2, 9, 2, generator=generator) * 2 - 1
    described = torch.randn(2, 2, 9, 32, generator=generator)
    inputs = (*points.unbind(1), *described.unbind(1))
    port = carried(port, reference, names, cut)
    return Case(reference, port, (points.flatten(0, 1), described.flatten(0, 1)), {}, inputs)


class _Guessed(torch.nn.Module):
    """What guesses the patches that it does not see, and how far off it is."""

    def __init__(self, guesser):
        super().__init__()
        self.guesser = guesser

    def forward(self, pictures, noise):
        hidden, mask, order = self.guesser.forward_encoder(pictures, 0.75, noise)
        guessed = self.guesser.forward_decoder(hidden, order)
        return self.guesser.forward_loss(pictures, guessed, mask), guessed, mask, order


def vit_mae(load):
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    config = ViTMAEConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        decoder_hidden_size=24,
        decoder_num_hidden_layers=2,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=48,
        image_size=32,
        patch_size=8,
        norm_pix_loss=True,
        layer_norm_eps=1e-5,
    )
    reference = shaken(ViTMAEForPreTraining(config))
    bare("visionts")
    port = load("visionts.models_mae").MaskedAutoencoderViT(32, 8, 3, 32, 2, 4, 24, 2, 2, 2, norm_pix_loss=True)
    names = [
        (r"^vit\.embeddings\.patch_embeddings\.projection", "patch_embed.proj"),
        (r"^vit\.embeddings\.position_embeddings", "pos_embed"),
        (r"^vit\.embeddings\.cls_token", "cls_token"),
        (r"^vit\.layernorm", "norm"),
        (r"^vit\.layers", "blocks"),
        (r"^decoder\.decoder_layers", "decoder_blocks"),
        (r"^decoder\.", ""),
        (r"attention\.qkv", "attn.qkv"),
        (r"attention\.o_proj", "attn.proj"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"^", "guesser."),
    ]

    def cut(weights):
        return fused(weights, [f"attention.{kind}_proj" for kind in "qkv"], "attention.qkv")

    pixels, noise = picture(32), torch.rand(2, 16, generator=torch.Generator().manual_seed(2))
    port = carried(_Guessed(port), reference, names, cut)
    return Case(
        reference,
        port,
        (),
        {"pixel_values": pixels, "noise": noise},
        (pixels, noise),
        arranged=lambda out: torch.cat([out[0][None], out[1].flatten()]),
        main=lambda out: torch.cat([out.loss[None], out.logits.flatten()]),
    )

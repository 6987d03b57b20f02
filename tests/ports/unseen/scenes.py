"""What looks at pictures, films and maps of depth."""

from __future__ import annotations

from contextlib import redirect_stdout
from io import StringIO
from types import SimpleNamespace
from unittest.mock import patch

import torch
from cases import Case, shaken, to_edit
from conversion import carried, experienced, fused, named, picture
from stubs import bare


class _Found(torch.nn.Module):
    """Points of one picture, and what describes them, laid out as the reference does."""

    def __init__(self, finder):
        super().__init__()
        self.finder = finder

    def forward(self, pixels):
        found = self.finder({"image": pixels[:, :1]})
        points, scores, described = (found[kind][0] for kind in ("keypoints", "scores", "descriptors"))
        return {"keypoints": points[None] / pixels.shape[-1], "scores": scores[None], "descriptors": described.T[None]}


def superpoint(load):
    from transformers import SuperPointConfig, SuperPointForKeypointDetection

    config = SuperPointConfig(max_keypoints=24, border_removal_distance=0, nms_radius=2)
    reference = shaken(SuperPointForKeypointDetection(config))
    names = [
        (r"^encoder\.conv_blocks\.(\d)\.conv_([ab])", lambda m: f"conv{int(m[1]) + 1}{m[2]}"),
        (r"^keypoint_decoder\.conv_score_([ab])", r"convP\1"),
        (r"^descriptor_decoder\.conv_descriptor_([ab])", r"convD\1"),
    ]
    bare("superpoint_superglue")
    package = load("superpoint_superglue.superpoint")
    weights = named(reference.state_dict(), names)
    settings = {"max_keypoints": 24, "remove_borders": 0, "nms_radius": 2}
    with patch.object(torch, "load", lambda file: weights), redirect_stdout(StringIO()):  # it reads a file, and prints
        port = package.SuperPoint(settings, "").eval()
    pixels = picture(48, batch=1)
    arranged, main = (lambda out: out["descriptors"]), (lambda out: out.descriptors)
    return Case(reference, _Found(port), (), {"pixel_values": pixels}, (pixels,), arranged=arranged, main=main)


class _Pairs(torch.nn.Module):
    """What matches points that were found before."""

    def __init__(self, matcher):
        super().__init__()
        self.matcher = matcher

    def forward(self, points, described, scores):
        scores = self.matcher._match_image_pair(points, described, scores, 30, 40)[1]
        return {"matching_scores0": scores[:, 0], "matching_scores1": scores[:, 1]}


def superglue(load):
    from transformers import SuperGlueConfig, SuperGlueForKeypointMatching

    kinds = ["self", "cross", "self"]
    sizes = {"keypoint_encoder_sizes": [8, 16], "sinkhorn_iterations": 20}
    config = SuperGlueConfig(hidden_size=32, gnn_layers_types=kinds, attn_implementation="eager", **sizes)
    reference = experienced(shaken(SuperGlueForKeypointMatching(config)))
    reference.final_projection.final_proj.weight.data.mul_(2)  # some points match
    names = [
        (r"^final_projection\.final_proj", "final_proj"),
        (r"^keypoint_encoder\.encoder\.(\d)\.linear", lambda m: f"kenc.encoder.{3 * int(m[1])}"),
        (r"^keypoint_encoder\.encoder\.(\d)\.batch_norm", lambda m: f"kenc.encoder.{3 * int(m[1]) + 1}"),
        (r"^keypoint_encoder\.encoder\.(\d)", lambda m: f"kenc.encoder.{3 * int(m[1])}"),
        (r"mlp\.0\.linear", "mlp.0"),
        (r"mlp\.0\.batch_norm", "mlp.1"),
        (r"mlp\.1\.(weight|bias)$", lambda m: m[0]),
        (r"attention\.self\.(query|key|value)", lambda m: f"attn.proj.{['query', 'key', 'value'].index(m[1])}"),
        (r"attention\.output\.dense", "attn.merge"),
    ]
    order = torch.arange(32).view(4, 8).T.flatten()  # heads are innermost in the port

    def cut(weights):
        cut = {}
        for name, each in weights.items():
            if name.startswith("keypoint_detector"):
                continue
            if ".self." in name:
                each = each[order]  # noqa: PLW2901 - step by step
            elif "attention.output.dense.weight" in name:
                each = each[:, order]  # noqa: PLW2901
            is_flat = each.ndim == 2
            cut[name.replace("mlp.1.", "mlp.3.")] = each[..., None] if is_flat else each
        return cut

    package = load("superpoint_superglue.superglue")
    weights = named(cut(reference.state_dict()), names)
    settings = {"descriptor_dim": 32, "keypoint_encoder": [8, 16], "GNN_layers": kinds, "sinkhorn_iterations": 20}
    with patch.object(torch, "load", lambda file: weights), redirect_stdout(StringIO()):
        port = package.SuperGlue(settings | {"match_threshold": 0.0}, "").eval()
    generator = torch.Generator().manual_seed(1)
    points = torch.rand(2, 2, 9, 2, generator=generator) * 30
    described, scores = torch.randn(2, 2, 9, 32, generator=generator), torch.rand(2, 2, 9, generator=generator)
    pixels = torch.zeros(2, 1, 30, 40)
    told = {f"image{n}": pixels for n in range(2)} | {f"keypoints{n}": points[:, n] for n in range(2)}
    told |= {f"descriptors{n}": described[:, n].transpose(1, 2) for n in range(2)}
    told |= {f"scores{n}": scores[:, n] for n in range(2)}

    def both(out):
        return torch.stack([out["matching_scores0"], out["matching_scores1"]], 1)

    return Case(_Pairs(reference), port, (points, described, scores), {}, (told,), arranged=both, main=both)


class _Detected(torch.nn.Module):
    """The layers that read a picture, and those that ask it."""

    def __init__(self, encoder, decoder):
        super().__init__()
        self.encoder, self.decoder = encoder, decoder

    def forward(self, seen, asked, grid, places, real):
        seen = self.encoder(seen, real, grid).last_hidden_state
        told = {"encoder_attention_mask": real, "spatial_position_embeddings": grid}
        told |= {"encoder_hidden_states": seen, "object_queries_position_embeddings": places}
        return self.decoder(asked, **told).last_hidden_state, seen


def detr(load):
    from transformers import DetrConfig, ResNetConfig
    from transformers.models.detr.modeling_detr import DetrDecoder, DetrEncoder

    config = DetrConfig(
        backbone_config=ResNetConfig(out_features=["stage4"]),
        d_model=32,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=48,
        decoder_ffn_dim=48,
    )
    reference = shaken(_Detected(DetrEncoder(config), DetrDecoder(config)))
    package = load("ane_transformers.reference.transformer")
    port = package.AppleNeuralEngineTransformer(
        embed_dim=32, ffn_dim=48, nb_enc_layers=2, nb_dec_layers=2, nb_attention_heads=4
    )
    names = [
        (r"self_attn_layer_norm", "self_attn.norm"),
        (r"encoder_attn_layer_norm", "multihead_attn.norm"),
        (r"final_layer_norm", "ffn.rnorm"),
        (r"decoder\.layernorm", "decoder.norm"),
        (r"encoder_attn", "multihead_attn"),
        (r"o_proj", "out_proj"),
        (r"mlp\.fc1", "ffn.layers.0"),
        (r"mlp\.fc2", "ffn.layers.3"),
    ]

    def cut(weights):
        cut = {}
        for name, each in weights.items():
            if name.endswith("norm.bias"):  # the port scales what it has shifted
                each = each / weights[name.replace("bias", "weight")]  # noqa: PLW2901 - step by step
            cut[name] = each[..., None, None] if each.ndim == 2 else each
        return cut

    generator = torch.Generator().manual_seed(1)
    seen, grid = (torch.randn(2, 12, 32, generator=generator) for _ in range(2))
    asked, places = (torch.randn(2, 5, 32, generator=generator) for _ in range(2))
    real = torch.ones(2, 12, dtype=torch.bool)
    real[1, 8:] = False

    def laid(each):
        return each.transpose(1, 2)[:, :, None]

    own = {"encoder_pos_embed": laid(grid), "decoder_pos_embed": laid(places)}
    own |= {"encoder_k_mask": (~real)[..., None, None] * -1e4}
    return Case(
        reference,
        carried(port, reference, names, cut),
        (seen, asked, grid, places, real),
        {},
        (laid(seen), laid(asked)),
        own,
        arranged=lambda out: out[0][:, :, 0].transpose(1, 2),
    )


def pvt(load):
    from transformers import PvtV2Config, PvtV2ForImageClassification

    config = PvtV2Config(
        image_size=64,
        depths=[1, 2, 1],
        num_encoder_blocks=3,
        sr_ratios=[4, 2, 1],
        hidden_sizes=[8, 16, 32],
        patch_sizes=[7, 3, 3],
        strides=[4, 2, 2],
        num_attention_heads=[1, 2, 4],
        mlp_ratios=[2, 2, 2],
        layer_norm_eps=1e-5,
        num_labels=5,
    )
    reference = shaken(PvtV2ForImageClassification(config))
    bare("vformer", "vformer.models", "vformer.models.classification")
    port = load("vformer.models.classification.pyramid").PVTClassificationV2(
        img_size=64,
        patch_size=[7, 3, 3],
        n_classes=5,
        embedding_dims=[8, 16, 32],
        num_heads=[1, 2, 4],
        mlp_ratio=[2, 2, 2],
        qkv_bias=True,
        qk_scale=8**-0.5,
        depths=[1, 2, 1],
        sr_ratios=[4, 2, 1],
    )
    port.decoder.decoder[0] = torch.nn.Identity()  # the reference has no norm there
    names = [
        (r"^classifier", "decoder.decoder.1"),
        (r"^pvt_v2\.encoder\.layers\.(\d)\.patch_embedding", r"patch_embeds.\1.0"),
        (r"^pvt_v2\.encoder\.layers\.(\d)\.layer_norm", r"norms.\1"),
        (r"^pvt_v2\.encoder\.layers\.(\d)\.blocks\.(\d)", r"blocks.\1.0.encoder.\2"),
        (r"^(patch.*)layer_norm", r"\1norm"),
        (r"layer_norm_([12])", lambda m: f"{int(m[1]) - 1}.norm"),
        (r"attention\.spatial_reduction", "0.fn.sr"),
        (r"attention\.layer_norm", "0.fn.norm.norm"),
        (r"attention\.proj", "0.fn.to_out.0"),
        (r"attention\.query", "0.fn.q"),
        (r"attention\.kv", "0.fn.kv"),
        (r"mlp\.dense1", "1.fn.fc1"),
        (r"mlp\.dwconv", "1.fn.dw_conv"),
        (r"mlp\.dense2", "1.fn.to_out.2"),
    ]

    def cut(weights):
        return fused(weights, ["attention.key", "attention.value"], "attention.kv")

    pixels = picture(64)
    port = carried(port, reference, names, cut, kept=("cls_token", "blocks.2.0.encoder.0.0.fn.norm"))
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,))


def vivit(load):
    from transformers import VivitConfig, VivitForVideoClassification

    config = VivitConfig(
        image_size=16,
        num_frames=4,
        tubelet_size=[2, 8, 8],
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=48,
        num_labels=5,
    )
    reference = shaken(VivitForVideoClassification(config))
    settings = load("vit_prisma.configs.HookedViTConfig").HookedViTConfig(
        n_layers=3,
        d_model=32,
        d_head=8,
        d_mlp=48,
        n_heads=4,
        activation_name="gelu_fast",
        patch_size=8,
        image_size=16,
        n_classes=5,
        return_type="class_logits",
        is_video_transformer=True,
        video_tubelet_depth=2,
        video_num_frames=4,
    )
    port = load("vit_prisma.models.base_vit").HookedViT(settings)
    names = [
        (r"^classifier\.weight", "head.W_H"),
        (r"^classifier\.bias", "head.b_H"),
        (r"^vivit\.embeddings\.cls_token", "cls_token"),
        (r"^vivit\.embeddings\.position_embeddings", "pos_embed.W_pos"),
        (r"^vivit\.embeddings\.patch_embeddings\.projection", "embed.proj"),
        (r"^vivit\.layernorm\.(.).*", r"ln_final.\1"),
        (r"^vivit\.layers", "blocks"),
        (r"layernorm_before\.(.).*", r"ln1.\1"),
        (r"layernorm_after\.(.).*", r"ln2.\1"),
        (r"attention\.(.)_proj\.weight", lambda m: f"attn.W_{m[1].upper()}"),
        (r"attention\.(.)_proj\.bias", lambda m: f"attn.b_{m[1].upper()}"),
        (r"mlp\.fc1\.weight", "mlp.W_in"),
        (r"mlp\.fc1\.bias", "mlp.b_in"),
        (r"mlp\.fc2\.weight", "mlp.W_out"),
        (r"mlp\.fc2\.bias", "mlp.b_out"),
    ]

    def cut(weights):
        cut = {}
        for name, each in weights.items():
            if "position_embeddings" in name:
                cut[name] = each[0]
            elif "o_proj.weight" in name:
                cut[name] = each.T.unflatten(0, (4, 8))
            elif "_proj.weight" in name and "attention" in name:
                cut[name] = each.unflatten(0, (4, 8)).transpose(1, 2)
            elif "_proj.bias" in name and "o_proj" not in name:
                cut[name] = each.unflatten(0, (4, 8))
            else:
                cut[name] = each.T if each.ndim == 2 else each
        return cut

    film = torch.randn(2, 4, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    return Case(reference, carried(port, reference, names, cut), (), {"pixel_values": film}, (film,))


def videomae(load):
    from transformers import VideoMAEConfig, VideoMAEForPreTraining

    config = VideoMAEConfig(
        image_size=16,
        patch_size=8,
        num_frames=16,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        layer_norm_eps=1e-5,
        decoder_hidden_size=24,
        decoder_num_hidden_layers=2,
        decoder_num_attention_heads=2,
        decoder_intermediate_size=48,
        use_mean_pooling=False,
    )
    reference = shaken(VideoMAEForPreTraining(config))
    bare("marlin_pytorch", "marlin_pytorch.model")
    port = load("marlin_pytorch.model.marlin").Marlin(
        img_size=16,
        patch_size=8,
        n_frames=16,
        encoder_embed_dim=32,
        encoder_depth=2,
        encoder_num_heads=4,
        decoder_embed_dim=24,
        decoder_depth=2,
        decoder_num_heads=2,
        mlp_ratio=2.0,
        qkv_bias=True,
        qk_scale=None,
        drop_rate=0.0,
        attn_drop_rate=0.0,
        norm_layer="LayerNorm",
        init_values=0.0,
        tubelet_size=2,
        as_feature_extractor=False,
    )
    names = [
        (r"^encoder_to_decoder", "enc_dec_proj"),
        (r"^mask_token", "decoder.mask_token"),
        (r"^decoder\.decoder_layers", "decoder.blocks"),
        (r"^videomae\.embeddings\.patch_embeddings", "encoder.patch_embedding"),
        (r"^videomae\.encoder\.layer\.", "encoder.blocks."),
        (r"^videomae\.layernorm", "encoder.norm"),
        (r"attention\.attention\.(q|v)\w+\.bias", r"attn.\1_bias"),
        (r"attention\.attention\.qkv", "attn.qkv"),
        (r"attention\.output\.dense", "attn.proj"),
        (r"intermediate\.dense", "mlp.layers.0.linear"),
        (r"output\.dense", "mlp.layers.1.linear"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
    ]

    def cut(weights):
        for name in [name for name in weights if name.endswith("query.weight")]:
            parts = [weights.pop(name.replace("query", kind)) for kind in ("query", "key", "value")]
            weights[name.replace("query", "qkv")] = torch.cat(parts)
        return weights

    generator = torch.Generator().manual_seed(1)
    film = torch.randn(2, 16, 3, 16, 16, generator=generator)
    hidden = torch.rand(2, 32, generator=generator).argsort(1) < 20
    return Case(
        reference,
        carried(port, reference, names, cut, kept=("pos_embedding",)),
        (),
        {"pixel_values": film, "bool_masked_pos": hidden},
        (film.transpose(1, 2), ~hidden),
        main=lambda out: out.logits,
    )


def clipseg(load):
    from transformers import CLIPSegConfig, CLIPSegForImageSegmentation

    words = {"vocab_size": 64, "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 1}
    words |= {"num_attention_heads": 1, "max_position_embeddings": 8, "eos_token_id": 63, "bos_token_id": 1}
    config = CLIPSegConfig(
        text_config=words | {"pad_token_id": 0},
        vision_config={"num_hidden_layers": 3},
        extract_layers=[1, 2],
        reduce_dim=32,
    )
    reference = shaken(CLIPSegForImageSegmentation(config))
    bare("imaginairy", "imaginairy.vendored")
    package = load("imaginairy.vendored.clipseg")
    clip = load("imaginairy.vendored.clip")
    towers = load("imaginairy.vendored.clip.model").CLIP(512, 224, 3, 768, 32, 8, 64, 64, 1, 1)
    with patch.object(clip, "load", lambda *args, **kwargs: (towers, None)):  # it fetches them
        port = package.CLIPDensePredT(extract_layers=(1, 2), reduce_dim=32)
    names = [
        (r"^clip\.vision_model", "model"),
        (r"^clip\.visual_projection\.weight", "model.proj"),
        (r"embeddings\.class_embedding", "class_embedding"),
        (r"embeddings\.patch_embedding", "conv1"),
        (r"embeddings\.position_embedding\.weight", "positional_embedding"),
        (r"pre_layrnorm", "ln_pre"),
        (r"post_layernorm", "ln_post"),
        (r"encoder\.layers", "transformer.resblocks"),
        (r"^(model.*)self_attn", r"\1attn"),
        (r"^(model.*)layer_norm", r"\1ln_"),
        (r"^(model.*)mlp\.fc1", r"\1mlp.c_fc"),
        (r"^(model.*)mlp\.fc2", r"\1mlp.c_proj"),
        (r"^decoder\.layers", "blocks"),
        (r"^decoder\.transposed_convolution", "trans_conv"),
        (r"^decoder\.", ""),
        (r"^(blocks.*)layer_norm", r"\1norm"),
        (r"^(blocks.*)mlp\.fc", r"\1linear"),
        (r"in_proj\.", "in_proj_"),
    ]

    def cut(weights):
        weights["clip.visual_projection.weight"] = weights["clip.visual_projection.weight"].T
        return fused(weights, [f"self_attn.{kind}_proj" for kind in "qkv"], "self_attn.in_proj")

    port = carried(port, reference, names, cut, kept=("clip_model.", "reduce."))
    pixels, asked = picture(224), torch.randn(2, 512, generator=torch.Generator().manual_seed(2))
    inputs = {"pixel_values": pixels, "conditional_embeddings": asked}
    main = lambda out: out.logits  # noqa: E731
    return Case(reference, port, (), inputs, (pixels, asked), arranged=lambda out: out[0][:, 0], main=main)


def rf_detr(load):
    from transformers import RfDetrConfig, RfDetrForObjectDetection
    from transformers.models.rf_detr.configuration_rf_detr import RfDetrDinov2Config

    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "mlp_ratio": 2}
    places = {"image_size": 48, "patch_size": 8}
    backbone = RfDetrDinov2Config(**sizes, **places, num_windows=2, out_features=["stage2", "stage3"])
    config = RfDetrConfig(
        backbone_config=backbone,
        d_model=32,
        decoder_ffn_dim=48,
        decoder_n_points=2,
        decoder_layers=2,
        decoder_self_attention_heads=4,
        decoder_cross_attention_heads=4,
        num_queries=7,
        group_detr=2,
        num_labels=5,
        layer_norm_eps=1e-6,
    )
    reference = shaken(RfDetrForObjectDetection(config))
    bare("rfdetr", "rfdetr.models")
    body, package = load("rfdetr.models.backbone.dinov2"), load("rfdetr.models.lwdetr")
    body.logger.disabled = True  # it says that it has other sizes than were trained
    settings = SimpleNamespace(
        num_classes=4,
        device="cpu",
        encoder="dinov2_windowed_tiny",
        vit_encoder_num_layers=3,
        pretrained_encoder=None,
        window_block_indexes=None,
        drop_path=0.0,
        hidden_dim=32,
        out_feature_indexes=[2, 3],
        projector_scale=["P4"],
        use_cls_token=True,
        position_embedding="sine",
        freeze_encoder=False,
        layer_norm=True,
        resolution=64,
        rms_norm=False,
        backbone_lora=False,
        force_no_pretrain=True,
        gradient_checkpointing=False,
        pretrain_weights="",
        patch_size=8,
        num_windows=2,
        positional_encoding_size=6,
        dual_projector=False,
        encoder_only=False,
        backbone_only=False,
        segmentation_head=False,
        num_queries=7,
        aux_loss=False,
        group_detr=2,
        two_stage=True,
        lite_refpoint_refine=True,
        bbox_reparam=True,
        sa_nheads=4,
        ca_nheads=4,
        dropout=0.0,
        dim_feedforward=48,
        dec_layers=2,
        dec_n_points=2,
        decoder_norm="LN",
    )
    with patch.dict(body.size_to_width, {"tiny": 32}), patch.object(body, "get_config", lambda *args: sizes | places):
        port = package.build_model(settings)
    names = [
        (r"^model\.backbone\.backbone", "backbone.0.encoder.encoder"),
        (r"^model\.backbone\.projector\.projector_layer", "backbone.0.projector.stages.0.0"),
        (r"^model\.backbone\.projector\.layer_norm", "backbone.0.projector.stages.0.1"),
        (r"conv(\d)\.conv", r"cv\1.conv"),
        (r"conv(\d)\.norm", r"cv\1.bn"),
        (r"bottlenecks", "m"),
        (r"attention\.q_proj", "attention.attention.query"),
        (r"attention\.k_proj", "attention.attention.key"),
        (r"attention\.v_proj", "attention.attention.value"),
        (r"attention\.o_proj", "attention.output.dense"),
        (r"^model\.reference_point_embed", "refpoint_embed"),
        (r"^model\.query_feat", "query_feat"),
        (r"^model\.", "transformer."),
        (r"decoder\.layernorm", "decoder.norm"),
        (r"self_attn_layer_norm", "norm1"),
        (r"cross_attn_layer_norm", "norm2"),
        (r"(decoder\.layers\.\d)\.layer_norm", r"\1.norm3"),
        (r"decoder\.layers\.(\d)\.mlp\.fc", r"decoder.layers.\1.linear"),
        (r"in_proj\.", "in_proj_"),
        (r"self_attn\.o_proj", "self_attn.out_proj"),
    ]

    def cut(weights):
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


def deit(load):
    from transformers import DeiTConfig, DeiTForImageClassificationWithTeacher

    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 128}
    config = DeiTConfig(image_size=16, patch_size=4, **sizes, num_labels=5, layer_norm_eps=1e-5)
    reference = shaken(DeiTForImageClassificationWithTeacher(config))
    bare("glasses", "glasses.models", "glasses.models.classification")
    package = load("glasses.models.classification.deit")
    options = {"img_size": 16, "depth": 3, "num_heads": 4, "n_classes": 5, "qkv_bias": True}
    port = package.DeiT(patch_size=4, emb_size=32, **options)
    names = [
        (r"^cls_classifier", "head.head"),
        (r"^distillation_classifier", "head.dist_head"),
        (r"^deit\.embeddings\.cls_token", "embedding.tokens.cls"),
        (r"^deit\.embeddings\.distillation_token", "embedding.tokens.dist"),
        (r"^deit\.embeddings\.position_embeddings", "embedding.positions"),
        (r"^deit\.embeddings\.patch_embeddings\.projection", "embedding.projection.0"),
        (r"^deit\.layernorm", "encoder.norm"),
        (r"^deit\.layers", "encoder.layers"),
        (r"layernorm_before", "0.fn.0"),
        (r"layernorm_after", "1.fn.0"),
        (r"attention\.qkv", "0.fn.1.qkv"),
        (r"attention\.o_proj", "0.fn.1.projection.0"),
        (r"mlp\.fc1", "1.fn.1.0"),
        (r"mlp\.fc2", "1.fn.1.3"),
    ]

    def cut(weights):
        weights["deit.embeddings.position_embeddings"] = weights["deit.embeddings.position_embeddings"][0]
        return fused(weights, [f"attention.{kind}_proj" for kind in "qkv"], "attention.qkv")

    pixels = picture(16)
    return Case(reference, carried(port, reference, names, cut), (), {"pixel_values": pixels}, (pixels,))


def dpt(load):
    from transformers import DPTConfig, DPTForDepthEstimation

    config = DPTConfig(
        image_size=64,
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        layer_norm_eps=1e-6,
        backbone_out_indices=[0, 1, 2, 3],
        neck_hidden_sizes=[8, 16, 24, 32],
        neck_ignore_stages=[],
        fusion_hidden_size=16,
    )
    reference = shaken(DPTForDepthEstimation(config))
    reference.head.head[4].bias.data.add_(1)  # else much is cut off at zero
    inside = "controlnet_aux.midas.midas"
    bare("controlnet_aux", "controlnet_aux.midas", inside)
    body = load("timm.models.vision_transformer").VisionTransformer(
        64, 16, embed_dim=32, depth=4, num_heads=4, mlp_ratio=2, num_classes=0
    )
    sizes = {"features": [8, 16, 24, 32], "size": [64, 64], "hooks": [0, 1, 2, 3], "vit_features": 32}
    made = load(f"{inside}.vit")._make_vit_b16_backbone(body, **sizes, use_readout="project")
    scratch = load(f"{inside}.blocks")._make_scratch([8, 16, 24, 32], 16, groups=1, expand=False)
    package = load(f"{inside}.dpt_depth")
    with patch.object(package, "_make_encoder", lambda *args, **kwargs: (made, scratch)):  # the sizes are its own
        port = package.DPTDepthModel(backbone="vitb16_384", features=16)
    names = [
        (r"^head\.head", "scratch.output_conv"),
        (r"^dpt\.embeddings\.cls_token", "pretrained.model.cls_token"),
        (r"^dpt\.embeddings\.position_embeddings", "pretrained.model.pos_embed"),
        (r"^dpt\.embeddings\.patch_embeddings\.projection", "pretrained.model.patch_embed.proj"),
        (r"^dpt\.layernorm", "pretrained.model.norm"),
        (r"^dpt\.encoder\.layer", "pretrained.model.blocks"),
        (r"attention\.attention\.qkv", "attn.qkv"),
        (r"attention\.output\.dense", "attn.proj"),
        (r"intermediate\.dense", "mlp.fc1"),
        (r"output\.dense", "mlp.fc2"),
        (r"layernorm_before", "norm1"),
        (r"layernorm_after", "norm2"),
        (r"^neck\.convs\.(\d)", lambda m: f"scratch.layer{int(m[1]) + 1}_rn"),
        (r"^neck\.fusion_stage\.layers\.(\d)", lambda m: f"scratch.refinenet{4 - int(m[1])}"),
        (r"residual_layer(\d)\.convolution", r"resConfUnit\1.conv"),
        (r"^(scratch.*)projection", r"\1out_conv"),
        (r"^neck\.\w+\.layers\.(\d)\.projection", lambda m: f"pretrained.act_postprocess{int(m[1]) + 1}.3"),
        (r"^neck\.\w+\.layers\.(\d)\.resize", lambda m: f"pretrained.act_postprocess{int(m[1]) + 1}.4"),
        (r"^neck\.\w+\.readout_projects\.(\d)", lambda m: f"pretrained.act_postprocess{int(m[1]) + 1}.0.project"),
    ]

    def cut(weights):
        kinds = [f"attention.attention.{kind}" for kind in ("query", "key", "value")]
        return fused(weights, kinds, "attention.attention.qkv")

    pixels = picture(64)
    port = carried(port, reference, names, cut)
    return Case(reference, port, (), {"pixel_values": pixels}, (pixels,), main=lambda out: out.predicted_depth)


PORTS = (
    to_edit("ane-detr", "ane_transformers", detr),
    to_edit("controlnet-aux-dpt", "controlnet_aux", dpt, "controlnet_aux.midas"),
    to_edit("glasses-deit", "glasses", deit, "glasses.models.classification.deit", "glasses.models.classification.vit"),
    to_edit("imaginairy-clipseg", "imaginairy", clipseg, "imaginairy.vendored.clipseg", "imaginairy.vendored.clip"),
    to_edit("marlin-videomae", "marlin_pytorch", videomae),
    to_edit("prisma-vivit", "vit_prisma", vivit),
    to_edit("vformer-pvt-v2", "vformer", pvt),
    to_edit("rfdetr", "rfdetr", rf_detr, "rfdetr.models", "rfdetr.utilities"),
    to_edit("superpoint", "superpoint_superglue", superpoint),
    to_edit("superglue", "superpoint_superglue", superglue),
)
